"""`specchat tui`: a conversation on the whole terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from specchat.cli.options import profile_options
from specchat.cli.session_options import continued, wish
from specchat.cli.setup_hint import invitation


@click.command()
@click.option("-c", "--continue", "is_last", is_flag=True, help="Go on with the last conversation of this folder.")
@click.option(
    "-r", "--resume", "session", default="", help="Go on with this conversation; the beginning of an id will do."
)
@click.option("--ascii", "is_ascii", is_flag=True, default=None, help="Draw with ASCII alone.")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal, to select text with.")
@profile_options
def tui(is_last: bool, session: str, is_ascii: bool | None, no_mouse: bool, **options: Any) -> None:
    """Talk with the model on the whole terminal, with live numbers. F1 shows the keys, `/help` the commands."""
    from specchat.host.spawn import history_path
    from specchat.tui.app import Places, SpecchatApp, places_of_keys
    from specchat.tui.glyphs import choose_glyphs
    from specchat.tui.preferences import preferences_file, read_preferences

    chosen = continued(wish(options), session, is_last=is_last)
    preferred = read_preferences(preferences_file(), places_of_keys())
    preferred = replace(preferred, has_mouse=preferred.has_mouse and not no_mouse)
    history = Path(history_path())
    offer = invitation(history.parent)
    app = SpecchatApp(chosen, Places.beside(history), choose_glyphs(is_ascii), preferred, greeting=offer)
    app.run(mouse=app.has_mouse)
