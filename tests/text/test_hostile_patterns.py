"""Regular expressions of others that take for ever: of a tokenizer, and of the schema of a tool."""

from __future__ import annotations

import json

import pytest

from specchat.app.agent import tool_schemas
from specchat.chat.tools import Tool
from specchat.errors import ModelError, UsageError
from tests import tokenizers_at_hand as at_hand

DOUBLING = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)} | {"a40": True}
SLOW_SCHEMAS = {
    "a pattern": {"properties": {"x": {"pattern": "(a+)+b"}}},
    "a pattern of names": {"patternProperties": {"(a+)+b": {}}},
    "other names": {"patternProperties": {"(a|aa)+b": {}}, "additionalProperties": False},
    "references": {"$ref": "#/$defs/a0", "$defs": DOUBLING},
}
REST = ("a pattern of names", "other names", "references")


@pytest.mark.parametrize("name", ["a pattern", *(pytest.param(each, marks=pytest.mark.full) for each in REST)])
def test_a_schema_that_takes_for_ever_is_refused(name, monkeypatch):
    monkeypatch.setattr(tool_schemas, "CHECK_SECONDS", 1.0)
    arguments = json.dumps({"x": "a" * 60, "a" * 60: 1})
    with pytest.raises(UsageError, match="the schema itself cannot be used: its check takes more than 1 s"):
        tool_schemas.parse_arguments(Tool(name, "", json.dumps(SLOW_SCHEMAS[name])), arguments)


def test_a_tokenizer_that_takes_for_ever_is_refused(monkeypatch, tmp_path):
    from specchat.text import token_encoder
    from specchat.text.tokenizer import Tokenizer

    monkeypatch.setattr(token_encoder, "ENCODE_SECONDS", 0.01)
    found = {}
    for name, pattern in {"gives up": "(a+)+b", "goes on": "(a|aa)+$"}.items():
        folder = at_hand.byte_level(tmp_path / name, "")
        file = folder / "tokenizer.json"
        settings = json.loads(file.read_text())
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        settings["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, settings["pre_tokenizer"]]}
        file.write_text(json.dumps(settings))
        tokenizer = Tokenizer(folder)
        with pytest.raises(ModelError) as caught:
            tokenizer.encode(("a" * 33 + "!") * 3)  # 17 million steps, which end
        found[name] = str(caught.value).removeprefix(f"{folder}: ")

    assert found["gives up"].startswith(("its tokenizer cannot split this text: Onig", "the regular expressions"))
    assert found["goes on"] == "the regular expressions of its tokenizer take for ever on a text"
    with pytest.raises(ModelError, match="take for ever"):
        tokenizer.encode("b")
