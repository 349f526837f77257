"""What a client may offer as a tool, and what a request with tools may ask for."""

import pytest

from specchat.chat.request import Request
from specchat.chat.tools import NO_PARAMETERS, Tool, ToolResult
from specchat.errors import UsageError
from tests.each_row import each_row

READ = Tool.parse("read", "reads a file", {"type": "object", "properties": {"path": {"type": "string"}}})


@each_row(
    "name, description, parameters, message",
    [
        ("", "", None, "a name has 1 to 128"),
        ("two words", "", None, "a name has 1 to 128"),
        (7, "", None, "a name has 1 to 128"),
        ("a", 7, None, "its description must be a text"),
        ("a", "", [], "its parameters must be a JSON schema"),
        ("a", "", {"$ref": "#"}, "."),
    ],
)
def test_a_wrong_tool_is_refused_by_name(name, description, parameters, message):
    with pytest.raises(UsageError, match=message):
        Tool.parse(name, description, parameters)


def test_a_tool_without_parameters_takes_an_empty_object():
    assert NO_PARAMETERS == Tool.parse("now", None, None).parameters


def test_results_of_tools_need_no_question():
    assert Request("", tool_results=(ToolResult("1", "read", "text"),)).tool_results

    with pytest.raises(UsageError, match="the prompt is empty"):
        Request("", tools=(READ,))


def test_a_forced_tool_must_be_among_the_tools():
    assert Request("x", tools=(READ,), tool_choice="read").tool_choice == "read"

    with pytest.raises(UsageError, match="no tool is named 'write'"):
        Request("x", tools=(READ,), tool_choice="write")
