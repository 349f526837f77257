"""The code actions for a selection: titles and instructions. Knows no engine."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from specchat.edit.edit_plan import Region
from specchat.syntax import definitions, enclosing_definition, language_of
from specchat_editors.lsp.initialization_options import InitializationOptions
from specchat_editors.lsp.text_documents import Document

EDIT_COMMAND, EXPLAIN_COMMAND = "specchat.edit", "specchat.explain"
REWRITE_KIND, QUICK_FIX_KIND = types.CodeActionKind.RefactorRewrite, types.CodeActionKind.QuickFix
# "# specchat: make it a generator": an instruction for editors that cannot prompt for one
INSTRUCTION_COMMENT = re.compile(r"^\s*(?:#|//|--|;|%|/\*|<!--)\s*specchat:\s*(.+?)\s*(?:\*/|-->)?\s*$", re.MULTILINE)


@dataclass(frozen=True)
class RewriteAction:
    """One code action; it is offered where the pattern `applies_to` is found."""

    title: str
    kind: types.CodeActionKind
    instruction: str
    applies_to: str


# Without a renaming: editors rename across files by themselves.
REWRITE_ACTIONS = (
    RewriteAction("add docstring", REWRITE_KIND, "Add a docstring to {name}", r"\b(def|class|fn|func|function)\b"),
    RewriteAction("add type hints", REWRITE_KIND, "Add type hints", r"\bdef\b"),
    RewriteAction("fix comparison", QUICK_FIX_KIND, "Fix the comparison that is the wrong way round", r"[<>]|[!=]="),
    RewriteAction("remove prints", REWRITE_KIND, "Remove the prints", r"\b(print|console\.log|println!?|printf)\s*\("),
)


@dataclass(frozen=True)
class EditRequest:
    """An instruction for lines of a document, at the version at which it was offered."""

    uri: str
    version: int | None
    first: int  # from 1
    last: int
    instruction: str

    @property
    def region(self) -> Region:
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
    """The code actions for a selection; for a cursor those for the enclosing definition."""
    region = selected_region(document, selection)
    if region is None:
        return []
    text = document.region_text(region)
    actions: list[types.CodeAction] = []
    if comment := INSTRUCTION_COMMENT.search(text):
        request = _edit_request(document, region, f"{comment[1]}; and remove the comment that asks for it")
        actions.append(_edit_action(f"specchat: {comment[1]}", REWRITE_KIND, request, can_resolve=can_resolve))
    for rewrite in REWRITE_ACTIONS:
        if re.search(rewrite.applies_to, text):
            request = _edit_request(document, region, rewrite.instruction.format(name=region.name or "it"))
            actions.append(_edit_action(f"specchat: {rewrite.title}", rewrite.kind, request, can_resolve=can_resolve))
    if text.strip() and can_show_document:
        # it changes nothing and so has no kind: an editor that filters for edits does not list it
        request = _edit_request(document, region, "explain")
        actions.append(_command_action("specchat: explain", types.CodeActionKind.Empty, EXPLAIN_COMMAND, request))
    if options.edit_command:  # a command of the editor, which prompts for an instruction
        request = _edit_request(document, region, "")
        actions.append(_command_action("specchat: edit…", REWRITE_KIND, options.edit_command, request))
    return [action for action in actions if _matches_kind(str(getattr(action.kind, "value", "")), only)]


def selected_region(document: Document, selection: types.Range) -> Region | None:
    """The selected lines; a selection that ends at the start of a line does not include it. None if there are none."""
    lines = document.text.split("\n")
    first, end = selection.start.line + 1, selection.end.line + 1
    if selection.start == selection.end:
        all_definitions = definitions(document.text, language_of(document.name, document.text))
        found = enclosing_definition(all_definitions, first)
        return Region(found.first_line, found.last_line, found.name) if found else None
    if selection.end.character == 0 and end > first:
        end -= 1
    return Region(first, min(end, len(lines))) if first <= len(lines) else None


def parse_edit_request(data: Any) -> EditRequest:
    """Parse what an editor sends back: the data of a code action, or the arguments of the command."""
    fields = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    field_types: Mapping[str, Any] = {"uri": str, "version": int | None, "first": int, "last": int, "instruction": str}
    values: dict[str, Any] = {name: fields.get(name) for name in field_types}
    invalid = [name for name, type_ in field_types.items() if not isinstance(values[name], type_)]
    if invalid or not 1 <= fields["first"] <= fields["last"] or not fields["instruction"].strip():
        raise JsonRpcInvalidParams(f"{EDIT_COMMAND}: invalid {invalid[0] if invalid else 'lines or instruction'}")
    return EditRequest(**values)


def _edit_request(document: Document, region: Region, instruction: str) -> EditRequest:
    return EditRequest(document.uri, document.version, region.first, region.last, instruction)


def _edit_action(
    title: str, kind: types.CodeActionKind, request: EditRequest, *, can_resolve: bool
) -> types.CodeAction:
    """A code action whose edit is computed when chosen: by `resolve`, or by a command where that is unsupported."""
    if can_resolve:
        return types.CodeAction(title, kind, data=asdict(request))
    return _command_action(title, kind, EDIT_COMMAND, request)


def _command_action(title: str, kind: types.CodeActionKind, command: str, request: EditRequest) -> types.CodeAction:
    return types.CodeAction(title, kind, command=types.Command(title, command, arguments=[asdict(request)]))


def _matches_kind(kind: str, only: list[str]) -> bool:
    return not only or any(kind == each or kind.startswith(f"{each}.") for each in only)
