"""How long a text a model rewrites by itself: edits that no operation makes, of texts from 10 to 80 lines.

*right*: `specchat edit -y` takes the new text, and it has what was asked for; *wrong*: it takes one without that.

    python -m tools.measure_rewrites --target starter
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle
from threading import Event as Flag

import click

from specchat.app.edit_session import EditSession, edit_request
from specchat.app.edit_task import EditJob, run_edit
from specchat.edit.contract import check_unreviewed
from specchat.edit.edit_turn import result_of
from specchat.edit.source_text import make_source
from specchat.errors import SpecchatError
from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from specchat_bench.columns import markdown_table

LINE_COUNTS = (10, 20, 40, 80)
FUNCTIONS = {
    "load": 'def load(path):\n    """Read a file."""\n    with open(path) as file:\n        return file.read()\n',
    "total": "def total(items):\n    result = 0\n    for item in items:\n        result += item.price\n"
    "    return result\n",
    "check": 'def check(text):\n    if not text:\n        raise ValueError("empty")\n    return text.strip()\n',
    "words": "def words(text):\n    found = []\n    for word in text.split():\n        found.append(word.lower())\n"
    "    return found\n",
}
Right = Callable[[str, str], bool]
EDITS: Mapping[str, tuple[str, Right]] = {
    "total": ("add a docstring to total", lambda old, new: new.count('"""') > old.count('"""')),
    "check": (
        'in check, replace the message "empty" by "no text"',
        lambda old, new: new == old.replace('"empty"', '"no text"'),
    ),
    "load": ("let load open the file with the encoding utf-8", lambda _old, new: 'encoding="utf-8"' in new),
    "words": ("make words a list comprehension", lambda _old, new: "[word.lower() for word in text.split()]" in new),
}


def text_around(name: str, lines: int) -> str:
    """A text of about so many lines with this function in the middle; the others get numbers, so that none repeats."""
    others = cycle([each for each in FUNCTIONS if each != name])
    parts = [FUNCTIONS[name]]
    while "\n\n".join(parts).count("\n") < lines - 3:
        other = next(others)
        parts.insert(len(parts) // 2 if len(parts) % 2 else len(parts), _numbered(other, len(parts)))
    return "\n\n".join(parts)


def _numbered(name: str, number: int) -> str:
    return FUNCTIONS[name].replace(f"def {name}", f"def {name}_{number}")


def outcome_of(name: str, lines: int, session: EditSession) -> str:
    instruction, is_right = EDITS[name]
    source = make_source(text_around(name, lines).encode(), "a.py")
    try:
        job = EditJob(source, instruction, session.window_tokens, ability=session.ability)
        result = result_of(run_edit(job, session.new_run()))
        check_unreviewed(source, result.warnings)
    except SpecchatError as error:
        click.echo(f"{lines} lines, {instruction}: {error}", err=True)
        return "refused"
    return "right" if is_right(source.text, result.text) else "wrong"


@click.command()
@click.option("--target", required=True)
def main(target: str) -> None:
    """Measure how long a text a model rewrites."""
    request = edit_request(SessionRequest(settings=read_settings(options={"models.target": target})))
    rows: list[list[str]] = []
    with EditSession(request, Flag()) as session:
        for lines in LINE_COUNTS:
            outcomes = [outcome_of(name, lines, session) for name in EDITS]
            rows.append([str(lines), *(str(outcomes.count(each)) for each in ("right", "refused", "wrong"))])
    click.echo(markdown_table(["lines", "right", "refused", "wrong"], rows))


if __name__ == "__main__":
    main()
