"""The edits of `tools/edit_table.py`: mechanical ones of real files, EditEval, traps, and sketches of real commits.

What is right is never found by the code that is measured: it is written by hand (`mechanical_edits.toml`, the traps of
`tests/refactoring/cases.toml`), decided by tests (EditEval), or what a commit made (sketches).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from specchat.edit.operations import NameKind, Remove, Rename, SetValue
from tools.measure_edits import MeasuredCase, editeval_cases
from tools.refactoring_cases import Case as RefactoringCase
from tools.refactoring_cases import Outcome, read_cases
from tools.replay_edits import read_edit_cases
from tools.sketch_table import LEFT_OUT, STYLES, as_shown, is_right_text

EDITS = Path(__file__).with_name("mechanical_edits.toml")
FILES = Path(__file__).with_name("edit_files")
SKETCHES = 100
Texts = Mapping[str, str]


@dataclass(frozen=True)
class TableCase:
    """An edit of some files, the new text of the first one where it is known, and whether new texts are right."""

    group: str
    key: str
    instruction: str
    files: Texts
    wanted: str
    is_right: Callable[[Texts], bool]
    beside: Texts = field(default_factory=dict[str, str])
    sketch: str = ""

    @property
    def name(self) -> str:
        return next(iter(self.files))

    @property
    def text(self) -> str:
        return self.files[self.name]


def mechanical_cases(path: Path = EDITS) -> Iterator[TableCase]:
    for number, row in enumerate(tomllib.loads(path.read_text(encoding="utf-8"))["edit"]):
        name, words = row["file"], row["words"]
        text = (FILES / f"{name}.txt").read_text(encoding="utf-8")
        before = substitute(text, row.get("first", ()), words)
        wanted = text if row.get("back") else substitute(before, row["change"], words)
        yield TableCase("mechanical", f"{number} {name}", words, {name: before}, wanted, partial(_is, {name: wanted}))


def substitute(text: str, changes: Sequence[Sequence[Any]], words: str) -> str:
    """[old, new]: the one place of these characters; [old, new, count]: a whole word in so many places."""
    for old, new, *count in changes:
        pattern = rf"(?<!\w){re.escape(old)}(?!\w)" if count else re.escape(old)
        text, found = re.subn(pattern, lambda _match, new=new: new, text)
        assert found == (count[0] if count else 1), f"{words}: {old!r} is there {found} times"
    return text


def _is(wanted: Texts, texts: Texts) -> bool:
    return texts == wanted


def eval_cases(path: Path) -> Iterator[TableCase]:
    for case in editeval_cases(path, 10**6, seed=1):
        is_right = partial(_passes, case)
        yield TableCase("EditEval", case.name, case.instruction, {"code.py": case.text}, case.wanted, is_right)


def _passes(case: MeasuredCase, texts: Texts) -> bool:
    text = texts["code.py"]
    return is_right_text(text, case.wanted) or case.is_right(text)


def trap_cases() -> Iterator[TableCase]:
    """Texts in which a plain tool goes wrong, with the operation in words; to refuse it is right, too."""
    for number, case in enumerate(each for each in read_cases() if each.trap):
        wanted = next(iter((case.after or case.files).values()))
        is_right = lambda texts, case=case: case.judge(dict(texts)) is Outcome.RIGHT
        words = in_words(case)
        yield TableCase("traps", f"{number} {case.kind}", words, case.files, wanted, is_right, case.beside)


def in_words(case: RefactoringCase) -> str:
    """What a person would say: the operation with the kind of the name."""
    match case.operation:
        case str(words):
            return words
        case Rename(kind=kind) as rename if kind:
            return str(rename).replace("rename ", f"rename the {kind} ", 1)
        case SetValue(kind=NameKind.PARAMETER) as change:
            return str(change).replace("change ", "change the default of ", 1)
        case Remove(is_single=True) as remove:
            return str(remove).replace("the prints", "the print").replace("s in", " in").replace("calls", "call")
        case operation:
            return str(operation)


def sketch_cases(path: Path, count: int = SKETCHES) -> Iterator[TableCase]:
    """A sketch of each commit, in the next style in which it can be made."""
    styles = cycle(STYLES)
    edits = (each for each in read_edit_cases(path) if each.after not in (None, each.before))
    for number, edit in enumerate(islice(edits, count)):
        assert edit.after is not None
        made = ((style, STYLES[style](edit.path, edit.before, edit.after)) for style in islice(styles, len(STYLES)))
        style, sketch = next((style, sketch) for style, sketch in made if sketch)
        is_right = partial(_is_as_sketched, edit.path, edit.after, sketch if style == LEFT_OUT else "")
        files = {edit.path: edit.before}
        yield TableCase("sketches", f"{number} {style}", "", files, edit.after, is_right, sketch=sketch)


def _is_as_sketched(path: str, wanted: str, sketch: str, texts: Texts) -> bool:
    return is_right_text(texts[path], wanted) or bool(sketch and as_shown(texts[path], sketch))
