from __future__ import annotations

import json
from pathlib import Path

import pytest

from specchat.chat.fim_request import Gap
from specchat.chat.fim_tokens import FAMILIES, Infill, infill_of
from specchat.errors import UsageError
from specchat.models.load import EMBEDDED
from specchat.models.tokenizer import Tokenizer
from tests.tokenizers_at_hand import SPECIAL, byte_level, sentence_piece

BY_NAME = {family.name: family for family in FAMILIES}


def tokenizer_with(folder: Path, name: str) -> Tokenizer:
    family = BY_NAME[name]
    marks = {*family.ends, family.prefix, family.suffix, family.middle, family.first, *family.marks} - {""}
    if name != "CodeLlama":
        return Tokenizer(byte_level(folder, special=[*SPECIAL, *sorted(marks - set(SPECIAL))]))
    path = sentence_piece(folder) / "tokenizer.json"
    state = json.loads(path.read_text())
    for mark in sorted(marks):
        state["model"]["vocab"][mark] = len(state["model"]["vocab"])
    path.write_text(json.dumps(state))
    return Tokenizer(folder)


def written(infill: Infill, ids: list[int]) -> str:
    names = {token: piece for piece, token in infill.tokenizer.vocabulary.items()}
    return "".join(f"[{names[token]}]" if token in control(infill) else names[token] for token in ids)


def control(infill: Infill) -> set[int]:
    family, known = infill.family, infill.tokenizer.vocabulary
    return {known[mark] for mark in (family.prefix, family.suffix, family.middle, family.first) if mark in known}


@pytest.mark.parametrize(
    ("name", "prompt"),
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
def test_every_family_is_known_by_its_tokens_and_asked_in_its_order(tmp_path, name, prompt):
    infill = infill_of(tokenizer_with(tmp_path, name))

    assert infill is not None
    assert infill.family.name == name
    assert written(infill, infill.prompt(Gap("ab", "er"), 100)) == prompt
    assert {infill.tokenizer.vocabulary[end] for end in infill.family.ends} <= infill.ends


def test_a_tokenizer_without_such_tokens_fills_no_gaps(tmp_path):
    assert infill_of(Tokenizer(byte_level(tmp_path))) is None


def test_what_looks_like_a_control_token_in_a_text_is_none():
    infill = infill_of(Tokenizer(EMBEDDED / "target"))
    middle = infill.tokenizer.vocabulary["<|fim_middle|>"]

    assert infill.prompt(Gap("x = '<|fim_middle|>'\n"), 100).count(middle) == 1


def test_a_line_that_has_begun_is_where_the_embedded_filling_begins():
    infill = infill_of(Tokenizer(EMBEDDED / "target"))
    encode = infill.tokenizer.encode

    prompt = infill.prompt(Gap("a = 1\nb = ", ")\nc = 3\n"), 100)

    mark = infill.tokenizer.vocabulary
    assert prompt == [
        mark["<|fim_prefix|>"], *encode("a = 1\n"), mark["<|fim_suffix|>"], *encode("c = 3\n"), mark["<|fim_middle|>"],
        *encode("b = "),
    ]  # fmt: skip


def test_too_much_text_loses_what_is_far_from_the_gap():
    infill = infill_of(Tokenizer(EMBEDDED / "target"))
    before, after = "first\n" + "a\n" * 300 + "near\n", "\nclose\n" + "b\n" * 300 + "last\n"

    prompt = infill.tokenizer.decode(infill.prompt(Gap(before, after, context=100), 1000))

    assert len(infill.prompt(Gap(before, after, context=100), 1000)) <= 100
    assert "near" in prompt
    assert "close" in prompt
    assert "first" not in prompt
    assert "last" not in prompt
    assert prompt.index("near") > 2 * (len(prompt) - prompt.index("close"))


@pytest.mark.parametrize("wrong", [{"max_tokens": 0}, {"context": 0}, {"lines": -1}, {"seconds": -1.0}])
def test_a_gap_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(UsageError):
        Gap("x", **wrong)
