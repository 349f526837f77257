"""Grammars over the tokens of a real tokenizer."""

import json
import random
import re

import pytest
import torch

from specchat.errors import UsageError
from specchat.text.llguidance_grammar import REGEX, SCHEMA, TokenGrammar, compile_grammar
from specchat.text.tokenizer import Tokenizer
from specchat.weights.load_options import EMBEDDED
from tests.each_row import each_row

FOLDER = EMBEDDED / "target"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["a", "b c", 'd"e']}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(FOLDER)


def of_schema(schema: object, tokenizer: Tokenizer) -> TokenGrammar:
    return compile_grammar(SCHEMA, json.dumps(schema), tokenizer, tokenizer.vocab_size)


def of_pattern(pattern: str, tokenizer: Tokenizer) -> TokenGrammar:
    return compile_grammar(REGEX, pattern, tokenizer, tokenizer.vocab_size)


def wander(grammar: TokenGrammar, tokenizer: Tokenizer, seed: int) -> str:
    """A text of random allowed tokens, with occasional rollbacks."""
    rng, tokens = random.Random(seed), list[int]()
    for _ in range(2000):
        allowed = grammar.allowed_mask().nonzero()[:, 0].tolist()
        token = rng.choice(allowed)
        assert grammar.advance(token)
        tokens.append(token)
        if tokens[-1] in tokenizer.stop_token_ids:
            if rng.random() < 0.7:
                return tokenizer.decode(tokens[:-1])
            grammar.rollback(1)
            tokens.pop()
        elif rng.random() < 0.1:
            count = rng.randint(1, len(tokens))
            grammar.rollback(count)
            del tokens[-count:]
    raise AssertionError("no stop token")


@each_row("seed", range(12))
def test_every_text_of_a_schema_is_a_valid_document(seed, tokenizer):
    document = json.loads(wander(of_schema(PERSON, tokenizer), tokenizer, seed))

    assert set(document) == {"name", "age", "tags"}
    assert len(document["name"]) <= 12
    assert 0 <= document["age"] <= 130
    assert len(document["tags"]) <= 3 and set(document["tags"]) <= {"a", "b c", 'd"e'}


@each_row("pattern", ["[0-9]{4}-[0-9]{2}", "yes|no|perhaps", "a(b|c)*d", "y+", r"(ein|zwei)ä?"])
@each_row("seed", range(4))
def test_every_text_of_an_expression_matches_it(pattern, seed, tokenizer):
    assert re.fullmatch(pattern, wander(of_pattern(pattern, tokenizer), tokenizer, seed))


def test_a_complete_text_can_only_end_and_can_be_rolled_back(tokenizer):
    grammar = of_pattern("yes|no", tokenizer)
    for token in tokenizer.encode("yes"):
        assert grammar.advance(token)
    end = next(iter(tokenizer.stop_token_ids))

    assert set(grammar.allowed_mask().nonzero()[:, 0].tolist()) == tokenizer.stop_token_ids
    for _ in range(2):
        assert grammar.advance(end)
        assert grammar.advance(end)
        assert not grammar.advance(tokenizer.encode("y")[0])
        grammar.rollback(2)
        assert set(grammar.allowed_mask().nonzero()[:, 0].tolist()) == tokenizer.stop_token_ids
    grammar.rollback(len(tokenizer.encode("yes")))
    assert torch.equal(grammar.allowed_mask(), of_pattern("yes|no", tokenizer).allowed_mask())


def test_a_forbidden_token_is_not_consumed(tokenizer):
    grammar = of_pattern("yes|no", tokenizer)
    before = grammar.allowed_mask()

    assert not grammar.advance(tokenizer.encode("7")[0])
    assert torch.equal(grammar.allowed_mask(), before)


def test_keys_are_forced_tokens(tokenizer):
    grammar = of_schema(PERSON, tokenizer)

    assert tokenizer.decode(grammar.forced_tokens()).startswith('{"name')


@each_row(
    "schema, message",
    [
        ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum (5) is greater than maximum (3)"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "required property 'a'"),
        ({"type": "nonsense"}, "nonsense"),
        ({"not": {"type": "string"}}, "not"),
        ({"$ref": "http://example.org/schema"}, "http://example.org/schema"),
    ],
)
def test_an_unsatisfiable_schema_is_a_one_line_error(schema, message, tokenizer):
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        of_schema(schema, tokenizer)

    assert "\n" not in str(error.value)


@each_row("pattern", ["[0-9", "(?=a)b", "a{2,1}", "\ud800"])
def test_an_invalid_expression_is_a_one_line_error(pattern, tokenizer):
    with pytest.raises(UsageError, match="the expression cannot be used") as error:
        of_pattern(pattern, tokenizer)

    assert "\n" not in str(error.value)
