"""MCP servers that break the protocol, without the package, so that they start at once: the argument says how."""

import json
import sys

FLOOD_BYTES = 100 * 2**20


def answer(request, result):
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)


def refuse(request):
    error = {"code": -32601, "message": "no such method \x1b[31m"}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)


def notify():
    params = {"level": "info", "data": "x" * 20}
    print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params}))


def on_call(kind, request):
    if kind == "dies":
        print("Traceback\nout of memory", file=sys.stderr, flush=True)
        sys.exit(3)
    elif kind == "floods in a line":
        for _ in range(FLOOD_BYTES // 2**16):
            sys.stdout.write("x" * 2**16)
    elif kind == "floods with messages":
        while True:
            notify()
    elif kind == "prints garbage":
        while True:
            print("DEBUG: not a message \x1b[2J")
    elif kind == "answers nonsense":
        answer(request, {"content": "no list"})
    elif kind in ("greets", "lists"):
        numbers = {"structuredContent": {"x": "a" * 60 + "!"}} if kind == "lists" else {}
        answer(request, {"content": [{"type": "text", "text": "well"}], **numbers})
    # "never answers": nothing


kind = sys.argv[1]
if kind == "never starts":
    sys.stdin.read()
if kind == "ends at once":
    sys.exit("no licence")
if kind == "greets":
    print("Welcome to the server!\n\x00\xff", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    match request["method"]:
        case "initialize":
            info = {"name": "broken", "version": "1"}
            versions = {"protocolVersion": request["params"]["protocolVersion"]}
            offered = {"tools": {}} | ({"prompts": {}, "resources": {}} if kind == "lists" else {})
            answer(request, versions | {"capabilities": offered, "serverInfo": info})
        case "tools/list" if kind == "lists":
            answer(request, {"tools": [*json.loads(sys.argv[2]), {"name": "go", "inputSchema": {"type": "object"}}]})
        case "prompts/list" if kind == "lists":
            answer(request, {"prompts": [{"name": 5}, {"name": "fine"}]})
        case "resources/list" if kind == "lists":
            answer(request, {"resources": 5})
        case "tools/list":
            answer(request, {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]})
        case "tools/call":
            on_call(kind, request)
        case method if method.startswith("notifications/"):
            pass
        case _:
            refuse(request)
