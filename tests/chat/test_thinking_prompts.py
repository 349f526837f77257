"""Prompts of models that think: what a template of each kind gets of earlier thoughts, and how thinking is skipped."""

from __future__ import annotations

from dataclasses import dataclass

from specchat.chat.prompt import build_next_prompt
from specchat.chat.request import Request
from specchat.chat.transcript import Turn
from specchat.text.tokenizer import Tokenizer
from tests import tokenizers_at_hand as at_hand
from tests.each_row import each_row

TURN = (
    "{% for m in messages %}<|{{ m.role }}|>HISTORY<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>OPEN{% endif %}"
)
ANSWER_OR = "{% if m.role == 'assistant' %}ANSWER{% else %}{{ m.content }}{% endif %}"


@dataclass(frozen=True)
class Family:
    """A chat template in few words, and what it makes of an answer "so" after the thought "hm"."""

    answer: str  # in the template
    opening: str  # of the answer, in the template
    past: str  # the earlier answer in the next prompt
    opens: bool  # the prompt opens the thought when it is on
    tokens: tuple[str, ...] = ()  # control tokens of the vocabulary

    @property
    def template(self) -> str:
        return TURN.replace("HISTORY", ANSWER_OR.replace("ANSWER", self.answer)).replace("OPEN", self.opening)


SPLIT = "{{ m.content.split('</think>')[-1].lstrip() }}"
FAMILIES = {
    "drops, with a switch": Family(
        SPLIT, "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}",
        "so", False,
    ),
    "drops, always opens": Family(SPLIT, "<think>\n", "so", True),
    "off unless switched on": Family(
        SPLIT, "{% if not thinking is defined %}{% set thinking = false %}{% endif %}"
        "{{ '<think>' if thinking else '</think>' }}", "so", True,
    ),
    "keeps the text with the markers": Family(
        "{{ m.content }}{# </think> #}", "", "<think>\nhm\n</think>\n\nso", False, ("<think>", "</think>")
    ),
    "keeps the thought in a field": Family(
        "<think>{{ m.reasoning_content }}</think>{{ m.content }}",
        "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}",
        "<think>hm</think>so", False,
    ),
    "channels of markers": Family(
        "{{ m.content.split('<channel|>')[-1] }}",
        "{% if not enable_thinking | default(false) %}<|channel>thought\n<channel|>{% endif %}",
        "so", False, ("<|channel>", "<channel|>"),
    ),
    "channels of messages": Family(
        "{% if 'thinking' in message %}{% endif %}<|channel|>final<|message|>{{ m.content }}", "{# <|start|><|end|> #}",
        "<|channel|>final<|message|>so", False, ("<|channel|>", "<|message|>", "<|start|>"),
    ),
    "brackets": Family("{{ m.content }}[/THINK]", "", "[THINK]hm[/THINK]so[/THINK]", False, ("[THINK]", "[/THINK]")),
}  # fmt: skip
EVERY_FAMILY = each_row("family", FAMILIES.values())
THOUGHT = Turn("why?", answer="so", thinking="hm")


def tokenizer_of(family: Family, folder) -> Tokenizer:
    return Tokenizer(at_hand.byte_level(folder, family.template, [*at_hand.SPECIAL, *family.tokens]))


@EVERY_FAMILY
def test_thinking_is_skipped_when_it_is_off_and_only_then(family, tmp_path):
    tokenizer = tokenizer_of(family, tmp_path)
    off = build_next_prompt(tokenizer, "", [], Request("why?"), thinking="off")
    on = build_next_prompt(tokenizer, "", [], Request("why?"), thinking="on")

    assert tokenizer.chat.thinking.is_skipped(off.rendered_prompt) and not off.opens_thought
    assert not tokenizer.chat.thinking.is_skipped(on.rendered_prompt)
    assert on.opens_thought == family.opens


@EVERY_FAMILY
def test_the_template_gets_the_thought_where_it_looks_for_it(family, tmp_path):
    prompt = build_next_prompt(tokenizer_of(family, tmp_path), "", [THOUGHT], Request("and?"), thinking="on")

    assert prompt.rendered_prompt.startswith(f"<|user|>why?<|end|><|assistant|>{family.past}<|end|><|user|>and?<|end|>")


def test_the_markers_of_a_kept_thought_are_control_tokens_and_those_in_texts_are_not(tmp_path):
    tokenizer = tokenizer_of(FAMILIES["keeps the text with the markers"], tmp_path)
    turn = Turn("why?", answer="write </think> last", thinking="a <think> or </think>?")
    ids = build_next_prompt(tokenizer, "", [turn], Request("a </think>?"), thinking="on").token_ids

    assert [ids.count(tokenizer.vocabulary[marker]) for marker in ("<think>", "</think>")] == [1, 1]


def test_the_thought_is_left_out_where_thinking_is_off(tmp_path):
    tokenizer = tokenizer_of(FAMILIES["keeps the text with the markers"], tmp_path)

    assert "hm" not in build_next_prompt(tokenizer, "", [THOUGHT], Request("and?"), thinking="off").rendered_prompt


def test_a_base_model_with_the_markers_in_its_vocabulary_does_not_think(tmp_path):
    folder = at_hand.byte_level(tmp_path, special=[*at_hand.SPECIAL, "<think>", "</think>"])
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "chat_template.jinja").unlink(missing_ok=True)

    assert Tokenizer(folder).chat.thinking is None


@each_row("thought", ["hm", ""])
def test_a_thought_that_the_template_drops_is_not_in_the_tokens_either(tmp_path, thought):
    tokenizer = tokenizer_of(FAMILIES["drops, with a switch"], tmp_path)
    first = build_next_prompt(tokenizer, "", [], Request("why?"))
    answer_ids = tokenizer.encode(f"<think>\n{thought}\n</think>\n\nso<|end|>", parse_special=True)
    turn = Turn(
        "why?", (), tuple(first.token_ids), "so", tuple(answer_ids), first.rendered_prompt, True, thinking=thought
    )

    prompt = build_next_prompt(tokenizer, "", [turn], Request("and?"))

    assert prompt.token_ids == tokenizer.encode(prompt.rendered_prompt, parse_special=True)
    assert "think" not in tokenizer.decode(prompt.token_ids)
