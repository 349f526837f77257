"""What can be done to a selection, as an editor lists it: a title, and what the model is told. Knows no engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from lsprotocol import types

from specchat.edit.scope import Region
from specchat.editors.lsp.documents import Document
from specchat.editors.lsp.initialization_options import Settings
from specchat.editors.lsp.request_guard import bad_params
from specchat.syntax import definitions, enclosing, language_of

COMMAND, EXPLAIN = "specchat.edit", "specchat.explain"
REWRITE, FIX = types.CodeActionKind.RefactorRewrite, types.CodeActionKind.QuickFix
# "# specchat: make it a generator": an instruction for editors that cannot ask for one
ASKING = re.compile(r"^\s*(?:#|//|--|;|%|/\*|<!--)\s*specchat:\s*(.+?)\s*(?:\*/|-->)?\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Rewrite:
    """One entry: its title, its kind, what the model is told, and a sign without which it makes no sense."""

    title: str
    kind: types.CodeActionKind
    instruction: str
    sign: re.Pattern[str] = re.compile("")


# Renaming is the editor's own: it knows every place.
REWRITES = (
    Rewrite("add docstring", REWRITE, "Add a docstring to {name}", re.compile(r"\b(def|class|fn|func|function)\b")),
    Rewrite("add type hints", REWRITE, "Add type hints", re.compile(r"\bdef\b")),
    Rewrite("fix comparison", FIX, "Fix the comparison that is the wrong way round", re.compile(r"[<>]|[!=]=")),
    Rewrite("remove prints", REWRITE, "Remove the prints", re.compile(r"\b(print|console\.log|println!?|printf)\s*\(")),
)


@dataclass(frozen=True)
class Wanted:
    """A rewrite of some lines of a text, at the version at which it was offered."""

    uri: str
    version: int | None
    first: int  # from 1
    last: int
    instruction: str

    @property
    def region(self) -> Region:
        """The lines."""
        return Region(self.first, self.last)


def offered(
    document: Document,
    selection: types.Range,
    only: list[str],
    settings: Settings,
    *,
    can_resolve: bool,
    can_show: bool,
) -> list[types.CodeAction]:
    """The entries for a selection; for a mere cursor they are about the definition it is in."""
    region = selected_lines(document, selection)
    if region is None:
        return []
    text = document.lines(region)
    actions: list[types.CodeAction] = []
    if asked := ASKING.search(text):
        wanted = _wanted(document, region, f"{asked[1]}; and remove the comment that asks for it")
        actions.append(_action(f"specchat: {asked[1]}", REWRITE, wanted, can_resolve=can_resolve))
    for rewrite in REWRITES:
        if rewrite.sign.search(text):
            wanted = _wanted(document, region, rewrite.instruction.format(name=region.name or "it"))
            actions.append(_action(f"specchat: {rewrite.title}", rewrite.kind, wanted, can_resolve=can_resolve))
    if text.strip() and can_show:
        actions.append(_explanation(document, region))
    if settings.edit_command:
        actions.append(_question(settings.edit_command, document, region))
    return [action for action in actions if _is_wanted(str(getattr(action.kind, "value", "")), only)]


def selected_lines(document: Document, selection: types.Range) -> Region | None:
    """The lines of a selection, one that ends before a line's first letter without that line; None for nowhere."""
    lines = document.text.split("\n")
    first, end = selection.start.line + 1, selection.end.line + 1
    if selection.start == selection.end:
        found = definitions(document.text, language_of(document.name, document.text))
        around = enclosing(found, first)
        return Region(around.first, around.last, around.name) if around else None
    if selection.end.character == 0 and end > first:
        end -= 1
    return Region(first, min(end, len(lines))) if first <= len(lines) else None


def read_wanted(data: Any) -> Wanted:
    """What an editor sends back: our own data, or the arguments of the command."""
    given = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    kinds: Mapping[str, Any] = {"uri": str, "version": int | None, "first": int, "last": int, "instruction": str}
    values: dict[str, Any] = {name: given.get(name) for name in kinds}
    wrong = [name for name, kind in kinds.items() if not isinstance(values[name], kind)]
    if wrong or not 1 <= given["first"] <= given["last"] or not given["instruction"].strip():
        raise bad_params(f"{COMMAND}: {wrong[0] if wrong else 'the lines or the instruction'} must be given otherwise")
    return Wanted(**values)


def _wanted(document: Document, region: Region, instruction: str) -> Wanted:
    return Wanted(document.uri, document.version, region.first, region.last, instruction)


def _action(title: str, kind: types.CodeActionKind, wanted: Wanted, *, can_resolve: bool) -> types.CodeAction:
    """An entry whose edit is computed when it is chosen: by `resolve`, or by a command where there is no such thing."""
    if can_resolve:
        return types.CodeAction(title, kind, data=asdict(wanted))
    return types.CodeAction(title, kind, command=types.Command(title, COMMAND, arguments=[asdict(wanted)]))


def _explanation(document: Document, region: Region) -> types.CodeAction:
    """An entry that changes nothing, and so has no kind: an editor that asks for edits only does not list it."""
    title = "specchat: explain"
    arguments = [asdict(_wanted(document, region, "explain"))]
    return types.CodeAction(
        title, types.CodeActionKind.Empty, command=types.Command(title, EXPLAIN, arguments=arguments)
    )


def _question(command: str, document: Document, region: Region) -> types.CodeAction:
    """An entry that has the editor ask for an instruction; its command calls ours with it."""
    title = "specchat: edit…"
    arguments = [asdict(_wanted(document, region, ""))]
    return types.CodeAction(title, REWRITE, command=types.Command(title, command, arguments=arguments))


def _is_wanted(kind: str, only: list[str]) -> bool:
    return not only or any(kind == each or kind.startswith(f"{each}.") for each in only)
