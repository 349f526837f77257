"""The names of tools, and the arguments of prompts."""

from types import SimpleNamespace

import pytest

from specchat.chat.tools import TOOL_NAME
from specchat_mcp.server_prompts import parse_prompt_arguments
from specchat_mcp.server_tools import tool_name


@pytest.mark.parametrize("name", ["add", "a.b", "ä", "x" * 200, "", "a\x1b[31m b"])
def test_the_name_of_a_tool_is_one_that_every_api_takes(name):
    made = tool_name("git", name)

    assert made.startswith("git__")
    assert len(made) <= 64
    assert TOOL_NAME.fullmatch(made)


def test_names_that_become_alike_stay_different():
    assert 3 == len({tool_name("s", "a.b"), tool_name("s", "a:b"), tool_name("s", "a_b")})
    assert tool_name("s", "a", taken=["s__a"]) != "s__a"


@pytest.mark.parametrize(
    ("names", "text", "values"),
    [
        (("path", "focus"), "a.py its end", {"path": "a.py", "focus": "its end"}),
        (("path", "focus"), "focus='the end' a.py", {"focus": "the end", "path": "a.py"}),
        (("path",), "it's a=b", {"path": "it's a=b"}),
        (("path",), "", {}),
        ((), "", {}),
    ],
)
def test_the_arguments_of_a_prompt_have_a_name_or_a_place(names, text, values):
    prompt = SimpleNamespace(name="p", arguments=[SimpleNamespace(name=name, required=False) for name in names])

    assert values == parse_prompt_arguments(prompt, text)
