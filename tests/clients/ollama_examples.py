"""The calls that the page api.md of Ollama shows an example of, against `specchat serve`.

Each must be answered with the fields that the page shows. `NOT_OURS` are those about what this server does not have.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.clients.http_sdks import QUESTION, TOKEN, serving
from tests.clients.world import Step, World

CITY = {
    "type": "object",
    "properties": {"age": {"type": "integer"}, "available": {"type": "boolean"}},
    "required": ["age", "available"],
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
OPTIONS = {
    "num_keep": 5, "seed": 42, "num_predict": 20, "top_k": 20, "top_p": 0.9, "min_p": 0.0, "typical_p": 0.7,
    "repeat_last_n": 33, "temperature": 0.8, "repeat_penalty": 1.2, "presence_penalty": 1.5, "frequency_penalty": 1.0,
    "penalize_newline": True, "stop": ["\n", "user:"], "numa": False, "num_ctx": 1024, "num_batch": 2, "num_gpu": 1,
    "main_gpu": 0, "use_mmap": True, "num_thread": 8,
}  # fmt: skip
SHORT = {"num_predict": 60}
ASKED = [{"role": "user", "content": QUESTION}]
TALK = [*ASKED, {"role": "assistant", "content": "A function with yield."}, {"role": "user", "content": "Why?"}]
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "the city"}},
    "required": ["city"],
}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "the weather", "parameters": WEATHER}}]
CALLED = [
    *ASKED,
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "A"}}}]},
    {"role": "tool", "tool_name": "weather", "content": "11 degrees"},
]
TOTALS = ("done", "total_duration", "load_duration", "prompt_eval_count", "eval_count", "eval_duration")
NO_IMAGES, NO_STORE = "the model reads no images", "this server makes, copies and deletes no models"
NO_EMBEDDINGS = "the model of this server has no embeddings"


@dataclass(frozen=True)
class Example:
    """A call, and the fields of its last object. `body` None: a GET; `not_ours` says why it does not apply."""

    name: str
    path: str
    body: Mapping[str, Any] | None = None
    fields: Sequence[str] = field(default=TOTALS)
    not_ours: str = ""


def _generate(name: str, body: Mapping[str, Any], fields: Sequence[str] = ("response", *TOTALS)) -> Example:
    return Example(f"generate: {name}", "/api/generate", body, fields)


def _chat(name: str, body: Mapping[str, Any], fields: Sequence[str] = ("message", *TOTALS)) -> Example:
    return Example(f"chat: {name}", "/api/chat", body, fields)


WHOLE = {"prompt": QUESTION, "stream": False, "options": SHORT}
TALKED = {"messages": ASKED, "stream": False, "options": SHORT}
LOADED = ("done",)
EXAMPLES = (
    _generate("a stream", {"prompt": QUESTION, "options": SHORT}),
    _generate("whole", WHOLE),
    _generate("a suffix", WHOLE | {"prompt": "def compute_gcd(a, b):", "suffix": "    return result"}),
    _generate("a schema", WHOLE | {"format": CITY, "options": {"num_predict": 200}}),
    _generate("JSON", WHOLE | {"format": "json"}),
    Example("generate: images", "/api/generate", WHOLE | {"images": [PIXEL]}, not_ours=NO_IMAGES),
    _generate("raw", WHOLE | {"prompt": "[INST] why? [/INST]", "raw": True}),
    _generate("reproducible", WHOLE | {"options": SHORT | {"seed": 123}}),
    _generate("all options", WHOLE | {"options": OPTIONS}),
    _generate("load", {}, LOADED),
    _generate("unload", {"keep_alive": 0}, LOADED),
    _chat("a stream", {"messages": ASKED, "options": SHORT}),
    _chat("a stream with tools", {"messages": ASKED, "tools": TOOLS, "options": SHORT}),
    _chat("whole", TALKED),
    _chat("whole with tools", TALKED | {"tools": TOOLS}),
    _chat("a schema", TALKED | {"format": CITY, "options": {"num_predict": 200, "temperature": 0}}),
    _chat("a history", {"messages": TALK, "options": SHORT}),
    _chat("a history with a call", TALKED | {"messages": CALLED, "tools": TOOLS}),
    Example("chat: images", "/api/chat", {"messages": [ASKED[0] | {"images": [PIXEL]}]}, not_ours=NO_IMAGES),
    _chat("reproducible", TALKED | {"options": SHORT | {"seed": 101, "temperature": 0}}),
    _chat("load", {"messages": []}, LOADED),
    _chat("unload", {"messages": [], "keep_alive": 0}, LOADED),
    Example("create: from a model", "/api/create", {"from": "x"}, not_ours=NO_STORE),
    Example("create: quantized", "/api/create", {"quantize": "q4_K_M"}, not_ours=NO_STORE),
    Example("create: from GGUF", "/api/create", {"files": {}}, not_ours=NO_STORE),
    Example("create: from safetensors", "/api/create", {"files": {}}, not_ours=NO_STORE),
    Example("blobs: HEAD", "/api/blobs/sha256:0", not_ours=NO_STORE),
    Example("blobs: POST", "/api/blobs/sha256:0", {}, not_ours=NO_STORE),
    Example("tags", "/api/tags", None, ("models",)),
    Example("show", "/api/show", {}, ("modelfile", "template", "details", "model_info", "capabilities")),
    Example("show: verbose", "/api/show", {"verbose": True}, ("parameters", "details", "model_info")),
    Example("copy", "/api/copy", {}, not_ours=NO_STORE),
    Example("delete", "/api/delete", {}, not_ours=NO_STORE),
    Example("pull", "/api/pull", {}, ("status",)),
    Example("push", "/api/push", {}, not_ours=NO_STORE),
    Example("embed", "/api/embed", {}, not_ours=NO_EMBEDDINGS),
    Example("embed: several", "/api/embed", {}, not_ours=NO_EMBEDDINGS),
    Example("ps", "/api/ps", None, ("models",)),
    Example("embeddings", "/api/embeddings", {}, not_ours=NO_EMBEDDINGS),
    Example("version", "/api/version", None, ("version",)),
)


def ollama_examples(world: World) -> Iterator[Step]:
    with serving(world) as address:
        for example in EXAMPLES:
            if not example.not_ours:
                problem = _problem(address, example)
                yield Step(f"`{example.name}`", problem or "answered", is_well=not problem)


def _problem(address: str, example: Example) -> str:
    """What is wrong with the answer; "" if it has the fields of the page."""
    body = None if example.body is None else json.dumps({"model": "embedded", **example.body}).encode()
    request = urllib.request.Request(address + example.path, body, {"Authorization": f"Bearer {TOKEN}"})
    try:
        with urllib.request.urlopen(request) as answer:
            objects = [json.loads(line) for line in answer.read().splitlines()]
    except urllib.error.HTTPError as error:
        return f"**failed**: status {error.code}: {error.read().decode()[:200]}"
    told = {name: value for each in objects for name, value in each.items()}
    missing = [name for name in example.fields if name not in told]
    return f"**failed**: without {', '.join(missing)}" if missing else ""
