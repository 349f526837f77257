"""The prompt format of conversations, and the dialogues for training.

A small model can quote but has little knowledge. So questions come with a reference that has the answer, questions
about files can be answered from the files, and the rest is small talk.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from recipes.edit_example import Edit
from recipes.smalltalk import FAREWELL, INTENTS, SYSTEMS


@dataclass(frozen=True)
class Turn:
    """What was asked and what was answered."""

    question: str
    answer: str


@dataclass(frozen=True)
class Dialogue:
    """Some turns under an optional system message."""

    turns: tuple[Turn, ...]
    system: str | None = None


def fenced(code: str) -> str:
    """Code as it stands in questions and in answers alike, so that copying it is copying tokens."""
    return f"```python\n{code}```"


def edit_question(edit: Edit, rng: random.Random, name: str = "") -> str:
    """The request of an edit; mostly `instruction, empty line, code`, sometimes another order."""
    chance = rng.random()
    if chance < 0.1:
        return f"{fenced(edit.before)}\n\n{edit.instruction}"
    if chance < 0.25:
        name = name or f"{rng.choice(('main', 'app', 'utils', 'tool', 'models', 'cli'))}.py"
        return f"{edit.instruction}\n\nFile `{name}`:\n{fenced(edit.before)}"
    return f"{edit.instruction}\n\n{fenced(edit.before)}"


REPEAT = (
    "Repeat this text:", "Repeat this:", "Write this again:", "Copy this text exactly:", "Say this again, word for word:",
    "Give me this text unchanged:", "repeat after me:", "Quote this:",
)  # fmt: skip
COUNTS = {"twice": 2, "three times": 3, "two times": 2}


def repetition(text: str, rng: random.Random) -> Dialogue:
    """Say this text again, once or a few times."""
    if rng.random() < 0.35:
        count = rng.choice(list(COUNTS))
        form = rng.choice(("Write this {}:", "Repeat this {}:", "Say the same paragraph {}:"))
        return Dialogue((Turn(f"{form.format(count)}\n\n{text}", "\n\n".join([text] * COUNTS[count])),))
    return Dialogue((Turn(f"{rng.choice(REPEAT)}\n\n{text}", text),))


def random_system_prompt(rng: random.Random) -> str | None:
    return rng.choice(SYSTEMS) if rng.random() < 0.2 else None


def small_talk(rng: random.Random, turns: int = 1) -> Dialogue:
    """A few turns of greetings and questions about the assistant."""
    chosen = rng.sample(INTENTS, turns)
    return Dialogue(
        tuple(small_talk_turn(intent.questions, intent.answers, rng) for intent in chosen), random_system_prompt(rng)
    )


def small_talk_turn(questions: Sequence[str], answers: Sequence[str], rng: random.Random) -> Turn:
    question = rng.choice(questions)
    chance = rng.random()
    if chance < 0.25:
        question = question.lower()
    elif chance < 0.4:
        question = question.rstrip("?.!")
    elif chance < 0.5:
        question = f"{rng.choice(('Hi,', 'Hello,', 'Please:', 'So,', 'Tell me:', 'Hey,', 'Ok,'))} {question[0].lower()}{question[1:]}"
    return Turn(question, rng.choice(answers))


def with_small_talk(dialogue: Dialogue, rng: random.Random) -> Dialogue:
    """The same dialogue with a turn of glue before or after it."""
    glue = rng.choice((*FAREWELL, *INTENTS))
    turn = small_talk_turn(glue.questions, glue.answers, rng)
    turns = (*dialogue.turns, turn) if rng.random() < 0.6 else (turn, *dialogue.turns)
    return Dialogue(turns, dialogue.system)
