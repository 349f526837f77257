"""`specchat inspect`: an answer by the drafter of each token. Reads the history only; starts no engine."""

import sys
from contextlib import closing
from pathlib import Path

import click

from specchat.app.inspect_text import InspectedTurn, render_text, select_turn
from specchat.cli.completion import complete_sessions
from specchat.cli.notes import print_note
from specchat.cli.sessions import find_thread, open_history
from specchat.errors import InputError
from specchat.terminal import can_redraw


@click.command()
@click.argument("session", default="", shell_complete=complete_sessions)
@click.option("--turn", type=click.IntRange(min=1), help="The number of the answer, from 1; the last by default.")
@click.option("--svg", type=click.Path(path_type=Path), help="Write a picture to this file instead.")
@click.option("--ascii", "is_ascii", is_flag=True, help="Marks instead of colours: [+accepted][=target][!correction].")
def inspect(session: str, turn: int | None, svg: Path | None, is_ascii: bool) -> None:
    """Show which drafter proposed each token of an answer, step by step.

    SESSION is the id of a conversation or its beginning; the last one by default. Accepted draft tokens are
    underlined; a token that replaced a rejected one is bold.
    """
    with closing(open_history()) as history:
        thread = find_thread(history, session)
        inspected = select_turn(f"conversation {thread.id}", history.turns(thread.tip), turn, history.steps)
    if svg:
        _write_svg(svg, inspected)
    else:
        sys.stdout.write(render_text(inspected, is_ascii=is_ascii or not can_redraw(sys.stdout)))


def _write_svg(path: Path, inspected: InspectedTurn) -> None:
    from specchat_bench.answer_picture import render_svg

    picture = render_svg(inspected.title, inspected.inspection, inspected.speedup)
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    print_note(f"answer {inspected.number} is written to {path}")
