"""Forms of answers over the tokens of a real tokenizer."""

import json
import random
import re

import pytest
import torch

from specchat.errors import UsageError
from specchat.models.llguidance_grammar import TokenGrammar, json_schema_grammar, regex_grammar
from specchat.models.load import EMBEDDED
from specchat.models.tokenizer import Tokenizer

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
    return json_schema_grammar(json.dumps(schema), FOLDER, tokenizer.vocab_size, tokenizer.stop_token_ids)


def of_pattern(pattern: str, tokenizer: Tokenizer) -> TokenGrammar:
    return regex_grammar(pattern, FOLDER, tokenizer.vocab_size, tokenizer.stop_token_ids)


def wander(grammar: TokenGrammar, tokenizer: Tokenizer, seed: int) -> str:
    """A text of tokens drawn from what is allowed, now and then going back a few; short words are likelier."""
    dice, read = random.Random(seed), list[int]()
    for _ in range(2000):
        allowed = grammar.allowed_mask().nonzero()[:, 0].tolist()
        token = dice.choice(allowed)
        assert grammar.advance(token)
        read.append(token)
        if read[-1] in tokenizer.stop_token_ids:
            if dice.random() < 0.7:
                return tokenizer.decode(read[:-1])
            grammar.rollback(1)
            read.pop()
        elif dice.random() < 0.1:
            back = dice.randint(1, len(read))
            grammar.rollback(back)
            del read[-back:]
    raise AssertionError("never came to an end")


@pytest.mark.parametrize("seed", range(12))
def test_every_text_of_a_schema_is_such_a_document(seed, tokenizer):
    document = json.loads(wander(of_schema(PERSON, tokenizer), tokenizer, seed))

    assert set(document) == {"name", "age", "tags"}
    assert len(document["name"]) <= 12
    assert 0 <= document["age"] <= 130
    assert len(document["tags"]) <= 3 and set(document["tags"]) <= {"a", "b c", 'd"e'}


@pytest.mark.parametrize("pattern", ["[0-9]{4}-[0-9]{2}", "yes|no|perhaps", "a(b|c)*d", "y+", r"(ein|zwei)ä?"])
@pytest.mark.parametrize("seed", range(4))
def test_every_text_of_an_expression_matches_it(pattern, seed, tokenizer):
    assert re.fullmatch(pattern, wander(of_pattern(pattern, tokenizer), tokenizer, seed))


def test_a_whole_text_can_only_end_and_can_be_taken_back(tokenizer):
    grammar = of_pattern("yes|no", tokenizer)
    for token in tokenizer.encode("yes"):
        assert grammar.advance(token)
    end = next(iter(tokenizer.stop))

    assert set(grammar.allowed_mask().nonzero()[:, 0].tolist()) == tokenizer.stop
    for _ in range(2):
        assert grammar.advance(end)
        assert grammar.advance(end)
        assert not grammar.advance(tokenizer.encode("y")[0])
        grammar.rollback(2)
        assert set(grammar.allowed_mask().nonzero()[:, 0].tolist()) == tokenizer.stop
    grammar.rollback(len(tokenizer.encode("yes")))
    assert torch.equal(grammar.allowed_mask(), of_pattern("yes|no", tokenizer).allowed_mask())


def test_what_is_forbidden_is_not_read(tokenizer):
    grammar = of_pattern("yes|no", tokenizer)
    before = grammar.allowed_mask()

    assert not grammar.advance(tokenizer.encode("7")[0])
    assert torch.equal(grammar.allowed_mask(), before)


def test_keys_follow_from_each_other(tokenizer):
    grammar = of_schema(PERSON, tokenizer)

    assert tokenizer.decode(grammar.forced_tokens()).startswith('{"name')


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum (5) is greater than maximum (3)"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "required property 'a'"),
        ({"type": "nonsense"}, "nonsense"),
        ({"not": {"type": "string"}}, "not"),
        ({"$ref": "http://example.org/schema"}, "http://example.org/schema"),
    ],
)
def test_a_schema_that_nothing_satisfies_is_refused_in_a_line(schema, said, tokenizer):
    with pytest.raises(UsageError, match=re.escape(said)) as error:
        of_schema(schema, tokenizer)

    assert "\n" not in str(error.value)


@pytest.mark.parametrize("pattern", ["[0-9", "(?=a)b", "a{2,1}"])
def test_an_expression_that_is_none_is_refused_in_a_line(pattern, tokenizer):
    with pytest.raises(UsageError, match="the expression cannot be used") as error:
        of_pattern(pattern, tokenizer)

    assert "\n" not in str(error.value)


def test_without_the_library_a_line_says_what_to_install(monkeypatch, tokenizer):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)

    with pytest.raises(UsageError, match=re.escape("pip install 'specchat[structured]'")):
        of_pattern("a", tokenizer)
