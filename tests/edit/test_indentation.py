"""The indentation of chosen lines, a method and a nested function survives an edit in each format of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from textwrap import dedent

import pytest

from specchat.app.edit_task import EditJob, run_edit
from specchat.app.model_ability import ModelAbility
from specchat.edit.edit_plan import Region
from specchat.edit.edit_turn import EditRun, result_of
from specchat.edit.source_text import make_source
from tests.each_row import each_row
from tests.edit.scripted import answers
from tests.scripted_session import ScriptedSession

PYTHON = """\
import os


class Store:
    def load(self, path):
        def check(name):
            if name:
                return name.strip()
            return ""

        for name in os.listdir(path):
            self.add(check(name))

    def add(self, name):
        self.names.append(name)


store = Store()
"""
JAVASCRIPT = """\
class Store {
    load(path) {
        const check = function check(name) {
            return name.trim();
        };
        for (const name of list(path)) {
            this.add(check(name));
        }
    }

    add(name) {
        this.names.push(name);
    }
}
"""
# the line below which a call that prints is to go, its indentation, and how many lines from there are chosen
PLACES = {
    "a.py": {
        "a method": ("    def add(self, name):\n", 8, 2),
        "a nested function": ("        def check(name):\n", 12, 4),
        "a line in a method": ("            self.add(check(name))\n", 12, 1),
    },
    "a.js": {
        "a method": ("    add(name) {\n", 8, 3),
        "a line in a method": ("            this.add(check(name));\n", 12, 1),
    },
}
STYLES = ("as it is", "at the margin", "blanks for tabs")
FORMATS = ("whole", "region", "blocks", "blocks in lines")


def with_tabs(text: str) -> str:
    return text.replace("    ", "\t")


def edits() -> Iterator[tuple[str, str, str, str, bool, bool]]:
    """Each file with each place, in each format and style, with tabs and with CRLF."""
    for name, places in PLACES.items():
        for place, format_, style, has_tabs, is_crlf in product(places, FORMATS, STYLES, (False, True), (False, True)):
            if style != "blanks for tabs" or has_tabs:
                yield name, place, format_, style, has_tabs, is_crlf


@pytest.mark.full
@each_row("name, place, format_, style, has_tabs, is_crlf", edits)
def test_indentation_survives(name, place, format_, style, has_tabs, is_crlf):
    text = PYTHON if name == "a.py" else JAVASCRIPT
    above, indent, lines = PLACES[name][place]
    added = " " * indent + ("print(name)\n" if name == "a.py" else "console.log(name);\n")
    first = text[: text.index(above)].count("\n")
    chosen = "".join(text.splitlines(keepends=True)[first : first + lines])
    new_chosen = chosen.replace(above, above + added)

    answer = {
        "whole": text.replace(above, above + added),
        "region": new_chosen,
        "blocks": f"<<<<<<< SEARCH\n{above}=======\n{above}{added}>>>>>>> REPLACE\n",
    }[format_.partition(" ")[0]]
    if style == "at the margin" and format_ != "whole":
        sides = (chosen, new_chosen) if format_ == "region" else (above, above + added)
        answer = (
            dedent(sides[1])
            if format_ == "region"
            else (f"<<<<<<< SEARCH\n{dedent(above)}=======\n{dedent(above + added)}>>>>>>> REPLACE\n")
        )
    tabbed = with_tabs if has_tabs else str
    answer = answer if style == "blanks for tabs" else tabbed(answer)
    end = "\r\n" if is_crlf else "\n"
    raw, right = (tabbed(each).replace("\n", end).encode() for each in (text, text.replace(above, above + added)))

    region = Region(first + 1, first + lines) if format_ in ("region", "blocks in lines") else None
    ability = ModelAbility(False, chosen_format=format_.partition(" ")[0])
    job = EditJob(make_source(raw, name), "print the name, too", 10_000, region, ability=ability)
    session = ScriptedSession(answers(answer))
    result = result_of(run_edit(job, EditRun(session)))

    assert format_.partition(" ")[0] == result.plan.format
    assert right == job.source.encode(result.text)
    assert 1 == len(session.requests)
