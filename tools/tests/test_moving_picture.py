"""A moving picture shows each frame for its time, draws a row that stays only once, and needs no script."""

from __future__ import annotations

import re

from rich.segment import Segment
from rich.style import Style

from tools.moving_picture import Frame, draw_moving, row_of

TITLE, ONE, TWO = (row_of([Segment(text)]) for text in ("specchat", "one", "two"))
FRAMES = [Frame((TITLE, ONE), 1.0), Frame((TITLE, TWO), 2.0), Frame((TITLE, ONE), 1.0)]


def visible(svg: str, text: str, percent: float) -> bool:
    """Whether a text is seen at this part of the time, by the rules of its group."""
    [name] = re.findall(rf'<g class="(\w+)">(?:(?!</g>).)*>{text}</text>', svg)
    steps = re.search(rf"@keyframes {name}{{(.*)}}", svg)
    if steps is None:
        return True
    states = re.findall(r"([\d.]+)%{visibility:(\w+)}", steps[1])
    return [state for begin, state in states if float(begin) <= percent][-1] == "visible"


def test_each_frame_is_seen_in_its_time():
    svg = draw_moving(FRAMES, "a film")

    seen = {
        percent: {text for text in ("specchat", "one", "two") if visible(svg, text, percent)}
        for percent in (0, 24, 26, 74, 76, 99)
    }
    assert {"specchat", "one"} == seen[0] == seen[24] == seen[76] == seen[99]
    assert {"specchat", "two"} == seen[26] == seen[74]
    assert 3 == svg.count("<g ")
    assert "4.0s step-end infinite" in svg


def test_without_motion_the_last_frame_stands():
    svg = draw_moving(FRAMES, "a film")
    [one, two] = re.findall(r"^\.\w+{visibility:(\w+);animation", svg, re.MULTILINE)

    assert "prefers-reduced-motion" in svg
    assert ["visible", "hidden"] == [one, two]


def test_styles_and_signs_of_markup_are_kept():
    row = row_of([Segment("<b>", Style(color="#ff0000", bold=True)), Segment(" & ", Style(bgcolor="#00ff00"))])

    svg = draw_moving([Frame((row, TITLE, TITLE), 1.0)], "a < b")

    assert ' fill="#ff0000" class="b">&lt;b&gt;</text>' in svg
    assert 'fill="#00ff00"/>' in svg and ">&amp;</text>" in svg
    assert "<title>a &lt; b</title>" in svg
