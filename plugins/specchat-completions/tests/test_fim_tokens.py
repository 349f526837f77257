from __future__ import annotations

import json
from pathlib import Path

import pytest

from specchat.chat.fim_request import FimRequest
from specchat.errors import UsageError
from specchat.text.tokenizer import Tokenizer
from specchat.weights.load_options import EMBEDDED
from specchat_completions.fim_tokens import FimTokens, fim_families, find_fim_tokens
from tests.each_row import each_row
from tests.tokenizers_at_hand import SPECIAL, byte_level, sentence_piece

BY_NAME = {family.name: family for family in fim_families()}


def tokenizer_with(folder: Path, name: str) -> Tokenizer:
    family = BY_NAME[name]
    marks = {
        *family.end_tokens,
        family.prefix_token,
        family.suffix_token,
        family.middle_token,
        family.bos_token,
        *family.marker_tokens,
    } - {""}
    if name != "CodeLlama":
        return Tokenizer(byte_level(folder, special=[*SPECIAL, *sorted(marks - set(SPECIAL))]))
    path = sentence_piece(folder) / "tokenizer.json"
    state = json.loads(path.read_text())
    for mark in sorted(marks):
        state["model"]["vocab"][mark] = len(state["model"]["vocab"])
    path.write_text(json.dumps(state))
    return Tokenizer(folder)


def written(fim_tokens: FimTokens, ids: list[int]) -> str:
    names = {token: piece for piece, token in fim_tokens.tokenizer.vocabulary.items()}
    return "".join(f"[{names[token]}]" if token in control(fim_tokens) else names[token] for token in ids)


def control(fim_tokens: FimTokens) -> set[int]:
    family, known = fim_tokens.family, fim_tokens.tokenizer.vocabulary
    return {
        known[mark]
        for mark in (family.prefix_token, family.suffix_token, family.middle_token, family.bos_token)
        if mark in known
    }


@each_row(
    "name, prompt",
    [
        ("CodeGemma", "[<bos>][<|fim_prefix|>]ab[<|fim_suffix|>]er[<|fim_middle|>]"),
        ("Qwen", "[<|fim_prefix|>]ab[<|fim_suffix|>]er[<|fim_middle|>]"),
        ("specchat", "[<|fim_prefix|>][<|fim_suffix|>][<|fim_middle|>]ab"),
        ("StarCoder", "[<fim_prefix>]ab[<fim_suffix>]er[<fim_middle>]"),
        ("SantaCoder", "[<fim-prefix>]ab[<fim-suffix>]er[<fim-middle>]"),
        (
            "DeepSeek-Coder",
            "[<｜begin▁of▁sentence｜>][<｜fim▁begin｜>]ab[<｜fim▁hole｜>]er[<｜fim▁end｜>]",
        ),
        ("CodeLlama", "[<s>][▁<PRE>]▁ab[▁<SUF>]er[▁<MID>]"),
        ("Codestral", "[<s>][[SUFFIX]]er[[PREFIX]]ab"),
    ],
)
def test_every_family_is_detected_by_its_tokens_and_has_its_own_order(tmp_path, name, prompt):
    fim_tokens = find_fim_tokens(tokenizer_with(tmp_path, name))

    assert fim_tokens is not None
    assert fim_tokens.family.name == name
    assert written(fim_tokens, fim_tokens.build_prompt(FimRequest("ab", "er"), 100).token_ids) == prompt
    assert {fim_tokens.tokenizer.vocabulary[end] for end in fim_tokens.family.end_tokens} <= fim_tokens.end_token_ids


def test_a_tokenizer_without_fim_tokens_has_none(tmp_path):
    assert find_fim_tokens(Tokenizer(byte_level(tmp_path))) is None


def test_control_tokens_in_the_text_are_escaped():
    fim_tokens = find_fim_tokens(Tokenizer(EMBEDDED / "target"))
    middle = fim_tokens.tokenizer.vocabulary["<|fim_middle|>"]

    assert fim_tokens.build_prompt(FimRequest("x = '<|fim_middle|>'\n"), 100).token_ids.count(middle) == 1


def test_the_embedded_prompt_ends_with_the_start_of_the_current_line():
    fim_tokens = find_fim_tokens(Tokenizer(EMBEDDED / "target"))
    encode = fim_tokens.tokenizer.encode

    prompt = fim_tokens.build_prompt(FimRequest("a = 1\nb = ", ")\nc = 3\n"), 100).token_ids

    mark = fim_tokens.tokenizer.vocabulary
    assert prompt == [
        mark["<|fim_prefix|>"], *encode("a = 1\n"), mark["<|fim_suffix|>"], *encode("c = 3\n"), mark["<|fim_middle|>"],
        *encode("b = "),
    ]  # fmt: skip


def test_a_long_text_is_cut_far_from_the_gap():
    fim_tokens = find_fim_tokens(Tokenizer(EMBEDDED / "target"))
    before, after = "first\n" + "a\n" * 300 + "near\n", "\nclose\n" + "b\n" * 300 + "last\n"

    ids = fim_tokens.build_prompt(FimRequest(before, after, max_context_tokens=100), 1000).token_ids
    prompt = fim_tokens.tokenizer.decode(ids)

    assert len(ids) <= 100
    assert "near" in prompt
    assert "close" in prompt
    assert "first" not in prompt
    assert "last" not in prompt
    assert prompt.index("near") > 2 * (len(prompt) - prompt.index("close"))


@each_row("wrong", [{"max_tokens": 0}, {"max_context_tokens": 0}, {"max_lines": -1}, {"timeout_seconds": -1.0}])
def test_invalid_limits_are_refused(wrong):
    with pytest.raises(UsageError):
        FimRequest("x", **wrong)


@each_row("name", ["Qwen", "specchat"])
def test_only_the_text_around_the_gap_is_encoded(tmp_path, name):
    fim_tokens, encoded = find_fim_tokens(tokenizer_with(tmp_path, name)), []
    encode = fim_tokens.tokenizer.encode
    fim_tokens.tokenizer.encode = lambda text: encoded.append(len(text)) or encode(text)

    prompt = fim_tokens.build_prompt(FimRequest("a" * 10**6, "b" * 10**6, max_context_tokens=64), 64).token_ids

    assert sum(encoded) < 20_000
    assert len(prompt) <= 64
