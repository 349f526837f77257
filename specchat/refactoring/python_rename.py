"""Renames a name of Python in one or several files: definition, uses, keyword arguments, documented parameters.

jedi says what each place of the name refers to. The renaming is refused unless every place is understood: those that
change, those that stay, and those in other files of the project. What Python itself makes of the names (`symtable`) has
to be the same before and after.
"""

import builtins
import re
import symtable
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from keyword import iskeyword
from pathlib import Path
from textwrap import dedent

from specchat.edit.operations import NameKind, Rename, of_kind
from specchat.refactoring import python_text as py
from specchat.refactoring.project_mentions import check_mentions_elsewhere
from specchat.refactoring.python_dangers import (
    check_class_bases,
    check_decorators,
    check_dynamic_names,
    check_parameter,
    check_strings,
    string_role,
)
from specchat.refactoring.splices import Area, RefusedError, Splice, Step, count_of, splice_text

# where a docstring names a parameter for certain; in running text the same word may mean something else
SECTION = r"^[ \t]*(?:(?:Other |Keyword )?(?:Parameters|Arg(?:ument)?s)|Params):?[ \t]*(?:\n[ \t]*-{3,}[ \t]*)?$"
HEADING = r"[ \t]*[A-Z][\w ]*:[ \t]*$|[ \t]*\w[\w ]*\n[ \t]*-{3,}[ \t]*$"
ENTRY = r"(?=(?:, *\*{0,2}\w+)*[ \t]*(?:\([^()\n]*\))?[ \t]*(?::|$))"
FLAGS = ("global", "local", "free", "parameter", "imported", "assigned", "nonlocal", "referenced")
MEMBERS = (NameKind.METHOD, NameKind.ATTRIBUTE)


@dataclass(frozen=True)
class Symbol:
    """What is renamed: its definitions, all places, and the places of the same word that are something else."""

    kind: NameKind
    definitions: tuple[py.Token, ...]
    places: tuple[py.Token, ...]
    others: tuple[py.Token, ...]

    @property
    def is_member(self) -> bool:
        return self.kind in MEMBERS

    @property
    def is_module_level(self) -> bool:
        return not self.is_member and any(not py.scope_path(each.leaf) for each in self.definitions)


def rename_in_python(texts: Mapping[str, str], rename: Rename, area: Area | None = None) -> dict[str, Step]:
    """The renaming as changes of each file, by its name. RefusedError says why it is not certain."""
    check_new_name(rename.old, rename.new)
    if not any(py.one_of([rename.old]).search(text) for text in texts.values()):
        raise RefusedError(f"the file does not define `{rename.old}`")
    with py.open_python(texts) as files:
        symbol = _find_symbol(files, rename, area)
        _check_symbol(files, symbol, rename)
        places = {file.name: _places(file, symbol, rename.old) for file in files}
        if symbol.is_module_level or symbol.is_member or symbol.kind is NameKind.PARAMETER:
            check_mentions_elsewhere(files, symbol.definitions, rename.old, is_member=not symbol.is_module_level)
    steps: dict[str, Step] = {}
    for name, text in texts.items():
        splices = tuple(Splice(start, start + len(rename.old.encode()), rename.new) for start in sorted(places[name]))
        check_same_meaning(text, splice_text(text, splices), rename)
        steps[name] = Step(_summary(symbol, rename, len(splices)), splices)
    return steps


def rename_in_part(name: str, text: str, rename: Rename, area: Area) -> Step:
    """The renaming in one file, or in lines of one that are given without the rest, as those of a filter are."""
    if not text.startswith((" ", "\t")) or Path(name).is_file():
        return rename_in_python({name: text}, rename, area)[name]
    lines, bare = text.split("\n"), dedent(text).split("\n")
    removed = list(accumulate(len(line) - len(rest) for line, rest in zip(lines, bare, strict=True)))
    whole = "\n".join(bare)
    step = rename_in_python({name: whole}, rename)[name]
    shifted = [
        replace(each, start=each.start + shift, end=each.end + shift)
        for each in step.splices
        for shift in [removed[whole.encode().count(b"\n", 0, each.start)]]
    ]
    return Step(step.summary, tuple(shifted))


def check_new_name(old: str, new: str) -> None:
    for name in (old, new):
        if not name.isidentifier() or iskeyword(name) or unicodedata.normalize("NFKC", name) != name:
            raise RefusedError(f"`{name}` is not a name in Python")
        if name.startswith("__") or name == "_":
            raise RefusedError(f"`{name}` has a special meaning in Python")
    if old == new:
        raise RefusedError("the new name is the old one")


# What is meant


def _find_symbol(files: Sequence[py.PythonText], rename: Rename, area: Area | None) -> Symbol:
    tokens = [token for file in files for token in file.tokens(rename.old)]
    defining = [each for each in tokens if each.leaf.is_definition() and not _is_plain_import(each)]
    free = _free_places(files, tokens)
    if len({each.is_attribute for each in (*free, *defining)}) > 1 and free and not rename.kind:
        raise RefusedError(f"`{rename.old}` may be a variable or an attribute")
    if free and not defining:
        kind = NameKind.ATTRIBUTE if free[0].is_attribute else NameKind.VARIABLE
        return Symbol(kind, (), free, tuple(each for each in tokens if each not in free))
    groups = _groups(tokens, py.relatives(files))
    starts = {id(each): each.file.byte_position(each.leaf.start_pos) for each in defining}
    here = [each for each in defining if area is None or area.holds(starts[id(each)], starts[id(each)])]
    wanted = tuple(filter(None, rename.scope.split(".")))
    here = [each for each in here if not wanted or py.scope_path(each.leaf)[-len(wanted) :] == wanted]
    fitting = of_kind(here, rename.kind, _kind)
    chosen = {id(groups[id(each)]): groups[id(each)] for each in fitting}
    if len(chosen) != 1:
        raise RefusedError(_why_not_one(tokens, fitting, rename))
    group = next(iter(chosen.values()))
    kinds = {_kind(each) for each in defining if each in group}
    for kind, also in ((NameKind.ATTRIBUTE, NameKind.METHOD), (NameKind.PARAMETER, NameKind.VARIABLE)):
        kinds = {kind} if kinds == {kind, also} else kinds
    if len(kinds) != 1:
        raise RefusedError(f"`{rename.old}` also means something else in a place")
    definitions = tuple(each for each in defining if each in group)
    return Symbol(kinds.pop(), definitions, tuple(group), tuple(each for each in tokens if each not in group))


def _free_places(files: Sequence[py.PythonText], tokens: Sequence[py.Token]) -> tuple[py.Token, ...]:
    """The places of a name that lines without the rest of their file use and do not define: they are one thing."""
    if any(Path(file.name).is_file() or "import *" in file.text for file in files):
        return ()
    unknown = (each for each in tokens if not (each.keys or each.is_keyword or each.is_imported))
    return tuple(each for each in unknown if not each.is_attribute or py.is_of_self(each.leaf))


def _groups(tokens: Sequence[py.Token], related: Mapping[str, set[str]]) -> dict[int, list[py.Token]]:
    """Each token with all that are certainly the same thing: they share a definition, or are members of relatives."""
    by_key: dict[object, list[py.Token]] = {}
    found: dict[int, list[py.Token]] = {}
    for token in tokens:
        group = [token]
        for key in (*token.keys, *_member_keys(token, related)):
            other = by_key.get(key)
            if other is not None and other is not group:
                group = other + [each for each in group if each not in other]
        for each in group:
            found[id(each)] = group
            by_key |= dict.fromkeys((*each.keys, *_member_keys(each, related)), group)
    return found


def _member_keys(token: py.Token, related: Mapping[str, set[str]]) -> list[str]:
    """A member that is defined in a class belongs to those of the classes that are related to it."""
    if py.is_of_self(token.leaf) and not py.scope_path(token.leaf):
        return ["self"]  # of lines without their class
    if not token.leaf.is_definition() or _kind(token) not in MEMBERS:
        return []
    owner = py.scope_path(token.leaf)[-1]
    return sorted(related.get(owner, {owner}) - py.NO_RELATIVES)


def _why_not_one(tokens: Sequence[py.Token], fitting: Sequence[py.Token], rename: Rename) -> str:
    if fitting:
        several = len({each.file.name for each in fitting}) > 1
        places = [f"the {_kind(each)} of line {each.line}" + several * f" of {each.file.name}" for each in fitting]
        return f"`{rename.old}` may be {' or '.join(places[:3])}"
    if any(_is_plain_import(each) for each in tokens):
        return f"`{rename.old}` is imported, so it has to be renamed where it is defined"
    return f"the file does not define {' '.join(filter(None, [rename.kind, f'`{rename.old}`']))}"


def _kind(token: py.Token) -> NameKind:
    leaf, in_class = token.leaf, py.scopes_of(token.leaf)[0].type == "classdef"
    definition = leaf.get_definition(import_name_always=True)
    match definition.type if definition is not None else "":
        case "classdef":
            return NameKind.CLASS
        case "funcdef":
            return NameKind.METHOD if in_class else NameKind.FUNCTION
        case "param":
            return NameKind.PARAMETER
        case kind if kind in py.IMPORTS:
            return NameKind.IMPORT
        case _:
            return NameKind.ATTRIBUTE if py.is_of_self(leaf) or in_class else NameKind.VARIABLE


def _is_plain_import(token: py.Token) -> bool:
    return token.is_imported and not token.is_alias


# What must be certain


def _check_symbol(files: Sequence[py.PythonText], symbol: Symbol, rename: Rename) -> None:
    for token in symbol.others:
        _check_other(token, symbol, rename)
    for token in symbol.places:
        if any(
            each.type == "fstring_expr" and re.search(r"[^=!<>]=\s*[}:!]", py.code_of(each))
            for each in py.ancestors(token.leaf)
        ):
            raise RefusedError(
                f"a string in line {token.line} of {token.file.name} shows `{rename.old}` as it is written"
            )
    _check_imports(files, symbol, rename)
    _check_new_name_is_free(files, symbol, rename.new)
    check_decorators(symbol.definitions, symbol.kind, rename.old, rename.new)
    check_dynamic_names(files, symbol.definitions, symbol.kind, rename.old)
    check_strings(files, rename.old, is_local=not (symbol.is_member or symbol.is_module_level))
    if symbol.is_member:
        check_class_bases(files, symbol.definitions, rename)
    if symbol.kind is NameKind.PARAMETER:
        check_parameter(files, symbol.definitions, rename)


def _check_imports(files: Sequence[py.PythonText], symbol: Symbol, rename: Rename) -> None:
    """RefusedError for an import of the name from elsewhere, or one that would no longer have it."""
    here = {(str(each.file.path), *each.leaf.start_pos) for each in symbol.definitions}
    for token in symbol.places:
        if _is_plain_import(token) and not token.keys & here:
            raise RefusedError(f"`{rename.old}` in line {token.line} of {token.file.name} is imported from elsewhere")
    has_stars = any(re.search(r"\bimport\s+\*", file.text) for file in files)
    if has_stars and rename.old.startswith("_") != rename.new.startswith("_"):
        raise RefusedError(f"`import *` brings only one of `{rename.old}` and `{rename.new}`")


def _check_other(token: py.Token, symbol: Symbol, rename: Rename) -> None:
    """RefusedError for a place that stays and that may be anything."""
    if symbol.is_member and py.is_of_protocol(token.leaf):
        raise RefusedError(f"a protocol in line {token.line} of {token.file.name} asks for `{rename.old}`")
    if token.keys:
        return
    is_doubtful = (
        (token.is_attribute and symbol.is_member)
        or (token.is_keyword and (symbol.kind is NameKind.PARAMETER or symbol.is_member))
        or (token.is_attribute and symbol.is_module_level and token.leaf.is_definition() and token.is_of_import)
        or (not token.is_attribute and not token.is_keyword and not token.is_imported and symbol.is_module_level)
    )
    if is_doubtful:
        raise RefusedError(f"`{rename.old}` in line {token.line} of {token.file.name} may be something else")


def _check_new_name_is_free(files: Sequence[py.PythonText], symbol: Symbol, new: str) -> None:
    """RefusedError when the new name is there already, or may be: as a name around, a keyword, or an attribute."""
    outermost = {id(_outermost(each)) for each in symbol.places}
    for file in files:
        for leaf in file.tree.get_used_names().get(new, []):
            token = py.Token(file, leaf, frozenset())
            is_near = symbol.is_module_level or not symbol.definitions or id(_outermost(token)) in outermost
            is_taken = token.is_attribute if symbol.is_member else (is_near and not token.is_attribute)
            is_member = symbol.is_member and leaf.is_definition() and _kind(token) in MEMBERS
            if is_taken or is_member or (token.is_keyword and symbol.kind is NameKind.PARAMETER):
                raise RefusedError(f"`{new}` is in use in line {token.line} of {file.name}")
    if symbol.is_module_level and hasattr(builtins, new):
        raise RefusedError(f"`{new}` is a builtin name")


def _outermost(token: py.Token) -> object:
    """The statement of the module in which a place is."""
    nodes = [token.leaf, *py.ancestors(token.leaf)]
    return nodes[-2] if len(nodes) > 1 else nodes[0]


def check_same_meaning(old_text: str, new_text: str, rename: Rename) -> None:
    """RefusedError unless Python finds the same names in the same scopes, but for the new one."""
    try:
        before, after = (symtable.symtable(each, "text", "exec") for each in (old_text, new_text))
    except (SyntaxError, ValueError) as error:
        raise RefusedError("the new text would not parse") from error
    if not _are_same(before, after, rename):
        raise RefusedError(f"`{rename.new}` is in use where `{rename.old}` is")


def _are_same(before: symtable.SymbolTable, after: symtable.SymbolTable, rename: Rename) -> bool:
    """Whether two scopes, and those in them, have the same names used alike, but for the new one."""
    own = {each.get_name(): _flags(each) for each in before.get_symbols()}
    new = {
        name if name in own else name.replace(rename.new, rename.old): _flags(each)
        for each in after.get_symbols()
        for name in [each.get_name()]
    }
    inner = before.get_children(), after.get_children()
    is_alike = own == new and len(before.get_symbols()) == len(after.get_symbols()) and len(inner[0]) == len(inner[1])
    return is_alike and all(_are_same(*pair, rename) for pair in zip(*inner, strict=True))


def _flags(symbol: symtable.Symbol) -> tuple[bool, ...]:
    return tuple(getattr(symbol, f"is_{each}")() for each in FLAGS)


# What changes


def _places(file: py.PythonText, symbol: Symbol, name: str) -> set[int]:
    """The positions, in bytes, where a file has the new name."""
    places = {file.byte_position(each.leaf.start_pos) for each in symbol.places if each.file is file}
    if symbol.is_module_level:
        places |= set(_named_strings(file, name))
    if symbol.kind is NameKind.PARAMETER:
        places |= set(_documented_places(file, symbol, name))
    return places


def _named_strings(file: py.PythonText, name: str) -> Iterator[int]:
    """The strings of `__all__`, `T = TypeVar("T")` and of annotations that name it."""
    for leaf in file.strings():
        code = py.code_of(leaf)
        if py.one_of([name]).search(code) and string_role(leaf, name):
            for match in py.one_of([name]).finditer(code):
                yield file.byte_position((leaf.start_pos[0], leaf.start_pos[1] + match.start()))


def _documented_places(file: py.PythonText, symbol: Symbol, name: str) -> Iterator[int]:
    """Where the docstring of the function documents the parameter; for `__init__` also that of the class."""
    for each in (each for each in symbol.definitions if each.file is file):
        outer = py.around(each.leaf)
        for node in outer[: 2 if outer and outer[0].name.value == "__init__" else 1]:
            if (documented := node.get_doc_node()) is not None:
                start, code = file.byte_position(documented.start_pos), py.code_of(documented)
                yield from (start + len(code[:place].encode()) for place in _parameter_names(code, name))


def _parameter_names(docstring: str, name: str) -> Iterator[int]:
    """The positions, in characters, where a docstring names a parameter: in a field, in backticks, in a section.

    For ":param limit: the limit" and the name "limit" it is 7.
    """
    word, kinds = f"(?P<name>{re.escape(name)})", "param|parameter|arg|argument|key|keyword|kwarg|type"
    field = rf"[:@](?:{kinds})\b[^:\n]*?\*{{0,2}}\b{word}\s*:"
    quoted = rf"(?<![`\w])(?P<marks>`{{1,2}}){word}(?P=marks)(?![`\w])"
    entries = rf"(?:[ \t]*\n)*(?=(?P<indent>[ \t]*)\S)(?:(?:[ \t]*|(?P=indent)(?!{HEADING})[^\n]*)\n)*?(?P=indent)"
    section = rf"{SECTION}\n{entries}(?:\*{{0,2}}\w+, *)*\*{{0,2}}{word}{ENTRY}"
    for pattern in (field, quoted, section):
        yield from (match.start("name") for match in re.finditer(pattern, docstring, re.MULTILINE))


def _summary(symbol: Symbol, rename: Rename, count: int) -> str:
    mention = py.one_of([rename.old])
    files = {id(each.file): each.file for each in symbol.places}.values()
    prose = [file.comments() for file in files]
    prose += [py.code_of(leaf) for file in files for leaf in (*file.docstrings(), *file.strings())]
    left = sum(len(mention.findall(each)) for each in prose)
    note = f"; {count_of(left, 'mention')} in strings and comments left" if left else ""
    return f"rename {symbol.kind} `{rename.old}` to `{rename.new}`: {count_of(count, 'place')}{note}"
