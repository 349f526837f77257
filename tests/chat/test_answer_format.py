"""The required format of an answer, as a value and in a conversation."""

import json

import pytest

from specchat.chat.events import Failed, Finished, TextDelta
from specchat.chat.request import AnswerFormat, Request
from specchat.errors import UsageError
from specchat.loading.load_engine import load_engine
from specchat.profile.profile_files import load_profile
from tests.each_row import each_row

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}


@each_row(
    "kind, value",
    [("schema", SCHEMA), ("schema", json.dumps(SCHEMA)), ("regex", "[a-z]+"), ("choices", ["yes", "no"])],
)
def test_a_format_is_parsed_from_user_input(kind, value):
    structure = AnswerFormat.parse(kind, value)

    assert AnswerFormat.from_options({structure.kind: structure.value}) == structure


def test_no_format_is_none_and_two_are_an_error():
    assert AnswerFormat.from_options({"schema": None, "regex": "", "choices": ()}) is None
    with pytest.raises(UsageError, match="schema and regex"):
        AnswerFormat.from_options({"schema": SCHEMA, "regex": "a"})


@each_row(
    "kind, value, said",
    [
        ("schema", "{", "not JSON"),
        ("schema", "[1]", "a JSON list"),
        ("schema", 3, "a JSON schema"),
        ("regex", "", "a regular expression"),
        ("choices", [], "choices: give choices"),
        ("choices", ["a", ""], "none of them empty"),
    ],
)
def test_an_invalid_format_is_refused(kind, value, said):
    with pytest.raises(UsageError, match=said):
        AnswerFormat.parse(kind, value)


def test_choices_are_literal_texts():
    assert AnswerFormat.parse("choices", ["a.b", "c|d"]).regex == r"a\.b|c\|d"


@pytest.fixture(scope="module")
def engine():
    return load_engine(load_profile("chat").override({"limits.answer": 60}))


@pytest.mark.dear
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "structure",
    [
        AnswerFormat.parse("schema", SCHEMA),
        AnswerFormat.parse("choices", ["fifteen", "twelve"]),
        AnswerFormat.parse("regex", "[a-f]{9}"),
    ],
    ids=lambda structure: structure.kind,
)
def test_an_answer_has_its_format_and_is_the_same_with_and_without_drafts(engine, structure, temperature):
    def said(variant):
        with engine.create_session() as session:
            events = list(session.ask(Request("Well?", (), None, 7, temperature, variant, answer_format=structure)))
        assert isinstance(events[-1], Finished), events[-1]
        return "".join(event.text for event in events if isinstance(event, TextDelta)), events[-1]

    (plain, _end), (guessed, end) = said("plain"), said("suffix")

    assert plain == guessed
    assert end.finish_reason == "stop"
    match structure.kind:
        case "schema":
            assert set(json.loads(plain)) == {"ok"}
        case "choices":
            assert plain in structure.value
        case "regex":
            assert len(plain) == 9 and set(plain) <= set("abcdef")


def test_an_invalid_schema_fails_before_the_first_token(engine):
    with engine.create_session() as session:
        (failed,) = session.ask(Request("Well?", answer_format=AnswerFormat.parse("schema", {"type": "nonsense"})))

    assert isinstance(failed, Failed)
    assert failed.exit_code == UsageError.exit_code


def node(*, required: list[str], **child: object) -> dict:
    """A node with another node as its child."""
    kind = {"type": "object", "properties": {"name": {"type": "string"}, "child": child}, "required": required}
    return {"$defs": {"node": kind}, "$ref": "#/$defs/node"}


NODE = {"$ref": "#/$defs/node"}


@each_row(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        node(required=["child"], **NODE),
        node(required=["child"], allOf=[NODE]),
        node(required=["child"], type="array", items=NODE, minItems=2),
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    ],
)
def test_a_schema_of_endless_values_is_refused_in_one_line(schema):
    with pytest.raises(UsageError, match="only values without an end") as refused:
        AnswerFormat.parse("schema", schema)

    assert "\n" not in str(refused.value)


@each_row(
    "schema",
    [
        node(required=["name"], **NODE),
        node(required=["child"], anyOf=[NODE, {"type": "null"}]),
        node(required=["child"], type="array", items=NODE),
        {"type": "array", "items": {"$ref": "#"}},
        {
            "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"const": 1}]}},
            "$ref": "#/$defs/a",
        },
        {"$ref": "https://example.org/schema.json"},
        {"type": ["object", "null"], "properties": {"child": {"$ref": "#"}}, "required": ["child"]},
        {"$ref": "#/nowhere"},
    ],
)
def test_a_recursive_schema_with_an_end_is_taken(schema):
    assert AnswerFormat.parse("schema", schema).value == schema


def test_a_schema_that_is_nested_too_deeply_is_refused_in_one_line():
    with pytest.raises(UsageError, match="nested too deeply"):
        AnswerFormat.parse("schema", '{"items":' * 100_000 + "{}" + "}" * 100_000)
