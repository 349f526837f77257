"""Draws the pictures of the pages anew: the film of README (`film_screen.py`), `specchat demo`, and those of the walk.

python -m tools.draw_screens docs

The starter model answers; the numbers on the pictures are those of this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from specchat.tui.app import ScreenFiles, SpecchatApp
from tools.film_screen import film_screen
from tools.screen_driver import ScreenDriver
from tools.screen_walk import CHAT, Requests, Step, Walk, steps_until_last_picture
from tools.terminal_picture import draw_svg, run_in_pty

SIZE = 100, 30
FILM_NAME = "first-conversation"
DEMO = "specchat", "demo"  # also the first line of its picture
LOAD = sys.executable, "-m", "specchat", "ask", "--private", "Say yes."  # no picture shows how a model is loaded
DEMO_TEXTS = "$ specchat demo", "the same text, "  # seen in its picture, whichever model answers
STARTER_REQUESTS = Requests(
    question="Write a Python function that checks if a number is even.",
    inspected="Write a Python function that returns the square of a number.",
    long="Write a long story about a lighthouse.",
    queued="Give it a title.",
    about_file="Summarize",
    change="Replace old with new.",
    other_model="embedded",
)


def drawn_project() -> Path:
    """The folder that the pictures name, with a branch and a file to ask about."""
    folder = Path(tempfile.gettempdir()) / "shop"
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (folder / "cart.py").write_text("def total(prices):\n    return sum(prices)\n", encoding="utf-8")
    return folder


def draw_walk(folder: Path, requests: Requests, session_request: SessionRequest) -> None:
    """Walk to the last step with a picture, and write each picture to the folder."""

    def draw(driver: ScreenDriver, step: Step) -> None:
        if step.picture:
            picture = driver.app.export_screenshot(title="specchat")
            (folder / f"{step.picture}.svg").write_text(picture, encoding="utf-8")

    with tempfile.TemporaryDirectory() as private, contextlib.chdir(drawn_project()):
        app = SpecchatApp(session_request, ScreenFiles.next_to(Path(private) / "history.db"))
        walk = Walk(steps_until_last_picture(CHAT), requests, draw)
        walk.run(app, SIZE)
        walk.check()


def draw_film(folder: Path, requests: Requests, session_request: SessionRequest) -> None:
    """Film a first conversation, and write it to the folder."""
    film = film_screen(
        lambda private: SpecchatApp(session_request, ScreenFiles.next_to(private / "history.db")), requests
    )
    (folder / f"{FILM_NAME}.svg").write_text(film, encoding="utf-8")


def draw_demo(folder: Path, command: Sequence[str] = DEMO) -> None:
    """Run the demo on a terminal of its own, and write what it shows to the folder."""
    (folder / "demo.svg").write_text(draw_svg(list(DEMO), run_in_pty(list(command))), encoding="utf-8")


def main() -> None:
    """Draw all pictures into the folder that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m tools.draw_screens", description="The pictures of the pages.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--film", action="store_true", help="the film alone")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    os.environ.pop("NO_COLOR", None)
    subprocess.run(LOAD, check=True, stdout=subprocess.DEVNULL)
    if not arguments.film:
        draw_walk(folder, STARTER_REQUESTS, SessionRequest(settings=read_settings()))
        draw_demo(folder)
    draw_film(folder, STARTER_REQUESTS, SessionRequest(settings=read_settings()))


if __name__ == "__main__":
    main()
