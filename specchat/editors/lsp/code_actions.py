"""What can be done to a selection, as an editor lists it: a title, and what the model is told. Knows no engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from lsprotocol import types

from specchat.edit.edit_regions import Region
from specchat.editors.lsp.initialization_options import InitializationOptions
from specchat.editors.lsp.request_guard import invalid_params
from specchat.editors.lsp.text_documents import Document
from specchat.syntax import definitions, enclosing_definition, language_of

EDIT_COMMAND, EXPLAIN_COMMAND = "specchat.edit", "specchat.explain"
REWRITE_KIND, QUICK_FIX_KIND = types.CodeActionKind.RefactorRewrite, types.CodeActionKind.QuickFix
# "# specchat: make it a generator": an instruction for editors that cannot ask for one
INSTRUCTION_COMMENT = re.compile(r"^\s*(?:#|//|--|;|%|/\*|<!--)\s*specchat:\s*(.+?)\s*(?:\*/|-->)?\s*$", re.MULTILINE)


@dataclass(frozen=True)
class RewriteAction:
    """One entry: its title, its kind, what the model is told, and a sign without which it makes no sense."""

    title: str
    kind: types.CodeActionKind
    instruction: str
    applies_to: re.Pattern[str] = re.compile("")


# Renaming is the editor's own: it knows every place.
REWRITE_ACTIONS = (
    RewriteAction(
        "add docstring", REWRITE_KIND, "Add a docstring to {name}", re.compile(r"\b(def|class|fn|func|function)\b")
    ),
    RewriteAction("add type hints", REWRITE_KIND, "Add type hints", re.compile(r"\bdef\b")),
    RewriteAction(
        "fix comparison", QUICK_FIX_KIND, "Fix the comparison that is the wrong way round", re.compile(r"[<>]|[!=]=")
    ),
    RewriteAction(
        "remove prints", REWRITE_KIND, "Remove the prints", re.compile(r"\b(print|console\.log|println!?|printf)\s*\(")
    ),
)


@dataclass(frozen=True)
class EditRequest:
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


def list_code_actions(
    document: Document,
    selection: types.Range,
    only: list[str],
    options: InitializationOptions,
    *,
    can_resolve: bool,
    can_show_document: bool,
) -> list[types.CodeAction]:
    """The entries for a selection; for a mere cursor they are about the definition it is in."""
    region = selected_region(document, selection)
    if region is None:
        return []
    text = document.region_text(region)
    actions: list[types.CodeAction] = []
    if asked := INSTRUCTION_COMMENT.search(text):
        wanted = _edit_request(document, region, f"{asked[1]}; and remove the comment that asks for it")
        actions.append(_edit_action(f"specchat: {asked[1]}", REWRITE_KIND, wanted, can_resolve=can_resolve))
    for rewrite in REWRITE_ACTIONS:
        if rewrite.applies_to.search(text):
            wanted = _edit_request(document, region, rewrite.instruction.format(name=region.name or "it"))
            actions.append(_edit_action(f"specchat: {rewrite.title}", rewrite.kind, wanted, can_resolve=can_resolve))
    if text.strip() and can_show_document:
        actions.append(_explain_action(document, region))
    if options.edit_command:
        actions.append(_custom_edit_action(options.edit_command, document, region))
    return [action for action in actions if _matches_kind(str(getattr(action.kind, "value", "")), only)]


def selected_region(document: Document, selection: types.Range) -> Region | None:
    """The lines of a selection, one that ends before a line's first letter without that line; None for nowhere."""
    lines = document.text.split("\n")
    first, end = selection.start.line + 1, selection.end.line + 1
    if selection.start == selection.end:
        found = definitions(document.text, language_of(document.name, document.text))
        around = enclosing_definition(found, first)
        return Region(around.first_line, around.last_line, around.name) if around else None
    if selection.end.character == 0 and end > first:
        end -= 1
    return Region(first, min(end, len(lines))) if first <= len(lines) else None


def parse_edit_request(data: Any) -> EditRequest:
    """What an editor sends back: our own data, or the arguments of the command."""
    given = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    kinds: Mapping[str, Any] = {"uri": str, "version": int | None, "first": int, "last": int, "instruction": str}
    values: dict[str, Any] = {name: given.get(name) for name in kinds}
    wrong = [name for name, kind in kinds.items() if not isinstance(values[name], kind)]
    if wrong or not 1 <= given["first"] <= given["last"] or not given["instruction"].strip():
        raise invalid_params(
            f"{EDIT_COMMAND}: {wrong[0] if wrong else 'the lines or the instruction'} must be given otherwise"
        )
    return EditRequest(**values)


def _edit_request(document: Document, region: Region, instruction: str) -> EditRequest:
    return EditRequest(document.uri, document.version, region.first, region.last, instruction)


def _edit_action(
    title: str, kind: types.CodeActionKind, request: EditRequest, *, can_resolve: bool
) -> types.CodeAction:
    """An entry whose edit is computed when it is chosen: by `resolve`, or by a command where there is no such thing."""
    if can_resolve:
        return types.CodeAction(title, kind, data=asdict(request))
    return types.CodeAction(title, kind, command=types.Command(title, EDIT_COMMAND, arguments=[asdict(request)]))


def _explain_action(document: Document, region: Region) -> types.CodeAction:
    """An entry that changes nothing, and so has no kind: an editor that asks for edits only does not list it."""
    title = "specchat: explain"
    arguments = [asdict(_edit_request(document, region, "explain"))]
    return types.CodeAction(
        title, types.CodeActionKind.Empty, command=types.Command(title, EXPLAIN_COMMAND, arguments=arguments)
    )


def _custom_edit_action(command: str, document: Document, region: Region) -> types.CodeAction:
    """An entry that has the editor ask for an instruction; its command calls ours with it."""
    title = "specchat: edit…"
    arguments = [asdict(_edit_request(document, region, ""))]
    return types.CodeAction(title, REWRITE_KIND, command=types.Command(title, command, arguments=arguments))


def _matches_kind(kind: str, only: list[str]) -> bool:
    return not only or any(kind == each or kind.startswith(f"{each}.") for each in only)
