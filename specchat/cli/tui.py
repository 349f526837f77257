"""`specchat tui`: a conversation on the whole terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specchat.cli.hosted import continued, wish
from specchat.cli.options import profile_options


@click.command()
@click.option("-c", "--continue", "is_last", is_flag=True, help="Go on with the last conversation of this folder.")
@click.option(
    "-r", "--resume", "session", default="", help="Go on with this conversation; the beginning of an id will do."
)
@click.option("--ascii", "is_ascii", is_flag=True, default=None, help="Draw with ASCII alone.")
@profile_options
def tui(is_last: bool, session: str, is_ascii: bool | None, **options: Any) -> None:
    """Talk with the model on the whole terminal, with live numbers. F1 shows the keys, `/help` the commands."""
    from specchat.host.spawn import history_path
    from specchat.tui.app import Places, SpecchatApp
    from specchat.tui.glyphs import choose_glyphs

    chosen = continued(wish(options), session, is_last=is_last)
    SpecchatApp(chosen, Places.beside(Path(history_path())), choose_glyphs(is_ascii)).run()
