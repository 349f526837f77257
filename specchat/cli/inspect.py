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
from specchat.cli.stored_conversations import chosen_thread, open_history
from specchat.commands.inspect_text import Looked, drawn, look
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
        looked = _look(history, session, turn)
    if is_json:
        click.echo(json.dumps(as_json(looked), indent=1))
    elif svg:
        _write_picture(svg, looked)
    else:
        sys.stdout.write(drawn(looked, is_ascii=is_ascii or not sys.stdout.isatty()))


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
    return look(f"conversation {thread.id}", history.turns(thread.tip), number, history.steps)


def _write_picture(path: Path, looked: Looked) -> None:
    from specchat.tui.inspector_svg import as_svg
    from specchat.tui.themes import variables

    picture = as_svg(looked.title, looked.inspection, variables(), looked.plain_seconds)
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    click.echo(f"answer {looked.number} is drawn in {path}", err=True)
