"""`specchat tui`: a conversation on the whole terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from specchat.cli.options import profile_options
from specchat.cli.session_options import resume_request, session_request
from specchat.cli.setup_hint import setup_hint


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
    from specchat.tui.app import ScreenFiles, SpecchatApp, binding_scopes
    from specchat.tui.glyphs import choose_glyphs
    from specchat.tui.preferences import preferences_file, read_preferences

    chosen = resume_request(session_request(options), session, continues_last=is_last)
    preferred = read_preferences(preferences_file(), binding_scopes())
    preferred = replace(preferred, has_mouse=preferred.captures_mouse and not no_mouse)
    history = Path(history_path())
    offer = setup_hint(history.parent)
    app = SpecchatApp(chosen, ScreenFiles.next_to(history), choose_glyphs(is_ascii), preferred, greeting=offer)
    app.run(mouse=app.captures_mouse)
