"""A copied file has the same tokens."""

import pytest

from recipes.dialogues import fenced
from recipes.train_tokenizer import END, SPECIAL

from .conftest import CODE, PROSE


@pytest.mark.parametrize("text", [CODE, PROSE, "ä ∀ 🙂\t\r\n  x\n\n\n", "x = 12345\n    y\n        z"])
def test_text_survives_the_round_trip(tokenizer, text):
    assert text == tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False)


def test_the_stop_token_is_0_and_control_tokens_are_single_tokens(tokenizer):
    assert 0 == tokenizer.token_to_id(END)
    assert [[tokenizer.token_to_id(mark)] for mark in SPECIAL] == [tokenizer.encode(mark).ids for mark in SPECIAL]


def test_digits_are_single_tokens(tokenizer):
    assert ["1", "2", "3"] == tokenizer.encode("123").tokens


def test_a_name_has_the_same_tokens_everywhere(tokenizer):
    name = tokenizer.encode("total_price").ids
    for text in ("x = total_price", "(total_price)", "`total_price` ", "return total_price\n", "self.total_price + 1"):
        ids = tokenizer.encode(text).ids
        assert any(ids[start : start + len(name)] == name for start in range(len(ids))), text


def test_an_indentation_run_is_one_token(tokenizer):
    assert ["\n        "] == [tokenizer.decode([token]) for token in tokenizer.encode("a\n        b").ids[1:-1]]


@pytest.mark.parametrize("code", [CODE, "    indented = 1\n", "\n\nx = 1\n"])
def test_a_file_has_the_same_tokens_in_question_and_answer(tokenizer, code):
    answer = tokenizer.encode(fenced(code)).ids
    question = tokenizer.encode(f"Rename `a` to `b`.\n\n{fenced(code)}").ids

    assert answer == question[-len(answer) :]


def test_the_folder_loads_in_transformers_with_its_chat_template(tokenizer_folder):
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(tokenizer_folder)

    text = loaded.apply_chat_template(
        [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}],
        tokenize=False,
        add_generation_prompt=True,
    )

    assert "<|system|>S<|end|><|user|>Q<|end|><|assistant|>" == text
    assert 0 == loaded.eos_token_id
