"""How the models of the usual families write tool calls, as data: one row per family.

A call is `opening` name `between` arguments `after`. The patterns say what else a model of the family may write, and
`find_tool_format` tells the family by a call that the chat template of a model renders. Knows texts only: no token, no
parser, no model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

NAME = r"(?P<name>[\w.:/-]+)"
OBJECT_HEADER = (  # {"name": "NAME", "arguments": and then the arguments
    r'\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"(?P<name>[^"\\]+)"\s*,\s*'
    r'"(?:arguments|parameters)"\s*:\s*(?=\S)'
)
PROBE_NAME, PROBE_ARGUMENTS = "probe_name", {"probe_key": "probe_value"}  # of the call that tells the family

ArgumentReader = Callable[[str, Mapping[str, Any]], str]


@dataclass(frozen=True)
class ToolFormat:
    """How a family writes calls.

    `opening`, `between` and `after` are what a forced call consists of.
    In an answer, a match of `begin` begins a call, `header` is what follows it up to the arguments, and `closing` ends
    it; without one, it ends with its JSON value. `next_call` begins a further call right after one, and `last` follows
    the last one. `read_arguments` makes JSON of arguments that are written in another way, by their schema.
    `tokens` are the markers as a vocabulary has them. `id_length`: the template wants ids of so many characters.
    """

    signature: str  # a pattern in a rendered call
    opening: str
    between: str
    after: str
    begin: str
    header: str = OBJECT_HEADER
    closing: str = ""
    is_object: bool = True  # name and arguments are fields of a JSON object
    next_call: str = ""
    last: str = ""
    read_arguments: ArgumentReader | None = None
    tokens: tuple[str, ...] = ()
    id_length: int = 0

    @property
    def marker(self) -> str:
        """The text that begins a call, for a call that turns out to be none."""
        return self.opening.partition("\n")[0].partition("{")[0]

    def call_text(self, name: str, arguments: str) -> str:
        """A call as a model of this family writes it."""
        return f"{self.opening}{name}{self.between}{arguments}{self.after}"


def _read_tagged_arguments(pattern: str) -> ArgumentReader:
    """Arguments as tags with a key and a value, which is text or JSON: its schema decides."""

    def read(body: str, schema: Mapping[str, Any]) -> str:
        tool = {"type": "function", "function": {"name": "call", "parameters": dict(schema)}}
        function = {"name": "call", "arguments": "{content}"}
        content = {"content": "xml-inline", "content_args": {"tag_pattern": pattern}}
        return _parse_arguments(body, {**content, "transform": {"function": function}}, [tool])

    return read


def _read_lax_json(delimiter: str) -> ArgumentReader:
    """JSON with bare keys, and strings between delimiters of their own."""

    def read(body: str, _schema: Mapping[str, Any]) -> str:
        content_args = {"unquoted_keys": True, "string_delims": [[delimiter, delimiter]]}
        content = {"content": "json", "content_args": content_args}
        return _parse_arguments(body, {**content, "transform": {"function": {"arguments": "{content}"}}}, None)

    return read


def _parse_arguments(body: str, field: Mapping[str, Any], tools: list[Any] | None) -> str:
    """The arguments as JSON text, by the parser of transformers; as they were written if they cannot be read."""
    from transformers.utils.chat_parsing import parse_response

    template = {"start_anchor": "\0", "fields": {"call": {"open_pattern": r"\A", **field}}}
    try:
        call = parse_response(body, template, prefix="", tools=tools).get("call") or {"function": {}}
    except ValueError:
        return body
    return json.dumps(call["function"].get("arguments", {}), ensure_ascii=False)


HERMES = ToolFormat(
    signature=r"<tool_call>\s*\{",
    opening='<tool_call>\n{"name": "', between='", "arguments": ', after="}\n</tool_call>",
    begin=r"\s*<tool_call>", closing="</tool_call>", tokens=("<tool_call>", "</tool_call>"),
)  # fmt: skip
_MISTRAL = ToolFormat(
    signature=r"\[TOOL_CALLS\]\s*\[",
    opening='[TOOL_CALLS] [{"name": "', between='", "arguments": ', after="}]",
    begin=r"\s*\[TOOL_CALLS\]\s*\[\s*(?=\{)", next_call=r"\s*,\s*(?=\{)", last=r"\s*\]",
    tokens=("[TOOL_CALLS]",), id_length=9,
)  # fmt: skip
_GEMMA = ToolFormat(
    signature=r"<\|tool_call>",
    opening='<|tool_call>{"name": "', between='", "arguments": ', after="}<tool_call|>",
    begin=r"\s*<\|tool_call>", header=rf"\s*call:{NAME}\s*(?=\{{)", closing="<tool_call|>", is_object=False,
    read_arguments=_read_lax_json('<|"|>'), tokens=("<|tool_call>", "<tool_call|>", '<|"|>'),
)  # fmt: skip
_DEEPSEEK = ToolFormat(
    signature=r"<｜tool▁call▁begin｜>\w+<｜tool▁sep｜>\{",
    opening="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", between="<｜tool▁sep｜>",
    after="<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    begin=r"\s*(?:<｜tool▁calls▁begin｜>\s*)?<｜tool▁call▁begin｜>",
    header=rf"(?:function<｜tool▁sep｜>)?{NAME}(?:<｜tool▁sep｜>|\s*```json)\s*(?=\{{)",
    closing="<｜tool▁call▁end｜>", is_object=False, last=r"\s*<｜tool▁calls▁end｜>",
    tokens=("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
            "<｜tool▁calls▁end｜>"),
)  # fmt: skip
_BARE_HEADER = OBJECT_HEADER.replace("?P<name>", "")

# The first one whose signature a rendered call has. Without a call in the template, its text must have all tokens.
FORMATS: Mapping[str, ToolFormat] = {
    "qwen3-coder": replace(
        HERMES, signature="<function=", header=r"\s*<function=(?P<name>[^>\s]+)>", is_object=False,
        begin=r"\s*(?:<tool_call>|(?=<function=))", tokens=(*HERMES.tokens, "<function="),
        read_arguments=_read_tagged_arguments(r"<parameter=(?P<key>[^>\s]+)>\n?(?P<value>.*?)\n?</parameter>"),
    ),
    "glm": replace(
        HERMES, signature="<arg_key>", header=rf"\s*{NAME}\s*(?=<arg_key>|</tool_call>)", is_object=False,
        tokens=(*HERMES.tokens, "<arg_key>"),
        read_arguments=_read_tagged_arguments(
            r"<arg_key>\s*(?P<key>.*?)\s*</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>"
        ),
    ),
    "hermes": HERMES,  # Qwen 2.5 and 3, Hermes, SmolLM3 and many others
    "mistral": replace(
        _MISTRAL, signature=rf"\[TOOL_CALLS\]{PROBE_NAME}",
        opening="[TOOL_CALLS]", between="[ARGS]", after="",
        begin=r"\s*\[TOOL_CALLS\]", header=rf"\s*{NAME}(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*(?=\{{)", is_object=False,
        next_call="", last="", tokens=("[TOOL_CALLS]", "[ARGS]"),
    ),
    "mistral-list": _MISTRAL,  # up to the tokenizer of 2024
    "gemma": _GEMMA,
    "functiongemma": replace(
        _GEMMA, signature="<start_function_call>",
        opening='<start_function_call>{"name": "', after="}<end_function_call>",
        begin=r"\s*<start_function_call>", closing="<end_function_call>", read_arguments=_read_lax_json("<escape>"),
        tokens=("<start_function_call>", "<end_function_call>", "<escape>"),
    ),
    "harmony": ToolFormat(  # gpt-oss
        signature=rf"to=functions\.{PROBE_NAME}",
        opening="<|channel|>commentary to=functions.", between=" <|constrain|>json<|message|>", after="<|call|>",
        begin=(
            r"(?:(?:<\|start\|>assistant)?<\|channel\|>\w+\s+|<\|start\|>assistant\s+|\A\s*)to=functions\."
        ),
        header=rf"{NAME}\s*(?:<\|channel\|>\w+)?\s*(?:<\|constrain\|>)?\w*\s*<\|message\|>\s*(?=\S)",
        closing="<|call|>", is_object=False,
        tokens=("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|call|>"),
    ),
    "deepseek": _DEEPSEEK,  # V3.1
    "deepseek-r1": replace(
        _DEEPSEEK, signature="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        opening=f"{_DEEPSEEK.opening}function<｜tool▁sep｜>", between="\n```json\n", after=f"\n```{_DEEPSEEK.after}",
    ),
    "llama3": ToolFormat(
        signature=rf'\{{\s*"name":\s*"{PROBE_NAME}",\s*"parameters"',
        opening='{"name": "', between='", "parameters": ', after="}",
        begin=rf"\A\s*(?:<\|python_tag\|>)?(?={_BARE_HEADER})|\s*<\|python_tag\|>(?=\s*\{{)",
        next_call=rf"\s*;?(?={_BARE_HEADER})", tokens=("<|python_tag|>",),
    ),
}  # fmt: skip
PLAIN_JSON = replace(FORMATS["llama3"], signature="", between='", "arguments": ', tokens=())


def find_tool_format(rendered_call: str, template: str) -> ToolFormat:
    """The format of the call that a template renders, or of the markers in its text; plain JSON without either."""
    if PROBE_NAME in rendered_call:
        found = (each for each in FORMATS.values() if re.search(each.signature, rendered_call))
    else:
        found = (each for each in FORMATS.values() if all(token in template for token in each.tokens))
    return next(found, PLAIN_JSON)
