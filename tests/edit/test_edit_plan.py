"""What is rewritten: the whole file if it fits, else the named definitions, else an error with the numbers."""

from __future__ import annotations

import pytest

from specchat.edit.edit_plan import (
    EditPlan,
    Region,
    needed_tokens,
    parse_line_range,
    possible_plans,
    region_source,
    replace_region,
)
from specchat.edit.source_text import make_source
from specchat.errors import ContextError, InputError, UsageError

PADDING = "".join(f"value_{number} = {number}\n" for number in range(200))
TEXT = f"""\
class Parser:
    def feed(self, chunk):
        return chunk

    def add(self, x):
        return x


{PADDING}

def feed_all():
    pass
"""
SOURCE = make_source(TEXT.encode(), "a.py")
SMALL = 600


def first_plan(*arguments) -> EditPlan:
    plan = possible_plans(*arguments)[0]
    if isinstance(plan, ContextError):
        raise plan
    return plan


def names(instruction: str, source=SOURCE, window: int = SMALL) -> list[str]:
    return [region.name for region in first_plan(source, instruction, window).regions]


def test_a_file_that_fits_is_rewritten_as_a_whole():
    assert "whole" == first_plan(SOURCE, "rename feed to push", 100_000).format


@pytest.mark.parametrize(
    ("instruction", "named"),
    [
        ("improve feed", ["Parser.feed"]),
        ("document Parser.feed and feed_all", ["Parser.feed"]),
        ("add a docstring to feed_all", ["feed_all"]),
        ("make add() faster", ["Parser.add"]),
        ("document the class Parser", ["Parser"]),
        ("document feed in Parser", ["Parser.feed"]),
        ("improve `add` and feed_all", ["Parser.add", "feed_all"]),
    ],
)
def test_what_does_not_fit_is_written_where_the_instruction_points(instruction, named):
    assert named == names(instruction)


def test_a_renaming_covers_every_place_of_the_old_name():
    text = f"from x import feed\n\n{PADDING}\ndef one():\n    feed()\n\n\n"
    text += "class A:\n    use = feed\n\n    def b(self):\n        feed()\n"
    source = make_source(text.encode(), "a.py")
    last = text.count("\n")

    regions = first_plan(source, "rename feed to push", SMALL).regions

    assert (Region(1, 1), Region(last - 3, last - 3)) == tuple(each for each in regions if not each.name)
    assert ["one", "A.b"] == [each.name for each in regions if each.name]


def test_a_renaming_of_what_is_not_there_cannot_be_planned():
    with pytest.raises(ContextError):
        first_plan(SOURCE, "rename absent to present", SMALL)


def test_a_renaming_in_too_many_places_cannot_be_planned():
    with pytest.raises(ContextError):
        first_plan(make_source(b"x = 1\n" * 5000, "a.py"), "rename x to y", SMALL)


@pytest.mark.parametrize("instruction", ["make it faster", "add tests"])
def test_an_instruction_without_a_name_cannot_be_planned(instruction):
    needed = needed_tokens(TEXT, instruction)

    with pytest.raises(ContextError, match=f"about {needed} tokens and the window holds {SMALL}"):
        first_plan(SOURCE, instruction, SMALL)


def test_a_part_may_be_too_long_as_well():
    with pytest.raises(ContextError, match="reading and writing a part of it"):
        first_plan(SOURCE, "document Parser", 80)


def test_chosen_lines_are_used_even_if_the_file_fits():
    plan = first_plan(SOURCE, "anything", 100_000, Region(2, 3))

    assert ("region", (Region(2, 3),)) == (plan.format, plan.regions)


def test_lines_behind_the_end_are_an_error_and_a_range_over_it_is_cut():
    source = make_source(b"a\nb\n", "a")

    assert (Region(2, 2),) == first_plan(source, "x", SMALL, Region(2, 99)).regions
    with pytest.raises(InputError, match="has 2 lines"):
        first_plan(source, "x", SMALL, Region(3, 4))


@pytest.mark.parametrize("given", ["10-40", "10:40", " 10,40 "])
def test_lines_are_written_in_three_ways(given):
    assert Region(10, 40) == parse_line_range(given)


@pytest.mark.parametrize("given", ["", "x", "0-3", "5-4", "-3"])
def test_no_lines_are_a_usage_error(given):
    with pytest.raises(UsageError):
        parse_line_range(given)


@pytest.mark.parametrize("text", ["a\nb\nc\n", "a\nb\nc", "a\n\nc\n\n"])
@pytest.mark.parametrize("region", [Region(1, 1), Region(2, 3), Region(1, 3), Region(3, 3)])
def test_a_part_put_back_is_the_text(text, region):
    source = make_source(text.encode(), "a")

    assert text == replace_region(text, region, region_source(source, region).text)


def test_a_part_keeps_its_language():
    assert region_source(SOURCE, Region(2, 3)).name.endswith("a.py")
