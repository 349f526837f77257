"""An answer as text, each token marked with its drafter: for `/inspect` in the line mode, and for a plugin.

The drawing matches the inspector of the TUI; without colours, marks show the kind of a token. Reads no files.
"""

import io
import sys
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specchat.chat.events import Speedup, StepDone
from specchat.chat.step_records import Inspection
from specchat.errors import UsageError
from specchat.history.history_reader import StoredTurn
from specchat.history.step_encoding import unpack_steps
from specchat.host.client import Conversation
from specchat.host.protocol import totals_from_json
from specchat.terminal import Styled, can_redraw


@dataclass(frozen=True)
class InspectedTurn:
    """A turn and its steps. `number` is its position in the conversation, counted from 1."""

    number: int
    turn: StoredTurn
    inspection: Inspection

    @property
    def title(self) -> str:
        return f"turn {self.number}  {' '.join(str(self.turn.request.get('text', '')).split())[:60]}"

    @property
    def speedup(self) -> Speedup | None:
        return totals_from_json(self.turn.totals).speedup


def select_turn(
    conversation_name: str,
    turns: Sequence[StoredTurn],
    number: int | None,
    load_steps: Callable[[str], Sequence[StepDone]],
) -> InspectedTurn:
    """The answer with this number, the last one for None. UsageError if it does not exist."""
    if not turns:
        raise UsageError(f"{conversation_name} has no answers yet")
    number = len(turns) if number is None else number
    if not 1 <= number <= len(turns):
        count = f"{len(turns)} answer{'' if len(turns) == 1 else 's'}"
        raise UsageError(f"{conversation_name} has {count}; there is no {number}")
    turn = turns[number - 1]
    inspection = Inspection(load_steps(turn.id))
    if not inspection.steps:
        known = f"; acceptance by depth {rates}" if (rates := totals_from_json(turn.totals).acceptance.by_depth) else ""
        raise UsageError(f"answer {number} has no steps; a server or an older version wrote it, or it is empty{known}")
    return InspectedTurn(number, turn, inspection)


def render_text(inspected: InspectedTurn, *, is_ascii: bool) -> Styled:
    from rich.console import Console

    from specchat.drawing.glyphs import ASCII, UNICODE, printable
    from specchat.drawing.inspector_lines import render_lines, step_lines

    glyphs, text = ASCII if is_ascii else UNICODE, io.StringIO()
    console = Console(
        file=text, force_terminal=not is_ascii, no_color=True if is_ascii else None, highlight=False, soft_wrap=True
    )
    console.print(printable(inspected.title), markup=False)
    for line in render_lines(inspected.inspection, glyphs, inspected.speedup):
        console.print(line.plain if is_ascii else line, markup=False)
    for number in range(len(inspected.inspection.steps)):
        console.print(" ".join(filter(None, step_lines(inspected.inspection, number, glyphs))), markup=False)
    return Styled(text.getvalue())


def inspect_answer(conversation: Conversation, argument: str) -> str:
    if argument and not argument.isdecimal():
        raise UsageError(f"/inspect takes the number of an answer, counted from 1, not {argument!r}")

    def load_steps(turn: str) -> Sequence[StepDone]:
        return unpack_steps(b64decode(str(conversation.call("inspect", {"turn": turn})["steps"])))

    inspected = select_turn("this conversation", conversation.turns(), int(argument) if argument else None, load_steps)
    return Styled(render_text(inspected, is_ascii=not can_redraw(sys.stderr)).rstrip("\n"))
