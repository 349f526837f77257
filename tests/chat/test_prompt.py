"""The tokens of a conversation are only extended, unless a template changes the past."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

import pytest

from specchat.chat.attachments import with_attachments
from specchat.chat.prompt import NextPrompt, as_read_by, build_next_prompt
from specchat.chat.request import EDIT_TASKS, Attachment, Request
from specchat.chat.transcript import Turn
from specchat.text.tokenizer import Tokenizer
from tests import tokenizers_at_hand as at_hand
from tests.each_row import each_row

SYSTEM = "Be brief."


@pytest.fixture(params=["byte_level", "sentence_piece"])
def tokenizer(request, tmp_path) -> Tokenizer:
    return Tokenizer(getattr(at_hand, request.param)(tmp_path))


def spelled_out(tokenizer: Tokenizer, text: str) -> list[int]:
    """The longest tokenization of a text, which no encoder returns."""
    return [
        token for character in text for token in tokenizer.encode(character) if tokenizer.token_bytes(token) != b" "
    ]


def answered(tokenizer: Tokenizer, question: str, answer: str, ends: bool = True, turns: tuple[Turn, ...] = ()) -> Turn:
    """A turn whose answer has other tokens than its encoded text."""
    prompt = build_next_prompt(tokenizer, SYSTEM, turns, Request(question))
    ids = spelled_out(tokenizer, answer) + ([tokenizer.vocabulary["<|end|>"]] if ends else [])
    return Turn(question, (), tuple(prompt.token_ids), answer, tuple(ids), prompt.rendered_prompt, is_finished=ends)


def common_prefix_length(turn: Turn, prompt: NextPrompt) -> int:
    """How many tokens of a prompt the KV cache has after this turn."""
    pairs = zip(turn.token_ids, prompt.token_ids, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def test_a_first_prompt_is_the_rendered_template(tokenizer):
    prompt = build_next_prompt(tokenizer, SYSTEM, [], Request("Why?"))

    assert prompt.rendered_prompt == "<|system|>\nBe brief.<|end|>\n<|user|>\nWhy?<|end|>\n<|assistant|>\n"
    assert prompt.token_ids == tokenizer.encode(prompt.rendered_prompt, parse_special=True)


@pytest.mark.parametrize("ends", [True, False])
def test_an_answer_is_never_encoded_again(tokenizer, ends):
    turn = answered(tokenizer, "What?", "afoxisquick", ends)
    assert list(turn.answer_ids)[:4] != tokenizer.encode(turn.answer)[:4]

    prompt = build_next_prompt(tokenizer, SYSTEM, [turn], Request("Why?"))

    assert tuple(prompt.token_ids[: len(turn.token_ids)]) == turn.token_ids
    assert common_prefix_length(turn, prompt) == len(turn.token_ids)
    assert prompt.token_ids.count(tokenizer.vocabulary["<|end|>"]) == 4
    assert prompt.rendered_prompt.endswith("afoxisquick<|end|>\n<|user|>\nWhy?<|end|>\n<|assistant|>\n")


def test_three_turns_only_append_tokens(tokenizer):
    turns: tuple[Turn, ...] = ()
    for question in ("What?", "Why?", "And <|end|>?"):
        turn = answered(tokenizer, question, "thefox", turns=turns)
        assert not turns or turn.prompt_ids[: len(turns[-1].token_ids)] == turns[-1].token_ids
        turns = (*turns, turn)


def test_an_end_token_that_the_template_does_not_render_is_removed(tmp_path):
    tokenizer = Tokenizer(at_hand.byte_level(tmp_path, special=[*at_hand.SPECIAL, "<|eot|>"]))
    tokenizer.stop_token_ids |= {tokenizer.vocabulary["<|eot|>"]}
    turn = answered(tokenizer, "What?", "fox", ends=False)
    turn = replace(turn, answer_ids=(*turn.answer_ids, tokenizer.vocabulary["<|eot|>"]))

    prompt = build_next_prompt(tokenizer, SYSTEM, [turn], Request("Why?"))

    assert common_prefix_length(turn, prompt) == len(turn.token_ids) - 1
    assert tokenizer.vocabulary["<|eot|>"] not in prompt.token_ids


def test_an_answer_may_contain_the_text_of_a_control_token(tokenizer):
    turn = answered(tokenizer, "What?", "a<|end|>b")

    assert common_prefix_length(turn, build_next_prompt(tokenizer, SYSTEM, [turn], Request("Why?"))) == len(
        turn.token_ids
    )


@each_row(
    "template, answer, rewritten",
    [(at_hand.TRIMMING, "fox\n\n", "fox<|end|>"), (at_hand.FORGETFUL, "hm</think>fox", "<|assistant|>\nfox<|end|>")],
)
def test_a_template_that_changes_the_past_is_encoded_again(tmp_path, template, answer, rewritten):
    tokenizer = Tokenizer(at_hand.byte_level(tmp_path, template))
    turn = answered(tokenizer, "What?", answer)

    prompt = build_next_prompt(tokenizer, SYSTEM, [turn], Request("Why?"))

    assert rewritten in prompt.rendered_prompt
    assert prompt.token_ids == tokenizer.encode(prompt.rendered_prompt, parse_special=True)
    assert len(turn.prompt_ids) <= common_prefix_length(turn, prompt) < len(turn.token_ids)


def test_a_changed_system_prompt_is_encoded_again(tokenizer):
    turn = answered(tokenizer, "What?", "fox")

    prompt = build_next_prompt(tokenizer, "Talk a lot.", [turn], Request("Why?"))

    assert prompt.token_ids == tokenizer.encode(prompt.rendered_prompt, parse_special=True)
    assert common_prefix_length(turn, prompt) < 12


def test_a_turn_without_tokens_is_encoded_from_its_text(tokenizer):
    prompt = build_next_prompt(tokenizer, "", [Turn("What?", answer="fox")], Request("Why?"))

    assert prompt.token_ids == tokenizer.encode(prompt.rendered_prompt, parse_special=True)
    assert "fox<|end|>" in prompt.rendered_prompt


@each_row(
    "template", [at_hand.NO_SYSTEM, at_hand.CHAT.replace("messages %}", "messages if message['role'] != 'system' %}")]
)
def test_a_system_prompt_without_a_system_role_precedes_the_first_question(tmp_path, template):
    tokenizer = Tokenizer(at_hand.byte_level(tmp_path, template))

    prompt = build_next_prompt(tokenizer, SYSTEM, [], Request("Why?"))

    assert prompt.rendered_prompt == "<|user|>\nBe brief.\n\nWhy?<|end|>\n<|assistant|>\n"


def test_the_space_before_a_sentence_piece_answer_is_no_change(tmp_path):
    spaced = at_hand.CHAT.replace(">\n{{ message['content'] }}", ">{{ ' ' + message['content'] }}").replace(
        "|>\n{% e", "|>{% e"
    )
    tokenizer = Tokenizer(at_hand.sentence_piece(tmp_path, spaced))
    turn = answered(tokenizer, "What?", "fox")

    assert common_prefix_length(turn, build_next_prompt(tokenizer, SYSTEM, [turn], Request("Why?"))) == len(
        turn.token_ids
    )


def test_files_precede_a_question_with_their_names_and_in_fences_and_follow_an_instruction():
    files = (Attachment("a.py", "x = 1\n"), Attachment("b\n.txt", "text"))

    shown = "File `a.py`:\n```python\nx = 1\n```\n\nFile `b .txt`:\n```\ntext\n```"
    assert f"{shown}\n\nWhy?" == with_attachments("Why?", files)
    assert {f"Why?\n\n{shown}"} == {with_attachments("Why?", files, task) for task in EDIT_TASKS}
    assert f"Write it again.\n\n{shown}" == with_attachments("Write it again.", files)


def test_a_fence_is_longer_than_any_in_the_file():
    shown = with_attachments("Why?", (Attachment("a.md", "````sh\nls\n````\n"),))

    assert "File `a.md`:\n`````markdown\n````sh\nls\n````\n`````\n\nWhy?" == shown


@pytest.mark.parametrize(
    ("task", "shown"),
    [("", "File `a.py`:\n```python\nx = 1\n```\n\nWhat?"), ("edit", "What?\n\nFile `a.py`:\n```python\nx = 1\n```")],
)
def test_attached_files_are_part_of_the_prompt_in_every_later_turn(tokenizer, task, shown):
    files = (Attachment("a.py", "x = 1\n"),)
    first = build_next_prompt(tokenizer, "", [], Request("What?", files, task=task))
    ids = tuple(spelled_out(tokenizer, "fox"))
    turn = Turn("What?", files, tuple(first.token_ids), "fox", ids, first.rendered_prompt, task=task)

    second = build_next_prompt(tokenizer, "", [turn], Request("Why?"))

    assert f"{shown}<|end|>" in second.rendered_prompt
    assert common_prefix_length(turn, second) == len(turn.token_ids)


def test_two_questions_about_a_file_begin_with_the_tokens_of_the_file(tokenizer):
    files = (Attachment("a.py", "x = 1\n" * 50),)
    prompts = [build_next_prompt(tokenizer, SYSTEM, [], Request(text, files)) for text in ("What?", "Why is it?")]

    of_the_file = len(tokenizer.encode(files[0].text))

    pairs = zip(*(prompt.token_ids for prompt in prompts), strict=False)
    assert sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) > of_the_file


def test_a_given_beginning_of_the_answer_follows_the_generation_prompt(tokenizer):
    begun = build_next_prompt(tokenizer, SYSTEM, [], Request("Why?", answer_prefix="It is <|end|>"))

    prompt = build_next_prompt(tokenizer, SYSTEM, [], Request("Why?"))
    prefix_ids = begun.token_ids[len(prompt.token_ids) :]
    assert prompt.token_ids == begun.token_ids[: len(prompt.token_ids)]
    assert "It is <|end|>" == b"".join(map(tokenizer.token_bytes, prefix_ids)).decode()
    assert tokenizer.vocabulary["<|end|>"] not in prefix_ids
    assert prompt.rendered_prompt == begun.rendered_prompt


def test_an_answer_that_was_begun_is_never_encoded_again(tokenizer):
    request = Request("What?", answer_prefix="a fox")
    prompt = build_next_prompt(tokenizer, SYSTEM, [], request)
    ids = (*spelled_out(tokenizer, "isquick"), tokenizer.vocabulary["<|end|>"])
    turn = Turn("What?", (), tuple(prompt.token_ids), "a foxisquick", ids, prompt.rendered_prompt, is_finished=True)

    following = build_next_prompt(tokenizer, SYSTEM, [turn], Request("Why?"))

    assert turn.token_ids == tuple(following.token_ids[: len(turn.token_ids)])
    assert following.rendered_prompt.endswith("a foxisquick<|end|>\n<|user|>\nWhy?<|end|>\n<|assistant|>\n")


def test_another_model_reads_the_text_again_with_its_own_tokens(tmp_path):
    """Two models with one chat template and different vocabularies: the tokens of one mean nothing to the other."""
    first, second = Tokenizer(at_hand.byte_level(tmp_path / "a")), Tokenizer(at_hand.sentence_piece(tmp_path / "b"))
    turn = replace(answered(first, "What?", "the fox"), model="first")

    prompt = build_next_prompt(second, SYSTEM, as_read_by("second", [turn]), Request("Why?"))
    same = build_next_prompt(first, SYSTEM, as_read_by("first", [turn]), Request("Why?"))

    assert prompt.token_ids == second.encode(prompt.rendered_prompt, parse_special=True)
    assert "the fox" in prompt.rendered_prompt
    assert common_prefix_length(turn, same) == len(turn.token_ids)
