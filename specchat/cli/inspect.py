"""`specchat inspect`: an answer by who guessed each token. Reads the history only; no engine is started."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from specchat.chat.history import HistoryReader
from specchat.cli.stored_conversations import find_thread, open_history
from specchat.commands.inspect_text import InspectedTurn, render_text, select_turn
from specchat.errors import InputError


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
        looked = _inspect_turn(history, session, turn)
    if is_json:
        click.echo(json.dumps(as_json(looked), indent=1))
    elif svg:
        _write_svg(svg, looked)
    else:
        sys.stdout.write(render_text(looked, is_ascii=is_ascii or not sys.stdout.isatty()))


def as_json(inspected: InspectedTurn) -> dict[str, Any]:
    """Everything that is known of the steps, words as text."""
    inspection = inspected.inspection
    steps = [
        {
            "accepted": step.accepted_count,
            "wrote": step.target_text,
            "refused": step.rejected_text,
            "guesses": [asdict(guess) for guess in step.draft_tokens],
            "draft_seconds": step.draft_seconds,
            "verify_seconds": step.verify_seconds,
        }
        for step in inspection.steps
    ]
    tokens = [{**asdict(span), "kind": span.kind.name.lower()} for span in inspection.spans]
    return {
        "turn": inspected.turn.id,
        "number": inspected.number,
        "variant": inspected.turn.answer.variant,
        "shares": dict(inspection.source_shares),
        "tokens": tokens,
        "steps": steps,
    }


def _inspect_turn(history: HistoryReader, session: str, turn_number: int | None) -> InspectedTurn:
    thread = find_thread(history, session)
    return select_turn(f"conversation {thread.id}", history.turns(thread.tip), turn_number, history.steps)


def _write_svg(path: Path, inspected: InspectedTurn) -> None:
    from specchat.tui.inspector_svg import render_svg
    from specchat.tui.themes import theme_variables

    picture = render_svg(inspected.title, inspected.inspection, theme_variables(), inspected.plain_step_seconds)
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    click.echo(f"answer {inspected.number} is drawn in {path}", err=True)
