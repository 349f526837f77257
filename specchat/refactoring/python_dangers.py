"""By what other means a Python program may reach a name: strings, frameworks, classes from elsewhere, `**` arguments.

Each check raises RefusedError where one of them may be at work; a name is renamed only where none is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specchat.edit.operations import NameKind, Rename
from specchat.refactoring import python_text as py
from specchat.refactoring.language_rules import rule_words
from specchat.refactoring.splices import RefusedError

if TYPE_CHECKING:
    from parso.tree import NodeOrLeaf

PLAIN_DECORATORS = rule_words("dangers", "plain_decorators")
LOCAL_LOOKUPS = re.compile(r"(?<![.\w])(?:locals|vars|eval|exec)\s*\(|\bf_locals\b")
MODULE_LOOKUPS = re.compile(
    r"(?<![.\w])(?:globals|vars|eval|exec)\s*\(|\bsys\.modules\b|^def __getattr__", re.MULTILINE
)
MEMBER_LOOKUPS = re.compile(
    r"__dict__|__slots__|__match_args__|__getattr|__setattr__|"
    r"\b(?:attrgetter|methodcaller|getmembers|asdict|astuple|fields)\s*\(|(?<![.\w])(?:vars|dir|eval|exec)\s*\("
)
ATTRIBUTE_CALL = re.compile(r"\b(?:get|set|has|del)attr\s*\(")
LITERAL_ATTRIBUTE = re.compile(r"\s*[\w.]+(?:\(\))?\s*,\s*(?P<quote>[\"'])\w+(?P=quote)\s*[,)]")
OWN_NAMES = re.compile(r"\.__name__\b|__qualname__|\.co_name\b")
CLASS_NAMES = re.compile(r"(?:__class__|\bcls|\btype\([\w.]+\))\.__name__\b")  # of no function
# `X = f("X")`: these take the name of what they make.
NAMING_FUNCTIONS = re.compile(r"(?:\w+\.)*(?:TypeVar|ParamSpec|TypeVarTuple|NewType)\Z")
ANNOTATED = ("annassign", "tfpdef", "funcdef")
TYPE_PARTS = ("atom_expr", "trailer", "subscript", "subscriptlist", "arith_expr", "or_expr", "expr", "atom")
FORMATTING = re.compile(r"\.format(?:_map)?\b|%|\bTemplate\b")
DOCTEST = re.compile(r"^\s*(?:>>>|\.\.\.) (?P<code>.*)$", re.MULTILINE)
TYPE_COMMENT = re.compile(r"#\s*type:\s*(?!ignore\b)(?P<type>.*)")


def check_decorators(definitions: Sequence[py.Token], kind: NameKind, old: str, new: str) -> None:
    for each in definitions:
        node = next(iter(py.around(each.leaf)), None)
        if node is None or kind in (NameKind.VARIABLE, NameKind.ATTRIBUTE, NameKind.IMPORT):
            continue
        for decorator in node.get_decorators():
            named = re.match(r"@\s*([\w.]+)", py.code_of(decorator))
            name = named[1].rpartition(".")[2] if named else ""
            if name not in PLAIN_DECORATORS:
                raise RefusedError(f"`@{name}` may use the name `{old}`")
        function = node.name.value
        if function.startswith("test_") and (kind is NameKind.PARAMETER or not new.startswith("test_")):
            raise RefusedError(f"a test tool finds `{function}` and its parameters by their names")
        text = each.file.text if kind is NameKind.CLASS else CLASS_NAMES.sub("", each.file.text)
        if kind in (NameKind.CLASS, NameKind.FUNCTION, NameKind.METHOD) and OWN_NAMES.search(text):
            raise RefusedError("the program reads names of functions or classes")
        if kind is NameKind.CLASS and re.search(rf"\b_{re.escape(old.lstrip('_'))}__\w", each.file.text):
            raise RefusedError(f"a private attribute of `{old}` is named with the class")


def check_dynamic_names(
    files: Sequence[py.PythonText], definitions: Sequence[py.Token], kind: NameKind, old: str
) -> None:
    """RefusedError when the program may look the name up by a string."""
    is_member = kind in (NameKind.METHOD, NameKind.ATTRIBUTE)
    for file in files:
        text = file.text
        is_built = any(not LITERAL_ATTRIBUTE.match(text, each.end()) for each in ATTRIBUTE_CALL.finditer(text))
        is_module = any(not py.scope_path(each.leaf) for each in definitions)
        lookups = MEMBER_LOOKUPS if is_member else MODULE_LOOKUPS if is_module else LOCAL_LOOKUPS
        if lookups.search(text) or (is_member and is_built):
            raise RefusedError(f"the program may look up `{old}` by a string")
        mention = py.one_of([old])
        if any(mention.search(each["type"]) for each in TYPE_COMMENT.finditer(file.comments())):
            raise RefusedError(f"a type comment names `{old}`")
        documented = "\n".join(py.code_of(leaf) for leaf in file.docstrings())
        if any(mention.search(each["code"]) for each in DOCTEST.finditer(documented)):
            raise RefusedError(f"a doctest names `{old}`")


def check_strings(files: Sequence[py.PythonText], old: str, *, is_local: bool) -> None:
    """RefusedError for a string that names it, unless it is prose, `__all__`, or an annotation."""
    for file in files:
        for leaf in file.strings():
            code = py.code_of(leaf)
            if not py.one_of([old]).search(code) or string_role(leaf, old):
                continue
            is_format = re.search(rf"[{{(]{re.escape(old)}\b", code) and FORMATTING.search(file.text)
            is_name = re.search(rf"(?:[\"']|[\w.]\.){re.escape(old)}[\"']", code)
            is_looked_up = is_name and not is_local and (ATTRIBUTE_CALL.search(file.text) or "." in code)
            if is_format or is_looked_up or (is_name and _is_annotation(leaf)):
                raise RefusedError(f"a string in line {leaf.start_pos[0]} of {file.name} names `{old}`")


def string_role(leaf: NodeOrLeaf, name: str) -> bool:
    """Whether a string certainly names what the module calls so: in `__all__`, `TypeVar("T")`, an annotation."""
    if leaf.type != "string":
        return False
    code = py.code_of(leaf)
    is_whole = code.strip("\"'") == name
    for each in py.ancestors(leaf):
        if each.type == "expr_stmt":
            left, _, right = py.code_of(each).partition("=")
            if re.match(r"__all__\s*\+?\Z", left.strip()) and is_whole:
                return True
            called = right.strip().partition("(")[0]
            if is_whole and left.strip() == name and NAMING_FUNCTIONS.match(called):
                return True
            break
    return "\n" not in code and _is_annotation(leaf)


def _is_annotation(leaf: NodeOrLeaf) -> bool:
    """Whether a string stands where a type does."""
    child: NodeOrLeaf = leaf
    for each in py.ancestors(leaf):
        if each.type in ANNOTATED:
            parts: Sequence[NodeOrLeaf] = getattr(each, "children", ())
            before = parts[parts.index(child) - 1] if child in parts[1:] else None
            return before is not None and py.code_of(before) in (":", "->")
        if each.type not in TYPE_PARTS:
            return False
        child = each
    return False


def check_class_bases(files: Sequence[py.PythonText], definitions: Sequence[py.Token], rename: Rename) -> None:
    """RefusedError unless every class above and below is here: another may call a method by its name."""
    paths = {py.scope_path(each.leaf) for each in definitions}
    if () in paths and any(file.path.is_file() and file.path == Path(file.name).absolute() for file in files):
        raise RefusedError(f"the class of `{rename.old}` is not here")
    for owner in {path[-1] for path in paths if path}:
        _check_family(files, owner, rename.old)


def _check_family(files: Sequence[py.PythonText], owner: str, name: str) -> None:
    here = [node for file in files for node in py.classes(file.tree)]
    names, family = [node.name.value for node in here], py.relatives(files).get(owner, {owner})
    if strange := sorted(family - set(names) - py.NO_RELATIVES):
        raise RefusedError(f"`{strange[0]}`, a base of `{owner}`, may use `{name}`")
    if any(names.count(each) > 1 for each in family):
        raise RefusedError(f"there are several classes `{owner}`")
    if any("=" in base for node in here if node.name.value in family for base in py.base_names(node)):
        raise RefusedError(f"the metaclass of `{owner}` may use `{name}`")


def check_parameter(files: Sequence[py.PythonText], definitions: Sequence[py.Token], rename: Rename) -> None:
    """RefusedError when a caller may pass the parameter by `**`, or another method is called in its place."""
    functions = {path[-1] for each in definitions if (path := py.scope_path(each.leaf))}
    owners = {path[-2] for each in definitions if len(path := py.scope_path(each.leaf)) > 1 and path[-1] == "__init__"}
    for name in sorted(functions | owners):
        call = re.compile(rf"\b{re.escape(name)}\s*\((?:[^()]|\([^()]*\))*?\*\*")
        if any(not _is_definition(file.text, match) for file in files for match in call.finditer(file.text)):
            raise RefusedError(f"`{name}` is called with arguments given by `**`")
    for each in definitions:
        outer = py.around(each.leaf)
        if len(outer) > 1 and outer[1].type == "classdef" and not outer[0].name.value.startswith("__"):
            _check_family(files, outer[1].name.value, rename.old)


def _is_definition(text: str, match: re.Match[str]) -> bool:
    return bool(re.search(r"\b(?:def|class)\s+\Z", text[: match.start()]))
