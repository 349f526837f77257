"""Tool calls and results as messages of a prompt, for chat templates with tools and for those without.

A model whose template has no tools reads in the system prompt which there are and how to call them, and its calls and
their results are texts of answers and questions. Knows no model.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from specchat.chat.tools import Tool, ToolCall, ToolResult
from specchat.own_tables import own_tables
from specchat.text.chat_format import Message
from specchat.text.tool_formats import HERMES, ToolFormat

NOT_RUN = "This call was not run."  # templates want a result of every call
DESCRIPTIONS: Mapping[str, str] = own_tables(__file__)


def describe_tools(tools: Sequence[Tool], answer_tool: str = "") -> str:
    """What a model without a template for tools is told about them: one line of JSON each.

    With a tool that answers, the grammar knows the schemas, and a line is "- read(path, lines): Read a file."
    """
    if answer_tool:
        lines = (f"- {tool.name}({', '.join(tool.schema.get('properties', {}))}): {tool.description}" for tool in tools)
        return DESCRIPTIONS["short"].format(tools="\n".join(lines), answer_tool=answer_tool)
    described = ({"name": tool.name, "description": tool.description, "parameters": tool.schema} for tool in tools)
    return DESCRIPTIONS["whole"].format(tools="\n".join(json.dumps(each, ensure_ascii=False) for each in described))


def answered_calls(calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> list[ToolResult]:
    """A result of every call in their order, and then the results that belong to no call."""
    by_id = {result.call_id: result for result in results}
    answers = [by_id.pop(call.id, None) or ToolResult(call.id, call.name, NOT_RUN) for call in calls]
    return [*answers, *by_id.values()]


def result_messages(results: Sequence[ToolResult], tool_format: ToolFormat) -> list[Message]:
    return [
        {"role": "tool", "name": each.name, "tool_call_id": template_id(each.call_id, tool_format),
         "content": result_text(each)}
        for each in results
    ]  # fmt: skip


def call_fields(calls: Sequence[ToolCall], tool_format: ToolFormat) -> list[dict[str, Any]]:
    """The calls of an answer, as chat templates read them."""
    return [
        {"type": "function", "id": template_id(call.id, tool_format),
         "function": {"name": call.name, "arguments": arguments_of(call)}}
        for call in calls
    ]  # fmt: skip


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """The arguments as an object, which every template can write; of invalid JSON, the text in an object."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        return {"invalid_json": call.arguments}
    return arguments if isinstance(arguments, dict) else {"value": arguments}


def template_id(call_id: str, tool_format: ToolFormat) -> str:
    """The id of a call as the template wants it: some refuse those of another length."""
    if not tool_format.id_length:
        return call_id
    return blake2b(call_id.encode(), digest_size=16).hexdigest()[: tool_format.id_length]


def result_text(result: ToolResult) -> str:
    """What the model reads of a result; templates have no field for an error."""
    return f"Error: {result.text}" if result.is_error else result.text


def spell_out(messages: Sequence[Message]) -> list[Message]:
    """The messages without calls and results, for a template that has no tools: they become text in Hermes form."""
    texts_only: list[Message] = []
    for message in messages:
        content = str(message["content"])
        if calls := message.get("tool_calls"):
            content = "\n".join([*([content] if content else []), *map(_call_text, calls)])
        if message["role"] == "tool":
            content = f"<tool_response>\n{content}\n</tool_response>"
        role = "user" if message["role"] == "tool" else message["role"]
        kept = {name: value for name, value in message.items() if name == "thinking"}
        # Templates want a question and an answer.
        if role == "user" and texts_only and texts_only[-1]["role"] == "user":
            content = f"{texts_only.pop()['content']}\n{content}"
        texts_only.append({"role": role, "content": content, **kept})
    return texts_only


def _call_text(call: dict[str, Any]) -> str:
    function = call["function"]
    return HERMES.call_text(function["name"], json.dumps(function["arguments"], ensure_ascii=False))
