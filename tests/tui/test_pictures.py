"""The pictures of README are drawn by the walk of `test_walk.py` and by `specchat demo`, and show what they must."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

import pytest

from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from tests.host.conftest import FAKE_HOST
from tests.tui.test_walk import REQUESTS
from tools.draw_screens import DEMO_TEXTS, STARTER_REQUESTS, draw_demo, draw_walk
from tools.screen_walk import CHAT

ROOT = Path(__file__).parents[2]
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
    draw_demo(tmp_path, [sys.executable, "-c", DEMO_OVER_THE_FAKE_HOST])

    assert named - DRAWN_BY_OTHER_TOOLS == {picture.name for picture in tmp_path.glob("*.svg")}
    assert shows(tmp_path / "demo.svg", *DEMO_TEXTS)


def test_the_pictures_in_the_documentation_show_what_the_walk_must_show():
    for step in CHAT:
        if step.picture:
            texts = [text.format(**vars(STARTER_REQUESTS)) for text in step.seen]
            assert shows(ROOT / "docs" / f"{step.picture}.svg", *texts), step.picture
    assert shows(ROOT / "docs" / "demo.svg", *DEMO_TEXTS)
