"""The prompt of models without fill-in-the-middle tokens, and where their completions end."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors

from specchat.chat.fim_request import FimRequest
from specchat.text.tokenizer import Tokenizer
from specchat_completions.fim_tokens import Continuation, is_at_line_end, is_block_over
from tests.each_row import each_row
from tests.tokenizers_at_hand import byte_level


@pytest.fixture
def spaced(tmp_path):
    """A tokenizer with the token " x", as most have for every word, and with a token that begins each text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: index for index, piece in enumerate(["<s>", *alphabet, "Ġx"])}
    backend = Backend(models.BPE(vocabulary, [("Ġ", "x")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<s>"])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({}))
    return Tokenizer(tmp_path)


def test_a_last_space_that_belongs_to_the_next_word_is_left_to_the_model(spaced):
    prompt = Continuation(spaced).build_prompt(FimRequest("a = "), 100)

    assert spaced.decode(prompt.token_ids) == "a ="
    assert prompt.repeated_text == " "


def test_a_space_with_a_token_of_its_own_stays(tmp_path):
    tokenizer = Tokenizer(byte_level(tmp_path))
    continuation = Continuation(tokenizer)
    tokenizer.encode = lambda text: list(text.encode())  # every character is a token

    prompt = continuation.build_prompt(FimRequest("a = "), 100)

    assert bytes(prompt.token_ids) == b"a = "
    assert prompt.repeated_text == ""


def test_the_prompt_begins_with_the_token_that_the_model_expects_and_keeps_the_nearest_text(spaced):
    prompt = Continuation(spaced).build_prompt(FimRequest("far away " * 50 + "near"), 5)

    assert prompt.token_ids[0] == spaced.vocabulary["<s>"]
    assert spaced.decode(prompt.token_ids) == "near"


@each_row(
    "suffix, is_end", [("", True), ("\nx", True), (")\n", True), ('"):  \n', True), ("x\n", False), (" + 1", False)]
)
def test_closing_brackets_may_follow_a_line_end(suffix, is_end):
    assert is_at_line_end(FimRequest("a", suffix)) == is_end


@each_row(
    "prefix, text, is_over",
    [
        ("def f():\n    ", "return 1\n", False),
        ("def f():\n    ", "return 1\n\ndef g", False),  # that line is not complete
        ("def f():\n    ", "return 1\n\ndef g():\n", True),
        ("def f():", "\n    return 1\nx = 2\n", False),
        ("    def f():\n        ", "\n        return 1\n", False),
    ],
)
def test_a_block_is_over_after_a_line_with_less_indentation(prefix, text, is_over):
    assert is_block_over(prefix, text) == is_over
