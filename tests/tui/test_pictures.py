"""The pictures of the pages are drawn by one command, and show what the steps of its walk and of its film must show."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from tests.host.conftest import FAKE_HOST
from tests.tui.test_walk import REQUESTS
from tools.draw_screens import DEMO_TEXTS, FILM_NAME, STARTER_REQUESTS, draw_demo, draw_film, draw_walk
from tools.film_screen import FILM
from tools.screen_walk import CHAT, Requests

ROOT = Path(__file__).parents[2]
MAX_FILM_BYTES = 400_000
DRAWN_BY_OTHER_TOOLS = {
    "architecture.svg", "bench.svg", "concept-acceptance.svg", "concept-costs.svg", "concept-tree.svg",
}  # fmt: skip
DEMO_OVER_THE_FAKE_HOST = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from specchat.host import spawn
spawn.HOST_COMMAND = {FAKE_HOST!r}
from specchat.cli.main import run
sys.exit(run(["demo"]))
"""


def drawn_text(picture: Path) -> str:
    """The text of a picture without its blanks, which are where the lines break."""
    texts = re.findall(r">([^<]*)</text>", picture.read_text(encoding="utf-8"))
    return "".join(html.unescape("".join(texts)).split())


def shows(picture: Path, *texts: str) -> bool:
    return all("".join(text.split()) in drawn_text(picture) for text in texts)


@pytest.mark.full
def test_one_command_draws_every_picture_of_the_readme(runtime, brief_idle_waits, tmp_path, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name in ("COLUMNS", "TERM"):
        monkeypatch.setenv(name, "")  # restored after the terminal of the demo has set them
    named = {
        name
        for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
        for name in re.findall(r"!\[[^\]]*\]\((?:docs/)?([\w-]+\.svg)\)", page.read_text(encoding="utf-8"))
    }

    draw_walk(tmp_path, REQUESTS, SessionRequest(settings=read_settings()))
    draw_film(tmp_path, REQUESTS, SessionRequest(settings=read_settings()))
    draw_demo(tmp_path, [sys.executable, "-c", DEMO_OVER_THE_FAKE_HOST])

    assert named - DRAWN_BY_OTHER_TOOLS == {picture.name for picture in tmp_path.glob("*.svg")}
    assert shows(tmp_path / "demo.svg", *DEMO_TEXTS)
    check_film(tmp_path / f"{FILM_NAME}.svg", REQUESTS)


def check_film(picture: Path, requests: Requests) -> None:
    """It shows what its steps must show, runs nothing, loads nothing, and is small enough for a page."""
    film = picture.read_text(encoding="utf-8")
    root = ElementTree.fromstring(film)
    assert shows(picture, *(text.format(**vars(requests)) for step in FILM for text in step.seen))
    assert {"svg", "title", "style", "rect", "circle", "g", "text"} == {
        each.tag.rpartition("}")[2] for each in root.iter()
    }
    assert not re.search(r"href|url\(|@import|<!|\bon\w+=", film)
    assert len(film) < MAX_FILM_BYTES
    assert int(root.attrib["data-frames"]) > 2 * len(FILM)


def test_the_pictures_in_the_documentation_show_what_the_walk_must_show():
    for step in CHAT:
        if step.picture:
            texts = [text.format(**vars(STARTER_REQUESTS)) for text in step.seen]
            assert shows(ROOT / "docs" / f"{step.picture}.svg", *texts), step.picture
    assert shows(ROOT / "docs" / "demo.svg", *DEMO_TEXTS)
    check_film(ROOT / "docs" / f"{FILM_NAME}.svg", STARTER_REQUESTS)
