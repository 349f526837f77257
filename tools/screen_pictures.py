"""Pictures of the screen for the documentation: ask, press keys, and keep what is shown as SVG.

python -m tools.screen_pictures docs/screen.svg --profile chat "How do I reverse a string in Python?"
python -m tools.screen_pictures docs/variants.svg --keys f4
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from textual.pilot import Pilot

from specchat.host.client import SessionRequest
from specchat.host.spawn import history_path
from specchat.tui.app import ScreenFiles, SpecchatApp

POLL_SECONDS = 0.05
SETTLE_SECONDS = 1.0


async def _wait_until_idle(app: SpecchatApp, pilot: Pilot[object]) -> None:
    """Wait until there is a conversation and nothing is being written or loaded."""
    while not (
        app.chat_screen.presenter.session_id and app.chat_screen.presenter.is_idle and app.worker_messages.is_empty
    ):
        await pilot.pause(POLL_SECONDS)
    await pilot.pause(SETTLE_SECONDS)


def write_svg(
    path: Path, session_request: SessionRequest, questions: Sequence[str], keys: Sequence[str], size: tuple[int, int]
) -> None:
    """Ask every question, press the keys, and write the screen to a file."""
    app = SpecchatApp(session_request, ScreenFiles.next_to(history_path()))
    pictures: list[str] = []

    async def play(pilot: Pilot[object]) -> None:
        await _wait_until_idle(app, pilot)
        for question in questions:
            count = len(app.chat_screen.transcript.turns)
            app.chat_screen.submit(question)
            while len(app.chat_screen.transcript.turns) == count:
                await pilot.pause(POLL_SECONDS)
            await _wait_until_idle(app, pilot)
        if keys:
            await pilot.press(*keys)
            await pilot.pause(SETTLE_SECONDS)
        pictures.append(app.export_screenshot(title="specchat"))
        app.exit()

    app.run(headless=True, size=size, auto_pilot=play)
    path.write_text("".join(pictures), encoding="utf-8")


def main() -> None:
    """Draw what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tools.screen_pictures", description="The screen as SVG.")
    parser.add_argument("file", type=Path)
    parser.add_argument("questions", nargs="*")
    parser.add_argument("--profile", default="chat")
    parser.add_argument("--keys", default="", help="pressed in the end, with commas between them")
    parser.add_argument("--size", default="100x30", help="columns and lines")
    chosen = parser.parse_intermixed_args()
    columns, _, lines = chosen.size.partition("x")
    keys = [key for key in chosen.keys.split(",") if key]
    write_svg(chosen.file, SessionRequest(profile=chosen.profile), chosen.questions, keys, (int(columns), int(lines)))


if __name__ == "__main__":
    main()
