"""One walk through the screen, in four sizes, with and without colours: nothing overflows and nothing is covered."""

from __future__ import annotations

from itertools import product

import pytest
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.widgets._toast import Toast

from specchat.cli.lazy_group import LazyCommand
from specchat.cli.models import ModelsGroup
from specchat.drawing.themes import DARK_THEME, LIGHT_THEME
from specchat.tui import picker
from specchat.tui.app import SpecchatApp
from tests import cover
from tests.contrast import READABLE_CONTRAST, contrast
from tests.front import command
from tools.screen_driver import ScreenDriver
from tools.screen_walk import FILE, FILE_TEXT, WALK, Requests, Visit, Walk

SIZES = [(80, 24), (120, 35), (60, 18), (40, 18)]
WITH, WITHOUT = "in colours", "without colours"
OF_A_FULL_RUN = {(SIZES[1], WITH), (SIZES[3], WITHOUT)}  # the largest and the smallest
WALKS = [
    pytest.param(size, colours, id=f"{size[0]} {colours}", marks=pytest.mark.full)
    for size, colours in product(SIZES, (WITH, WITHOUT))
    if cover.makes_every_case or (size, colours) in OF_A_FULL_RUN
]
OWN_THEMES = (DARK_THEME.name, LIGHT_THEME.name)
REQUESTS = Requests(
    question="guess 4",
    inspected="guess 2",
    long="slowly 100000",
    queued="write waited",
    about_file="say",
    change="replace old new",
    other_model="embedded",
)


def faint_text(segment: Segment) -> str:
    """A text that is hard to read on its ground, "" for any other."""
    style = segment.style
    if not (style and style.color and style.bgcolor and any(map(str.isalnum, segment.text))):
        return ""
    text, ground = (Color(*each.get_truecolor()) for each in (style.color, style.bgcolor))
    return "" if contrast(text, ground) >= READABLE_CONTRAST else f"{segment.text!r} {text.hex} on {ground.hex}"


def check_frame(driver: ScreenDriver) -> None:
    """Nothing overflows, no toast covers prompt or title, all text can be read, and without colours all is grey."""
    assert all(cell_len(line) <= driver.app.size.width for line in driver.shown.splitlines()), driver.shown
    if driver.app.screen is driver.chat:
        for toast in driver.chat.query(Toast):
            assert not toast.region.overlaps(driver.prompt.region), driver.shown
            assert not toast.region.overlaps(driver.chat.query_one("#head").region.shrink((0, 0, 1, 0))), driver.shown
    segments = [segment for strip in driver.strips for segment in strip]
    styles = [segment.style for segment in segments if segment.style]
    if driver.app.theme in OWN_THEMES:
        assert not list(filter(None, map(faint_text, segments)))
    triplets = [each.get_truecolor() for style in styles for each in (style.color, style.bgcolor) if each]
    assert any(max(each) - min(each) > 1 for each in triplets) != driver.app.no_color


@pytest.fixture
def beginner(runtime, brief_idle_waits, tmp_path, monkeypatch):
    """A user without profiles or models, in a folder with one file; a download brings nothing."""
    for name, value in (("SPECCHAT_CONFIG", "config"), ("HF_HUB_CACHE", "hub")):
        monkeypatch.setenv(name, str(tmp_path / name / value))
    for name in ("HF_HUB_OFFLINE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    pull = LazyCommand("tests.cli.test_setup:pull", "")
    monkeypatch.setattr(ModelsGroup, "lazy_commands", {**ModelsGroup.lazy_commands, "pull": pull})
    monkeypatch.setattr("specchat.hub.repo_files.offline_reason", lambda: "")
    monkeypatch.setattr(picker, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr("specchat.cli.chat.exit_when_terminal_closes", lambda: None)
    (tmp_path / FILE).write_text(FILE_TEXT)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def visit(beginner, monkeypatch):
    """Run a command of the walk, and take its steps on the screen that it opens."""

    def run(visit: Visit, size: tuple[int, int]) -> None:
        walk = Walk(visit.steps, REQUESTS, lambda driver, _step: check_frame(driver))
        monkeypatch.setattr(SpecchatApp, "run", lambda app, **_options: walk.run(app, size))
        ran = command(monkeypatch, *visit.arguments, stdin=visit.answers.encode(), on_terminal=visit.has_terminal)

        walk.check()
        assert (visit.exit_code, True) == (ran.code, visit.printed in ran.err), ran
        said = ran.err.splitlines()  # on a terminal, one sentence may take several lines
        assert not visit.exit_code or said[:1] == [line for line in said if line.startswith("specchat: ")]

    return run


@pytest.mark.parametrize(("size", "colours"), WALKS)
def test_a_user_finds_the_way_through_the_whole_screen(visit, monkeypatch, tmp_path, size, colours):
    if colours == WITHOUT:
        monkeypatch.setenv("NO_COLOR", "1")

    for each in WALK:
        visit(each, size)

    assert "new text\n" == (tmp_path / FILE).read_text()
