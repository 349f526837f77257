"""Refactorings of small texts by our code, jedi, Ruff and ast-grep: right, refused or wrong, as a table.

The cases and traps are in `tests/refactoring/cases.toml`. The others do what they do by themselves: jedi renames
the first definition of the name, Ruff fixes I001 and F401, ast-grep replaces every identifier with this text.

    python -m tools.refactoring_cases [--wrong]
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from specchat.edit.operations import (
    AddParameter,
    Move,
    NameKind,
    Operation,
    Removable,
    Remove,
    RemoveDefinition,
    Rename,
    SetValue,
    SortImports,
)
from specchat.edit.source_text import make_source
from specchat.refactoring.find_refactoring import make_refactoring, plan_refactorings
from specchat.refactoring.python_imports import ruff_fixes
from specchat.refactoring.python_rename import rename_in_python
from specchat.refactoring.splices import RefusedError, splice_text, whole_area
from specchat.syntax.languages import LANGUAGES
from specchat_bench.columns import markdown_table

CASES = Path(__file__).parents[1] / "tests" / "refactoring" / "cases.toml"
Texts = dict[str, str]


class Outcome(StrEnum):
    RIGHT = "right"
    REFUSED = "refused"  # although it can be done
    WRONG = "wrong"


@dataclass(frozen=True)
class Case:
    """Some files and an operation; `after` is None when it has to be refused."""

    operation: Operation | str  # a string: in the words of a person
    language: str
    files: Texts
    after: Texts | None
    trap: str = ""
    beside: Texts = field(default_factory=dict[str, str])

    @property
    def kind(self) -> str:
        match self.operation:
            case str():
                return "in words"
            case Rename():
                return f"rename in {'Python' if self.language == 'python' else 'other languages'}"
            case Remove(what=what):
                return f"remove {what}"
            case RemoveDefinition():
                return "remove a definition"
            case SortImports():
                return "sort imports"
            case SetValue():
                return "set a value"
            case AddParameter():
                return "add a parameter"
            case Move():
                return "move a statement"

    def judge(self, made: Texts | None) -> Outcome:
        """Of the new texts, or None for a refusal; where there is a trap, to change nothing is one."""
        if made is None or (made == self.files and self.after != self.files):
            return Outcome.RIGHT if self.after is None or self.trap else Outcome.REFUSED
        return Outcome.RIGHT if made == self.after else Outcome.WRONG


def read_cases(path: Path = CASES) -> list[Case]:
    rows: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["case"]
    return [_case(row) for row in rows]


def _case(row: Mapping[str, Any]) -> Case:
    language = row.get("language", "python")
    name = row.get("name_of_file", f"a{LANGUAGES[language].suffixes[0]}")
    files = row.get("files") or {name: row["before"]}
    after = row.get("after_files") or ({name: row["after"]} if "after" in row else None)
    beside = {row.get("beside_name", "b.py"): row["beside"]} if "beside" in row else {}
    return Case(_operation(row), language, files, after, row.get("trap", ""), beside)


def _operation(row: Mapping[str, Any]) -> Operation | str:
    kind, scope = NameKind(row.get("kind", "")), row.get("scope", "")
    match row["operation"]:
        case "words":
            return row["words"]
        case "rename":
            return Rename(row["old"], row["new"], kind, scope)
        case "remove":
            return Remove(Removable(row["what"]), scope, bool(row.get("is_single")), row.get("called", ""))
        case "remove definition":
            return RemoveDefinition(row["name"], kind, scope)
        case "sort imports":
            return SortImports()
        case "set":
            return SetValue(row["name"], row["value"], kind, scope, row.get("old_value", ""))
        case "move":
            return Move(row["name"], row["anchor"], row.get("side", "before") == "before")
        case _:
            return AddParameter(row["function"], row["name"], row["value"])


def by_us(case: Case, folder: Path) -> Texts | None:
    names = {name: str(folder / name) for name in case.files}
    if len(case.files) > 1:
        assert isinstance(case.operation, Rename)
        try:
            steps = rename_in_python({names[name]: text for name, text in case.files.items()}, case.operation)
        except RefusedError:
            return None
        return {name: steps[names[name]].apply(text) for name, text in case.files.items()}
    name, text = next(iter(case.files.items()))
    source = make_source(text.encode(), names[name])
    try:
        if isinstance(case.operation, str):
            planned = plan_refactorings([source], case.operation)
            return {name: planned[0].text} if planned else None
        return {name: make_refactoring(source, [case.operation]).text}
    except RefusedError:
        return None


def by_jedi(case: Case, folder: Path) -> Texts | None:
    """What jedi's own renaming makes of it."""
    import jedi

    if not isinstance(case.operation, Rename) or case.language != "python":
        return None
    for name, text in case.files.items():
        script = jedi.Script(text, path=folder / name, project=jedi.Project(folder))
        try:
            named = script.get_names(all_scopes=True)
            found = next(each for each in named if each.name == case.operation.old)
            changed = script.rename(found.line, found.column, new_name=case.operation.new).get_changed_files()
        except (StopIteration, jedi.RefactoringError, ValueError, AttributeError):
            continue
        return case.files | {path.relative_to(folder).as_posix(): each.get_new_code() for path, each in changed.items()}
    return None


def by_ruff(case: Case, folder: Path) -> Texts | None:
    name, text = next(iter(case.files.items()))
    is_unused = isinstance(case.operation, Remove) and case.operation.what is Removable.UNUSED_IMPORTS
    if case.language != "python" or not (is_unused or isinstance(case.operation, SortImports)):
        return None
    try:
        return {
            name: splice_text(
                text, ruff_fixes(text, str(folder / name), "F401" if is_unused else "I", whole_area(text))
            )
        }
    except RefusedError:
        return None


def by_ast_grep(case: Case, _folder: Path) -> Texts | None:
    from ast_grep_py import SgRoot

    if not isinstance(case.operation, Rename) or case.language not in AST_GREP_LANGUAGES:
        return None
    made = Texts()
    for name, text in case.files.items():
        root = SgRoot(text, AST_GREP_LANGUAGES[case.language]).root()
        found = root.find_all(regex=f"^{case.operation.old}$")
        edits = [node.replace(case.operation.new) for node in found if node.is_named() and not node.children()]
        made[name] = root.commit_edits(edits)
    return made


AST_GREP_LANGUAGES: Mapping[str, str] = {
    "python": "python", "javascript": "javascript", "typescript": "typescript", "tsx": "tsx", "c": "c", "cpp": "cpp",
    "go": "go", "rust": "rust", "java": "java", "bash": "bash",
}  # fmt: skip
TOOLS: Mapping[str, Callable[[Case, Path], Texts | None]] = {
    "specchat": by_us, "jedi": by_jedi, "Ruff": by_ruff, "ast-grep": by_ast_grep,
}  # fmt: skip
KNOWN: Mapping[str, tuple[str, ...]] = {  # what a tool can do at all
    "jedi": ("rename in Python",), "Ruff": ("sort imports", "remove unused imports"),
    "ast-grep": ("rename in Python", "rename in other languages"),
}  # fmt: skip


def run_case(case: Case, tool: Callable[[Case, Path], Texts | None] = by_us) -> tuple[Outcome, Texts | None]:
    """The outcome, and what was made; the files are on a disk when there are several or others beside them."""
    with TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        if case.beside or len(case.files) > 1:
            (root / "pyproject.toml").touch()
            for name, text in {**case.files, **case.beside}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
        made = tool(case, root)
    return case.judge(made), made


def table(cases: Sequence[Case]) -> str:
    kinds = list(dict.fromkeys(case.kind for case in cases))
    rows: list[list[str]] = []
    for kind in kinds:
        these = [case for case in cases if case.kind == kind]
        row = [kind, str(len(these)), str(sum(bool(case.trap) for case in these))]
        for name, tool in TOOLS.items():
            if kind not in KNOWN.get(name, kinds):
                row.append("")
                continue
            found = Counter(run_case(case, tool)[0] for case in these)
            row.append(" / ".join(str(found[each]) for each in Outcome))
        rows.append(row)
    return markdown_table(["operation", "cases", "traps", *TOOLS], rows)


@click.command()
@click.option("--wrong", "is_wrong", is_flag=True, help="Show what our code makes wrong or refuses, and no table.")
def main(is_wrong: bool) -> None:
    """Right / refused / wrong of each tool."""
    cases = read_cases()
    if not is_wrong:
        click.echo(table(cases))
        return
    for case in cases:
        outcome, made = run_case(case)
        if outcome is not Outcome.RIGHT:
            click.echo(f"{outcome}: {case.operation} {case.trap}\n{case.files}\n-> {made}\n")


if __name__ == "__main__":
    main()
