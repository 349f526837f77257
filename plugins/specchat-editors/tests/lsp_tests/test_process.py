"""The process of `specchat lsp`: its streams, start and end, and that no input ends it."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time

import pytest

from lsp_tests.driver import ROOT, SERVED, URI, at

INLINE = "textDocument/inlineCompletion"
EVERYTHING = (
    "initialize", "initialized", "shutdown", "textDocument/didOpen", "textDocument/didChange", "textDocument/didClose",
    "textDocument/inlineCompletion", "textDocument/codeAction", "codeAction/resolve", "workspace/executeCommand",
    "$/cancelRequest", "window/workDoneProgress/cancel", "workspace/didChangeConfiguration", "no/such", "$/no",
)  # fmt: skip


def test_it_answers_before_there_is_an_engine_and_without_a_home(start, fresh_world):
    bare = {"PATH": "/usr/bin:/bin", "SPECCHAT_RUNTIME": str(fresh_world), "PYTHONPATH": os.environ["PYTHONPATH"]}
    editor = start(environment=bare)

    answer = editor.result("initialize", {"processId": None, "rootUri": None, "capabilities": {}})

    capabilities = answer["capabilities"]
    assert capabilities["inlineCompletionProvider"] == {}
    assert capabilities["textDocumentSync"] == {"openClose": True, "change": 2, "save": False}
    assert capabilities["codeActionProvider"]["resolveProvider"] is True
    assert capabilities["executeCommandProvider"]["commands"] == ["specchat.edit", "specchat.explain"]
    assert "completionProvider" not in capabilities
    assert not (fresh_world / "host.sock").exists()
    assert editor.close() == 0
    assert editor.process.stderr.read() == b""


def test_it_never_imports_torch():
    program = (
        "import specchat_editors.lsp.process_lsp, specchat_editors.lsp.command, sys; print('torch' in sys.modules)"
    )
    imported = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip

    assert imported.stdout == "False\n"


def test_what_is_printed_goes_to_the_log(start, world):
    noisy = """
import os, sys
import lsp_tests.served, specchat_editors.lsp.server as server
from specchat.cli.main import main
server.SpecchatLanguageServer.code_actions = lambda self, params: [os.write(2, b"noise"), print("noise")][2:]
sys.argv[1:] = ["lsp"]
main()
"""
    editor = start(sys.executable, "-c", noisy)
    editor.result("initialize", {"processId": None, "rootUri": None, "capabilities": {}})

    span = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}
    params = {"textDocument": {"uri": URI}, "range": span, "context": {"diagnostics": []}}
    assert editor.result("textDocument/codeAction", params) == []

    assert editor.close() == 0
    assert editor.process.stderr.read() == b""
    assert "noise" in (world / f"lsp-{editor.process.pid}.log").read_text()


def test_the_end_of_the_input_is_an_end_like_any_other(start):
    editor = start()
    editor.begin()

    assert editor.close(politely=False) == 0


def test_an_exit_without_shutdown_is_a_failure(start):
    editor = start()
    editor.begin()
    editor.notify("exit")

    assert editor.process.wait(120) == 1


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.full) for each in (signal.SIGINT, signal.SIGHUP))]
)
def test_a_signal_ends_it_amid_a_completion(start, number):
    editor = start()
    editor.begin()
    editor.is_loaded()
    editor.open("# slowly: a\n\n")
    editor.request(INLINE, at(1, 0))

    editor.process.send_signal(number)

    assert editor.process.wait(120) == 128 + number


@pytest.mark.full
def test_it_ends_with_its_editor_even_when_the_pipe_stays_open(start):
    gone = subprocess.Popen(["true"])
    gone.wait()
    editor = start()
    editor.result("initialize", {"processId": gone.pid, "rootUri": None, "capabilities": {}})

    assert editor.process.wait(120) == 0


def test_it_has_no_children_that_a_kill_could_leave_behind(start, world):
    editor = start()
    editor.begin()
    editor.is_loaded()

    children = subprocess.run(["pgrep", "-P", str(editor.process.pid)], capture_output=True, text=True, check=False)
    editor.process.kill()
    editor.process.wait()

    assert children.stdout == ""  # the engine process is everybody's, and ends when nobody has needed it for a while
    with socket.socket(socket.AF_UNIX) as host:
        host.connect(str(world / "host.sock"))


def test_on_a_terminal_the_command_refuses_and_says_why(world):
    ours, theirs = os.openpty()
    ran = subprocess.run(
        SERVED, stdin=theirs, capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "SPECCHAT_RUNTIME": str(world)},
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)

    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert "an editor starts this command" in ran.stderr


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700), (b"\xff\xfe", -32700), (b"[" * 100_000, -32700), (b"[1]", -32600), (b"42", -32600),
        (b"null", -32600), (b"{}", -32600), (b'{"jsonrpc":"1.0","id":5,"method":"shutdown"}', -32600),
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused_and_the_next_one_is_read(editor, body, code):
    editor.send_bytes(body)

    assert editor.answer(None)["error"]["code"] == code
    editor.open("# fill: x\n\n")
    assert editor.result(INLINE, at(1, 0))["items"]


def test_a_message_that_is_too_long_is_swallowed(editor):
    editor.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 2**25 + b'"}')

    assert editor.answer(None)["error"]["code"] == -32700
    assert editor.call("no/such")["error"]["code"] == -32601


def test_wrong_params_are_answered_without_a_path_or_a_traceback(editor):
    wrong = [editor.call(INLINE, params) for params in (None, {}, {"textDocument": 5}, [])]
    wrong.append(editor.call("codeAction/resolve", {"title": "x", "data": {"uri": URI, "first": 0}}))

    assert all("error" in answer for answer in wrong), wrong
    assert "/" not in json.dumps([answer["error"].get("data") for answer in wrong])
    assert {answer["error"]["code"] for answer in wrong} <= {-32602, -32603}


def test_nothing_is_served_before_the_session_begins_or_after_it_ends(start):
    editor = start()
    early = editor.call(INLINE, at(0, 0))
    editor.begin()
    again = editor.call("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
    editor.result("shutdown")
    late = editor.call(INLINE, at(0, 0))

    assert [answer["error"]["code"] for answer in (early, again, late)] == [-32002, -32600, -32600]


def odd(dice: random.Random, depth: int = 0) -> object:
    """Any JSON, likely with names that the protocol knows."""
    leaves = (None, True, -1, 2**40, 0.5, "", URI, "\ud800", "x" * 300)
    if depth > 3 or dice.random() < 0.4:
        return dice.choice(leaves)
    if dice.random() < 0.2:
        return [odd(dice, depth + 1) for _ in range(dice.randrange(3))]
    names = (
        "textDocument", "uri", "position", "line", "character", "range", "start", "end", "context", "jsonrpc", "title",
        "triggerKind", "contentChanges", "text", "version", "data", "command", "arguments", "id",
    )  # fmt: skip
    return {dice.choice(names): odd(dice, depth + 1) for _ in range(dice.randrange(6))}


def test_500_odd_messages_do_not_end_it(editor):
    dice = random.Random(9)
    methods = [method for method in EVERYTHING if method != "shutdown"]
    for number in range(500):
        message = {"jsonrpc": dice.choice(("2.0",) * 9 + ("1",)), "method": dice.choice(methods), "params": odd(dice)}
        if dice.random() < 0.6:
            message["id"] = dice.choice((number, f"n{number}", None, [1], 1.5))
        if dice.random() < 0.1:
            message[dice.choice(("result", "error", "method"))] = odd(dice)
        body = json.dumps(message).encode()
        editor.send_bytes(body if dice.random() < 0.9 else body[: dice.randrange(len(body))])

    editor.open("# fill: alive\n\n", "file:///after.py")
    deadline = time.monotonic() + 120
    while not editor.result(INLINE, at(1, 0, uri="file:///after.py"))["items"]:
        assert time.monotonic() < deadline
    assert editor.process.poll() is None
