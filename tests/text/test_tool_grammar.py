"""A forced call in the syntax of every family, whatever of the allowed tokens the model chooses."""

from __future__ import annotations

import json
import random

import pytest

from specchat.text.answer_stream import AnswerStream
from specchat.text.thinking import TEXT
from specchat.text.tokenizer import Tokenizer
from specchat.text.tool_calls import TOOL_CALL
from specchat.text.tool_formats import FORMATS, PLAIN_JSON
from specchat.text.tool_grammar import call_grammar, closed_in_time, free_call_grammar
from tests import tokenizers_at_hand as at_hand
from tests.each_row import each_row

ALL_FORMATS = {**FORMATS, "plain": PLAIN_JSON}
EVERY_FORMAT = each_row("name", ALL_FORMATS)
SCHEMAS = {
    "write": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "list": {"type": "object", "properties": {"all": {"type": "boolean"}, "deep": {"type": "array"}}},
}
LIMIT = 300


def tokenizer_of(name: str, folder, extra: tuple[str, ...] = ()) -> Tokenizer:
    markers = [token for token in ALL_FORMATS[name].tokens if token.startswith(("<", "["))]
    tokenizer = Tokenizer(at_hand.byte_level(folder, special=[*at_hand.SPECIAL, *markers, *extra]))
    tokenizer.chat.tool_format = ALL_FORMATS[name]  # as if its template rendered such calls
    return tokenizer


def walk(grammar, stops: frozenset[int], seed: int) -> list[int]:
    """Tokens that the grammar allows, chosen at random, up to one that ends the answer."""
    chosen, tokens = random.Random(seed), list[int]()
    while not tokens or tokens[-1] not in stops:
        allowed = grammar.allowed_mask().nonzero().flatten().tolist()
        tokens.append(chosen.choice(allowed))
        assert grammar.advance(tokens[-1])
    return tokens


@pytest.mark.full
@EVERY_FORMAT
@each_row("seed", range(3))
def test_whatever_is_chosen_is_one_valid_call_within_the_limit(name, seed, tmp_path):
    tokenizer = tokenizer_of(name, tmp_path)
    calls = call_grammar(tokenizer, SCHEMAS, tokenizer.vocab_size)
    grammar = closed_in_time(calls, SCHEMAS.values(), tokenizer, tokenizer.vocab_size, LIMIT)
    tokens = walk(grammar, tokenizer.stop_token_ids, seed)

    stream = AnswerStream(tokenizer, is_continuation=False, tool_schemas=SCHEMAS)
    parts = [*stream.push(tokens[:-1]).parts, *stream.flush().parts]

    assert len(tokens) <= LIMIT
    assert {part.kind for part in parts} == {TOOL_CALL}
    assert parts[0].call_name in SCHEMAS
    arguments = json.loads("".join(part.text for part in parts))
    assert set(arguments) <= set(SCHEMAS[parts[0].call_name]["properties"])


FREE_FORMATS = [name for name in ALL_FORMATS if name in ("hermes", "mistral", "harmony")]


@each_row("name", FREE_FORMATS)
@each_row("seed", range(3))
def test_in_free_text_a_call_that_begins_is_valid_and_text_is_free_again_after_it(name, seed, tmp_path):
    tokenizer = tokenizer_of(name, tmp_path)
    tokenizer.chat.thinking = None
    before = tokenizer.encode(f"Let me see. {tokenizer.chat.tool_format.marker}", parse_special=True)
    straight, winding = (free_call_grammar(tokenizer, SCHEMAS, tokenizer.vocab_size, None) for _ in range(2))
    chosen, tokens = random.Random(seed), list[int]()
    while len(tokens) < 20 * LIMIT:
        if len(tokens) < len(before):
            assert straight.allowed_mask().all()
            tokens.append(before[len(tokens)])
        elif straight.allowed_mask().all():
            break
        else:
            allowed = straight.allowed_mask().nonzero().flatten().tolist()
            quotes = [token for token in allowed if tokenizer.token_bytes(token) in (b'"', b"]", b"}")]
            tokens.append(chosen.choice(quotes or allowed))
        assert straight.advance(tokens[-1]) and winding.advance(tokens[-1])
        winding.rollback(sum(winding.advance(token) for token in [*before, 7, *tokens[-3:]]))
        assert (winding.allowed_mask() == straight.allowed_mask()).all()

    stream = AnswerStream(tokenizer, is_continuation=False, tool_schemas=SCHEMAS)
    parts = [*stream.push(tokens).parts, *stream.flush().parts]
    assert [part.kind for part in parts] == [TEXT, TOOL_CALL]
    assert parts[1].call_name in SCHEMAS
    assert isinstance(json.loads(parts[1].text), dict)


def test_without_a_marker_among_the_draft_tokens_no_mask_is_needed(tmp_path):
    tokenizer = tokenizer_of("hermes", tmp_path)
    grammar = free_call_grammar(tokenizer, SCHEMAS, tokenizer.vocab_size, None)
    words, marker = tokenizer.encode("a quick fox"), tokenizer.vocabulary["<tool_call>"]

    assert grammar.is_free(words)
    assert not grammar.is_free([*words, marker])
    assert grammar.advance(marker)
    assert not grammar.is_free([])


@each_row("name", sorted(set(ALL_FORMATS) - set(FREE_FORMATS)))
def test_where_no_marker_tells_a_call_the_text_stays_free(name, tmp_path):
    assert free_call_grammar(tokenizer_of(name, tmp_path), SCHEMAS, 500, None) is None
