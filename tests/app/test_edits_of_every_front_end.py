"""One edit through each front end, over the fake engine: what becomes of the text, and what the user is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.front import command

pytestmark = pytest.mark.usefixtures("runtime")
OLD = "total = 1\nprint(total)\n"
ALLOWED = {"outcome": {"outcome": "selected", "optionId": "allow"}}


@dataclass(frozen=True)
class Made:
    """The text after an edit, and all that was shown."""

    text: str
    shown: str


def by_command(file: Path, instruction: str, patch: pytest.MonkeyPatch) -> Made:
    ran = command(patch, "edit", file.name, instruction, "-y")
    return Made(file.read_text(), ran.err)


def by_filter(file: Path, instruction: str, patch: pytest.MonkeyPatch) -> Made:
    ran = command(patch, "edit", "-", instruction, "--stderr", "--lang", "py", stdin=OLD.encode())
    return Made(ran.out.decode(), ran.err)


def by_line_mode(file: Path, instruction: str, patch: pytest.MonkeyPatch) -> Made:
    ran = command(patch, "chat", stdin=f"/edit {file.name} {instruction}\na\n".encode())
    return Made(file.read_text(), ran.out.decode() + ran.err)


def by_program(file: Path, instruction: str, patch: pytest.MonkeyPatch) -> Made:
    ran = command(patch, "-p", f"/edit {file.name} {instruction}", "--json", "--edit", "auto")
    return Made(file.read_text(), ran.out.decode().replace("\\n", "\n"))


FrontEnd = Callable[[Path, str, pytest.MonkeyPatch], Made]
DECIDING: tuple[FrontEnd, ...] = (by_line_mode,)  # where a person decides about the text
REFUSING: tuple[FrontEnd, ...] = (by_command, by_filter, by_program)  # where nobody does
LOST = "`print(total)` would be lost, nothing asked for that"
# the instruction, the text afterwards where a person decides and where nobody does, what is shown
TABLE = [
    ("replace total amount", "amount = 1\nprint(amount)\n", "amount = 1\nprint(amount)\n", ""),
    ("write total = (", OLD, OLD, "does not parse"),
    ("write total = (", OLD, OLD, "+total = ("),
    ("write I cannot do that", OLD, OLD, "refusal"),
    ("replace absent other", OLD, OLD, "changed nothing"),
    ("write total = 1", "total = 1\n", OLD, LOST),
]


def faults_of(
    deciding: Sequence[FrontEnd], refusing: Sequence[FrontEnd], folder: Path, patch: pytest.MonkeyPatch
) -> list[str]:
    """What front ends take, refuse and show otherwise than the table says; plugins ask about theirs, too."""
    patch.chdir(folder)
    file, wrong = folder / "a.py", list[str]()
    for instruction, decided, refused, shown in TABLE:
        for front_end in (*deciding, *refusing):
            file.write_text(OLD)
            made = front_end(file, instruction, patch)
            if (decided if front_end in deciding else refused) != made.text or shown not in made.shown:
                wrong.append(f"{front_end.__name__}: {instruction}: {made}")
    return wrong


def test_every_front_end_takes_refuses_and_shows_the_same(tmp_path, monkeypatch):
    wrong = faults_of(DECIDING, REFUSING, tmp_path, monkeypatch)

    assert not wrong, "\n\n".join(wrong)
