"""`specchat inspect`: an answer by who guessed each token. Reads the history only; no engine is started."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from specchat.chat.history import HistoryReader, StoredTurn
from specchat.chat.inspected import Inspection
from specchat.cli.kept import chosen_thread, open_history
from specchat.errors import InputError, UsageError
from specchat.host.protocol import totals_from_json


@dataclass(frozen=True)
class Looked:
    """A turn and its steps. `number` is its place in the conversation, from 1 on."""

    number: int
    turn: StoredTurn
    inspection: Inspection

    @property
    def title(self) -> str:
        """Which turn it is."""
        return f"turn {self.number}  {' '.join(str(self.turn.request.get('text', '')).split())[:60]}"

    @property
    def plain_seconds(self) -> float:
        """What a plain pass cost then, 0 when nobody knows."""
        return totals_from_json(self.turn.totals).plain_seconds


@click.command()
@click.argument("session", default="")
@click.option("--turn", type=click.IntRange(min=1), help="Which answer, counted from 1; the last one if left out.")
@click.option("--svg", type=click.Path(path_type=Path), help="Write a picture to this new file instead.")
@click.option("--ascii", "is_ascii", is_flag=True, help="Marks instead of colours: [+accepted][=target][!correction].")
@click.option("--json", "is_json", is_flag=True, help="Every step as one JSON object.")
def inspect(session: str, turn: int | None, svg: Path | None, is_ascii: bool, is_json: bool) -> None:
    """Show who guessed each token of an answer, step by step.

    SESSION is the id of a conversation or its beginning, the last one if left out. Underlined guesses held, what is
    bold was written in the place of a guess that did not.
    """
    with closing(open_history()) as history:
        looked = _look(history, session, turn)
    if is_json:
        click.echo(json.dumps(as_json(looked), indent=1))
    elif svg:
        _write_picture(svg, looked)
    else:
        _show(looked, is_ascii=is_ascii or not sys.stdout.isatty())


def as_json(looked: Looked) -> dict[str, Any]:
    """Everything that is known of the steps, words as text."""
    inspection = looked.inspection
    steps = [
        {
            "accepted": step.accepted,
            "wrote": step.wrote,
            "refused": step.refused,
            "guesses": [asdict(guess) for guess in step.guesses],
            "draft_seconds": step.draft_seconds,
            "verify_seconds": step.verify_seconds,
        }
        for step in inspection.steps
    ]
    tokens = [{**asdict(span), "kind": span.kind.name.lower()} for span in inspection.spans]
    return {
        "turn": looked.turn.id,
        "number": looked.number,
        "variant": looked.turn.answered.variant,
        "shares": dict(inspection.shares),
        "tokens": tokens,
        "steps": steps,
    }


def _look(history: HistoryReader, session: str, number: int | None) -> Looked:
    thread = chosen_thread(history, session)
    turns = history.turns(thread.tip)
    number = number or len(turns)
    if not 1 <= number <= len(turns):
        raise UsageError(f"conversation {thread.id} has {len(turns)} answers; there is no {number}")
    turn = turns[number - 1]
    inspection = Inspection(history.steps(turn.id))
    if not inspection.steps:
        raise UsageError(
            f"nothing is known of the steps of answer {number}; an older specchat wrote it, or it is empty"
        )
    return Looked(number, turn, inspection)


def _show(looked: Looked, *, is_ascii: bool) -> None:
    from rich.console import Console

    from specchat.tui.glyphs import ASCII, UNICODE
    from specchat.tui.inspector_lines import step_lines
    from specchat.tui.inspector_picture import lines
    from specchat.tui.themes import variables
    from specchat.tui.token_colours import TokenColours

    glyphs = ASCII if is_ascii else UNICODE
    console = Console(no_color=True if is_ascii else None, highlight=False, soft_wrap=True)
    console.print(looked.title, markup=False)
    for line in lines(looked.inspection, TokenColours.of_theme(variables()), glyphs, looked.plain_seconds):
        console.print(line.plain if is_ascii else line, markup=False)
    for number in range(len(looked.inspection.steps)):
        console.print(" ".join(filter(None, step_lines(looked.inspection, number, glyphs))), markup=False)


def _write_picture(path: Path, looked: Looked) -> None:
    from specchat.tui.inspector_picture import as_svg
    from specchat.tui.themes import variables

    picture = as_svg(looked.title, looked.inspection, variables(), looked.plain_seconds)
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    click.echo(f"answer {looked.number} is drawn in {path}", err=True)
