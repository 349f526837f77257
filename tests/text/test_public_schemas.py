"""Schemas as the documentation of other projects has them: each answer under one is valid, or it is refused in words.

Written after the public pages of OpenAI, Anthropic, Ollama, pydantic, instructor, LangChain, JSON Schema and GitHub.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from specchat.errors import UsageError
from specchat.text.closed_schema import closed
from specchat.text.llguidance_grammar import SCHEMA, compile_grammar
from specchat.text.tokenizer import Tokenizer
from specchat.text.tool_grammar import call_grammar, closed_in_time
from tests import tokenizers_at_hand as at_hand
from tests.each_row import each_row

jsonschema = pytest.importorskip("jsonschema")
LIMIT = 400
TEXT, NUMBER, INTEGER, FLAG = ({"type": kind} for kind in ("string", "number", "integer", "boolean"))


def thing(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required or properties)}


def titled(kind: str, title: str, **more: Any) -> dict[str, Any]:
    """As pydantic writes a field."""
    return {"title": title, "type": kind, **more}


def many(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def maybe(schema: Any) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def one_of(*values: Any) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


STEP = thing(explanation=TEXT, output=TEXT)
UI = {
    "$defs": {}, "type": "object", "additionalProperties": False, "required": ["type", "label", "children"],
    "properties": {"type": one_of("div", "button", "form"), "label": TEXT, "children": many({"$ref": "#"})},
}  # fmt: skip
LINKED = {
    "$defs": {"node": thing(value=NUMBER, next=maybe({"$ref": "#/$defs/node"}))},
    **thing(list={"$ref": "#/$defs/node"}),
}
ADDRESS = {"title": "Address", **thing(street=titled("string", "Street"), city=titled("string", "City"))}
CAT = thing(kind={"const": "cat", "type": "string"}, lives=INTEGER)
DOG = thing(kind={"const": "dog", "type": "string"}, barks=FLAG)
PUBLIC: dict[str, Any] = {
    # OpenAI: structured outputs
    "calendar event": thing(name=TEXT, date=TEXT, participants=many(TEXT)),
    "maths": thing(steps=many(STEP), final_answer=TEXT),
    "research paper": thing(title=TEXT, authors=many(TEXT), abstract=TEXT, keywords=many(TEXT)),
    "user interface": UI,
    "linked list": LINKED,
    "moderation": thing(is_violating=FLAG, category=maybe(one_of("violence", "sexual", "self_harm")), why=maybe(TEXT)),
    "item union": thing(item={"anyOf": [thing(name=TEXT, age=NUMBER), thing(number=TEXT, street=TEXT, city=TEXT)]}),
    "bounds": thing(temperature={**NUMBER, "minimum": -130, "maximum": 130}, code={**TEXT, "pattern": "^[A-Z]{3}$"}),
    "strict weather": {**thing(location=TEXT, units=one_of("celsius", "fahrenheit")), "additionalProperties": False},
    "two enums": thing("unit", unit={"type": ["string", "null"], "enum": ["F", "C", None]}, place=TEXT),
    # Anthropic: tools and structured outputs
    "contact": thing(name=TEXT, email={**TEXT, "format": "email"}, plan=TEXT, demo_requested=FLAG),
    "stock price": thing("ticker", ticker={**TEXT, "description": "The symbol"}, day={**TEXT, "format": "date"}),
    "picture": thing(key_colors=many(thing(r=NUMBER, g=NUMBER, b=NUMBER, name=TEXT), maxItems=4), year=INTEGER),
    "sentiment scores": thing(positive={**NUMBER, "minimum": 0, "maximum": 1}, negative=NUMBER, neutral=NUMBER),
    # Ollama: structured outputs
    "country": thing(name=TEXT, capital=TEXT, languages=many(TEXT)),
    "pets": {
        "$defs": {"Pet": thing("name", "animal", "age", name=TEXT, animal=TEXT, age=INTEGER, color=maybe(TEXT))},
        **thing(pets=many({"$ref": "#/$defs/Pet"})),
    },
    "age and availability": thing(age=INTEGER, available=FLAG),
    "friends": thing(friends=many(thing(name=TEXT, age=INTEGER, is_available=FLAG))),
    "objects in a picture": thing(
        summary=TEXT, objects=many(thing(name=TEXT, confidence=NUMBER, attributes=TEXT)), scene=TEXT,
        time_of_day=one_of("Morning", "Afternoon", "Evening", "Night"), text_content=maybe(TEXT),
    ),
    # models of pydantic
    "user": {
        "title": "User",
        **thing("id", id=titled("integer", "Id"), name=titled("string", "Name", default="John"),
                signup_ts={"anyOf": [{**TEXT, "format": "date-time"}, {"type": "null"}], "default": None}),
    },
    "nested model": {"$defs": {"Address": ADDRESS}, **thing(name=TEXT, home={"$ref": "#/$defs/Address"})},
    "tagged union": thing(pet={"anyOf": [CAT, DOG]}),
    "discriminator": {
        "$defs": {"Cat": CAT, "Dog": DOG},
        **thing(pet={
            "discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}, "propertyName": "kind"},
            "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
        }),
    },
    "enumeration": {"$defs": {"Fruit": {"enum": ["pear", "banana"], "title": "Fruit", "type": "string"}},
                    **thing(fruit={"$ref": "#/$defs/Fruit"})},
    "dictionary of numbers": {"type": "object", "additionalProperties": INTEGER},
    "tuple": thing(point={"type": "array", "prefixItems": [NUMBER, NUMBER], "minItems": 2, "maxItems": 2}),
    "constrained": thing(
        short={**TEXT, "maxLength": 10}, long={**TEXT, "minLength": 3}, positive={**INTEGER, "exclusiveMinimum": 0},
        some=many(INTEGER, minItems=1, maxItems=3),
    ),
    "identifiers": thing(id={**TEXT, "format": "uuid"}, at={**TEXT, "format": "time"}, ip={**TEXT, "format": "ipv4"}),
    "self reference": {"$defs": {"Tree": thing("name", name=TEXT, child=maybe({"$ref": "#/$defs/Tree"}))},
                       "$ref": "#/$defs/Tree"},
    "literal": thing(version={"const": 1}, mode={"const": "fast"}),
    "all optional": {"type": "object", "properties": {"a": maybe(TEXT), "b": maybe(INTEGER)}},
    # instructor
    "user detail": {"description": "Correctly extracted", **thing(name=TEXT, age=INTEGER)},
    "classification": thing(chain_of_thought=TEXT, label=one_of("spam", "not_spam")),
    "labels": thing(labels=many(one_of("tech", "billing", "general"))),
    "knowledge graph": thing(
        nodes=many(thing(id=INTEGER, label=TEXT, color=TEXT)),
        edges=many(thing(source=INTEGER, target=INTEGER, label=TEXT)),
    ),
    "maybe": thing("error", result=maybe(thing(age=INTEGER, name=TEXT)), error=FLAG, message=maybe(TEXT)),
    "citations": thing(question=TEXT, answer=many(thing(fact=TEXT, substring_quote=many(TEXT)))),
    "query plan": thing(query_graph=many(thing(id=INTEGER, question=TEXT, dependencies=many(INTEGER)))),
    # LangChain, JSON Schema, GitHub
    "joke": {"title": "Joke", **thing("setup", "punchline", setup=TEXT, punchline=TEXT, rating=maybe(INTEGER))},
    "person": {"$id": "https://example.com/person.schema.json", "$schema": "https://json-schema.org/draft/2020-12/schema",
               **thing("age", firstName=TEXT, lastName=TEXT, age={**INTEGER, "minimum": 0})},
    "coordinates": thing(latitude={**NUMBER, "minimum": -90, "maximum": 90},
                         longitude={**NUMBER, "minimum": -180, "maximum": 180}),
    "fruits": {"type": "object", "properties": {"fruits": many(TEXT), "vegetables": many({"$ref": "#/$defs/veggie"})},
               "$defs": {"veggie": thing(veggieName=TEXT, veggieLike=FLAG)}},
    "any object": {"type": "object"},
    "list of texts": many(TEXT),
    "issue": thing("title", title=TEXT, labels=many(TEXT), milestone={"type": ["string", "integer", "null"]}),
    "a number": NUMBER,
    "one of two": {"oneOf": [thing(a=TEXT), thing(b=TEXT)]},
    "open object": {**thing(name=TEXT), "additionalProperties": True},
}  # fmt: skip
REFUSED = {
    "conditions": {"type": "object", "properties": {"a": TEXT}, "if": {"required": ["a"]}, "then": {"required": ["b"]}},
    "denied": {"not": {"type": "string"}},
    "look-ahead": {"type": "string", "pattern": "^(?=.*[A-Z]).+$"},
    "names": {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}},
    "another file": {"$ref": "https://example.org/other.json"},
    "contained": {"type": "array", "contains": {"type": "integer"}},
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(at_hand.byte_level(tmp_path_factory.mktemp("bytes"), special=at_hand.SPECIAL))


def walk(grammar: Any, tokenizer: Tokenizer, seed: int) -> str:
    """A text as a model of random weights writes it, up to the token that ends it."""
    chosen, tokens = random.Random(seed), list[int]()
    while not tokens or tokens[-1] not in tokenizer.stop_token_ids:
        tokens.append(chosen.choice(grammar.allowed_mask().nonzero().flatten().tolist()))
        assert grammar.advance(tokens[-1]) and len(tokens) <= LIMIT
    return b"".join(map(tokenizer.token_bytes, tokens[:-1])).decode(errors="replace")


def grammar_of(schema: dict[str, Any], tokenizer: Tokenizer) -> Any:
    grammar = compile_grammar(SCHEMA, json.dumps(closed(schema)), tokenizer, tokenizer.vocab_size)
    return closed_in_time(grammar, [schema], tokenizer, tokenizer.vocab_size, LIMIT)


@each_row("name", PUBLIC, shares=3)
def test_an_answer_of_a_random_model_is_valid_and_ends_before_its_limit(name, tokenizer):
    for seed in range(2):
        value = json.loads(walk(grammar_of(PUBLIC[name], tokenizer), tokenizer, seed))
        jsonschema.validate(value, PUBLIC[name])


def test_properties_are_those_of_the_schema_unless_it_asks_for_others(tokenizer):
    for seed in range(5):
        named = json.loads(walk(grammar_of(thing("a", a=TEXT, b=thing(c=INTEGER)), tokenizer), tokenizer, seed))
        assert {*named} <= {"a", "b"} and {*named.get("b", {})} <= {"c"}
    invented = (json.loads(walk(grammar_of(PUBLIC["open object"], tokenizer), tokenizer, seed)) for seed in range(5))
    assert any({"name"} < {*value} for value in invented)


@each_row("name", REFUSED)
def test_what_no_grammar_follows_is_refused_in_one_sentence(name, tokenizer):
    with pytest.raises(UsageError, match="the schema cannot be used: ") as refused:
        grammar_of(REFUSED[name], tokenizer)

    assert "\n" not in str(refused.value)


@each_row("required", [True, "a", [5], [{}], ["b"], None])
def test_a_list_of_required_properties_may_be_anything(required):
    """Schemas of tools come from anywhere: those with names that they do not describe stay open."""
    schema = {"type": "object", "properties": {"a": TEXT}, "required": required}

    assert ("additionalProperties" not in closed(schema)) == (required == ["b"])


def test_a_bad_schema_of_one_tool_leaves_the_grammar_to_the_others(tokenizer):
    good = thing(a={"enum": ["x", "y"]})
    grammar = call_grammar(tokenizer, {"good": good, **REFUSED}, tokenizer.vocab_size)
    text = tokenizer.chat.tool_format.opening + "good" + tokenizer.chat.tool_format.between + '{"a": "z'

    taken = [grammar.advance(token) for token in tokenizer.encode(text, parse_special=True)]

    assert all(taken[:-1]) and not taken[-1]
