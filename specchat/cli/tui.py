"""`specchat tui`: a chat on the whole terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from specchat.cli.options import profile_options
from specchat.cli.session_options import PRIVATE_NOTICE, private_option, resume_options, resume_request
from specchat.cli.setup_hint import setup_hint
from specchat.cli.starter_offer import offer_starter


@click.command()
@private_option
@resume_options
@click.option("--ascii", "is_ascii", is_flag=True, default=None, help="Draw with ASCII characters only.")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal, for selecting text.")
@profile_options
def tui(is_ascii: bool | None, no_mouse: bool, **options: Any) -> None:
    """Chat with the model on the whole terminal, with live numbers. F1 shows the keys, `/help` the commands."""
    from specchat.drawing.glyphs import choose_glyphs
    from specchat.host.spawn import history_path
    from specchat.tui.app import ScreenFiles, SpecchatApp, binding_scopes
    from specchat.tui.preferences import preferences_file, read_preferences

    if not (options["session"] or options["is_last"]):
        offer_starter(options)
    chosen = resume_request(options)
    preferred = read_preferences(preferences_file(), binding_scopes())
    preferred = replace(preferred, captures_mouse=preferred.captures_mouse and not no_mouse)
    history = Path(history_path())
    files = ScreenFiles.next_to(history)
    greeting = setup_hint(history.parent)
    if not chosen.is_stored:
        files, greeting = replace(files, prompt_history=None), PRIVATE_NOTICE
    app = SpecchatApp(chosen, files, choose_glyphs(is_ascii), preferred, greeting=greeting)
    app.run(mouse=app.captures_mouse)
