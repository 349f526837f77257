"""An answer by who guessed each token, as text: for `specchat inspect`, and for `/inspect` where there is no screen.

Drawn as the screen draws it, with marks where there are no colours. Knows no file: it is given turns and their steps.
"""

from __future__ import annotations

import io
import sys
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specchat.chat.events import StepDone
from specchat.chat.history import StoredTurn
from specchat.chat.step_encoding import unpack_steps
from specchat.chat.step_records import Inspection
from specchat.errors import UsageError
from specchat.host.client import Conversation
from specchat.host.protocol import totals_from_json


@dataclass(frozen=True)
class InspectedTurn:
    """A turn and its steps. `number` is its place in the conversation, from 1 on."""

    number: int
    turn: StoredTurn
    inspection: Inspection

    @property
    def title(self) -> str:
        """Which turn it is."""
        return f"turn {self.number}  {' '.join(str(self.turn.request.get('text', '')).split())[:60]}"

    @property
    def plain_step_seconds(self) -> float:
        """What a plain pass cost then, 0 when nobody knows."""
        return totals_from_json(self.turn.totals).plain_step_seconds


def select_turn(
    conversation_name: str,
    turns: Sequence[StoredTurn],
    number: int | None,
    load_steps: Callable[[str], Sequence[StepDone]],
) -> InspectedTurn:
    """One of the answers of a conversation, the last if no number is said; UsageError if there is none."""
    if not turns:
        raise UsageError(f"{conversation_name} has no answers yet")
    number = len(turns) if number is None else number
    if not 1 <= number <= len(turns):
        count = f"{len(turns)} answer{'' if len(turns) == 1 else 's'}"
        raise UsageError(f"{conversation_name} has {count}; there is no {number}")
    turn = turns[number - 1]
    inspection = Inspection(load_steps(turn.id))
    if not inspection.steps:
        raise UsageError(
            f"nothing is known of the steps of answer {number}; an older specchat wrote it, or it is empty"
        )
    return InspectedTurn(number, turn, inspection)


def render_text(inspected: InspectedTurn, *, is_ascii: bool) -> str:
    """The answer, what it sums up to, and its steps; in colours unless only marks can be shown."""
    from rich.console import Console

    from specchat.tui.glyphs import ASCII, UNICODE
    from specchat.tui.inspector_lines import step_lines
    from specchat.tui.inspector_svg import render_lines
    from specchat.tui.themes import theme_variables
    from specchat.tui.token_colours import TokenColours

    glyphs = ASCII if is_ascii else UNICODE
    text = io.StringIO()
    console = Console(
        file=text, force_terminal=not is_ascii, no_color=True if is_ascii else None, highlight=False, soft_wrap=True
    )
    console.print(inspected.title, markup=False)
    for line in render_lines(
        inspected.inspection, TokenColours.from_theme(theme_variables()), glyphs, inspected.plain_step_seconds
    ):
        console.print(line.plain if is_ascii else line, markup=False)
    for number in range(len(inspected.inspection.steps)):
        console.print(" ".join(filter(None, step_lines(inspected.inspection, number, glyphs))), markup=False)
    return text.getvalue()


def inspect_answer(conversation: Conversation, argument: str) -> str:
    """`/inspect [N]`: the answer with this number, counted from 1."""
    if argument and not argument.isdecimal():
        raise UsageError(f"/inspect takes the number of an answer, counted from 1, not {argument!r}")

    def steps_of(turn: str) -> Sequence[StepDone]:
        return unpack_steps(b64decode(str(conversation.call("inspect", {"turn": turn})["steps"])))

    looked = select_turn("this conversation", conversation.turns(), int(argument) if argument else None, steps_of)
    return render_text(looked, is_ascii=not sys.stderr.isatty()).rstrip("\n")
