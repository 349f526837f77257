"""Renames a name in a language other than Python, where the tree alone decides what it refers to.

Every place of the name is sorted into the scopes that declare it. Whatever may be something else (a macro, a key, an
import, a second declaration) refuses the renaming, and so does a new name that the file has already.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tree_sitter import Node

from specchat.edit.operations import NameKind, Rename, of_kind
from specchat.refactoring.language_rules import ANY_FIELD, LanguageRules, rule_words, rules_of
from specchat.refactoring.project_mentions import check_other_languages
from specchat.refactoring.python_text import one_of
from specchat.refactoring.removals import find_area, parsed
from specchat.refactoring.splices import Area, RefusedError, Splice, Step, UnknownLanguageError, count_of
from specchat.syntax.parse import (
    COMMENT_TYPES,
    ancestors,
    blanked,
    contains,
    field_of,
    find_nodes,
    line_of,
    node_text,
    syntax_tree,
)

NAME = re.compile(r"[^\W\d][\w$]*")
SPECIAL_NAMES, AROUND_FUNCTIONS, KNOWN_MACROS, MARKS, OUTSIDE, WHOLE_BODIES = (
    rule_words("renaming", key)
    for key in ("special_names", "around_functions", "known_macros", "marks", "outside", "whole_bodies")
)
HEADER_SUFFIXES = (".h", ".hh", ".hpp", ".hxx")
STRING = re.compile(r'"(?:\\.|[^"\\])*"')


@dataclass(frozen=True)
class Declaration:
    """Where a name is declared, what it is, and the node in which it counts."""

    name: Node
    statement: Node
    scope: Node
    kind: NameKind


@dataclass(frozen=True)
class NameUse:
    """The places of one name, each with the declaration that it refers to, and the declarations."""

    declarations: tuple[Declaration, ...]
    places: tuple[tuple[Node, Declaration], ...]


def rename_identifier(text: str, language: str, rename: Rename, area: Area, path: Path) -> Step:
    """The renaming as changes of the text. RefusedError says why it is not certain."""
    rules = rules_of(language)
    if path.suffix in HEADER_SUFFIXES:
        raise RefusedError("other files include a header")
    if not rules.name_types:
        raise UnknownLanguageError(f"names of {language or 'plain text'} are not known")
    root = syntax_tree(text, language)
    if root is not None and root.has_error and language in ("c", "cpp"):
        return _rename_word(text, root, language, rules, rename)
    root = parsed(text, language)
    _check_text(text, root, language, rules, rename)
    found = find_uses(root, language, rules, rename.old)
    if not found.declarations and not path.is_file() and (nodes := _names(root, language, rules, rename.old)):
        return _rename_free(text, rules, rename, nodes)
    chosen = _choose(root, found, rules, rename, area.overlap(find_area(text, language, rename.scope)))
    if chosen.scope.parent is None and language == "go" and not path.is_file():
        raise RefusedError(f"other files of the package may use `{rename.old}`")
    if chosen.scope.parent is None and chosen.kind is not NameKind.IMPORT:
        check_other_languages(path, rules, rename.old)
    nodes = [node for node, declaration in found.places if declaration.scope == chosen.scope]
    _check_exports(nodes, chosen, rename)
    _check_marks(chosen, rules, rename)
    splices = tuple(_splice(node, rules, rename) for node in nodes)
    if chosen.kind is NameKind.PARAMETER:
        splices += tuple(_documented_splices(chosen, rename))
    step = Step(f"rename {chosen.kind} `{rename.old}` to `{rename.new}`: {count_of(splices, 'place')}", splices)
    _check_same(step.apply(text), language, rules, rename, len(nodes), chosen.kind)
    return step


def _rename_word(text: str, root: Node, language: str, rules: LanguageRules, rename: Rename) -> Step:
    """A renaming in a file of C that the grammar does not know because of macros: of a local name of one function.

    Comments and strings are known all the same. A function stands between lines that begin with `}`.
    """
    _check_text(text, root, language, rules, rename)
    word = rf"(?<!\w){re.escape(rename.old)}(?!\w)"
    code = blanked(text, find_nodes(root, language, (*COMMENT_TYPES, "string_literal", "char_literal")))
    places = [match.start() for match in re.finditer(word.encode(), code)]
    start, end = (code.rfind(b"\n}", 0, places[0]), code.find(b"\n}", places[-1])) if places else (0, -1)
    function = code[start + 2 if start >= 0 else 0 : end].decode() if end >= 0 else ""
    is_one = "\n}" not in function and 1 == len(re.findall(r"^(?:[^\s#].*)?\{[ \t]*$", function, re.MULTILINE))
    heading, _, body = function.partition("{")
    typed = rf"(?:(?!return|else|goto|case)\w+[\s*]+)+{word}\s*"
    is_declared = re.search(rf"[(,]\s*{typed}[,)\[]", heading) or re.search(
        rf"^[ \t]+{typed}[;=,\[]", body, re.MULTILINE
    )
    is_other = re.search(rf"(?:\.|->|\bgoto|^[ \t]*#.*)\s*{word}|{word}\s*:(?!:)", function, re.MULTILINE)
    if not is_one or not is_declared or is_other or one_of([rename.new]).search(text):
        raise RefusedError("the file does not parse")
    splices = tuple(Splice(place, place + len(rename.old.encode()), rename.new) for place in places)
    return Step(f"rename `{rename.old}` to `{rename.new}`: {count_of(splices, 'place')}", splices)


def _rename_free(text: str, rules: LanguageRules, rename: Rename, nodes: Sequence[Node]) -> Step:
    """A name that lines without the rest of their file use and do not declare: its places are one thing."""
    if one_of([rename.new]).search(text) or "#include" in text:
        raise RefusedError(f"`{rename.new}` is in use, or may be")
    if len({each.type == "type_identifier" for each in nodes}) > 1 or any(
        each.parent and each.parent.type in OUTSIDE for each in nodes
    ):
        raise RefusedError(f"`{rename.old}` may be several things")
    splices = tuple(_splice(node, rules, rename) for node in nodes)
    return Step(f"rename `{rename.old}` to `{rename.new}`: {count_of(splices, 'place')}", splices)


def _names(root: Node, language: str, rules: LanguageRules, name: str) -> list[Node]:
    nodes = [each for each in find_nodes(root, language, rules.name_types) if node_text(each) == name]
    return [each for each in nodes if not _is_in(each, rules.foreign)]


def find_uses(root: Node, language: str, rules: LanguageRules, name: str) -> NameUse:
    """Every place of a name with what it refers to. RefusedError for a place that may be something else."""
    nodes = _names(root, language, rules, name)
    declarations: list[Declaration] = []
    for node in nodes:
        around = {each.type for each in ancestors(node)}
        if _is_in(node, rules.refused) or any(kind in around for kind, part in rules.refused if part == ANY_FIELD):
            raise RefusedError(f"`{name}` in line {line_of(node)} may be something else")
        if language == "rust":
            _check_macro(node)
        if declaration := _declaration(node, rules):
            declarations.append(declaration)
    _check_repeated(declarations, rules, name)
    places: list[tuple[Node, Declaration]] = []
    for node in nodes:
        containing = [each for each in declarations if contains(each.scope, node)]
        if containing:
            places.append((node, min(containing, key=lambda each: each.scope.end_byte - each.scope.start_byte)))
    _check_order(places, declarations, rules, name)
    return NameUse(tuple(declarations), tuple(places))


def _check_text(text: str, root: Node, language: str, rules: LanguageRules, rename: Rename) -> None:
    for name in (rename.old, rename.new):
        has_dollar = "$" in name and language not in ("javascript", "typescript", "tsx")
        if not NAME.fullmatch(name) or name in SPECIAL_NAMES or has_dollar:
            raise RefusedError(f"`{name}` is no name, or a special one")
    if rename.new in rules.reserved:
        raise RefusedError(f"`{rename.new}` is no name in this language")
    if rename.old == rename.new or (language == "go" and rename.old[0].isupper() != rename.new[0].isupper()):
        raise RefusedError("the new name means something else")
    if rules.unsafe_text and re.search(rules.unsafe_text, text, re.VERBOSE):
        raise RefusedError("the file may find names in other ways")
    _check_lookups(text, root, language, rules, rename)


def _check_lookups(text: str, root: Node, language: str, rules: LanguageRules, rename: Rename) -> None:
    """RefusedError where a macro, a string or a format may name it."""
    word = one_of([rename.old])
    if any(word.search(node_text(each)) for each in find_nodes(root, language, ("preproc_arg",))):
        raise RefusedError(f"a macro names `{rename.old}`")
    if language in ("c", "cpp"):
        _check_macros(text, rename.old)
    lookups = rules.lookups.strip().format(name=re.escape(rename.old))
    if lookups and re.search(lookups, text, re.MULTILINE):
        raise RefusedError(f"the program may look up `{rename.old}` by a string")
    marks = (string for each in find_nodes(root, language, MARKS) for string in STRING.findall(node_text(each)))
    if any(map(word.search, marks)):
        raise RefusedError(f"an annotation names `{rename.old}`")
    strings = find_nodes(root, language, ("string_content",)) if language == "rust" else []
    if any(re.search(rf"\{{{re.escape(rename.old)}[:}}]", node_text(each)) for each in strings):
        raise RefusedError(f"a format string names `{rename.old}`")


def _check_macros(text: str, name: str) -> None:
    """RefusedError where a macro of C may make a string or another name of an argument."""
    own = dict(re.findall(r"#\s*define\s+(\w+)\([^)]*\)((?:.*\\\n)*.*)", text))
    for called in re.findall(rf"\b(\w+)\s*\([^()]*\b{re.escape(name)}\b", text):
        if "#" in own.get(called, "#" if called.isupper() else ""):
            raise RefusedError(f"the macro `{called}` takes `{name}` as a text")


def _choose(root: Node, found: NameUse, rules: LanguageRules, rename: Rename, area: Area) -> Declaration:
    """The one declaration that the instruction means."""
    here = [each for each in found.declarations if area.holds(each.name.start_byte, each.name.end_byte)]
    here = of_kind(here, rename.kind, lambda each: each.kind)
    fitting = {each.scope.id: each for each in reversed(here)}
    if len(fitting) != 1:
        described = " ".join(filter(None, [rename.kind, f"`{rename.old}`"]))
        raise RefusedError(f"the file declares {described} in {count_of(len(fitting), 'place')}")
    chosen = next(iter(fitting.values()))
    is_member = chosen.scope.type in rules.member_scopes
    is_conditional = chosen.statement.type.startswith("preproc") and (chosen.statement.parent or root).type != root.type
    if chosen.kind not in rules.renamed_kinds or is_member or is_conditional:
        raise RefusedError(f"`{rename.old}` may be in use elsewhere")
    if chosen.scope.parent is None and any(_may_use(each, chosen) for each in root.named_children):
        raise RefusedError(f"a header may name `{rename.old}`")
    return chosen


def _may_use(include: Node, declaration: Declaration) -> bool:
    """Whether an included file of C may name what this one declares: a prototype, or a macro that sets it up."""
    if include.type != "preproc_include":
        return False
    if declaration.statement.type.startswith("preproc"):
        return include.start_byte > declaration.statement.start_byte
    is_own = (path := include.child_by_field_name("path")) is not None and path.type == "string_literal"
    is_static = any(node_text(each) == "static" for each in declaration.statement.children)
    return is_own and not is_static


def _splice(node: Node, rules: LanguageRules, rename: Rename) -> Splice:
    is_shorthand = node.type in rules.shorthands or (node.parent and node.parent.type == "shorthand_field_initializer")
    new = f"{rename.old}: {rename.new}" if is_shorthand else rename.new
    return Splice(node.start_byte, node.end_byte, new)


def _check_exports(nodes: Sequence[Node], chosen: Declaration, rename: Rename) -> None:
    """RefusedError when the name means something outside, or as a tag of JSX."""
    is_first_changed = rename.old[0].isupper() != rename.new[0].isupper()
    for node in nodes:
        around = node.parent.type if node.parent else ""
        is_exported = around == "export_specifier" and chosen.kind is NameKind.IMPORT
        if is_exported or (around.startswith("jsx_") and is_first_changed):
            raise RefusedError(f"`{rename.old}` in line {line_of(node)} means something outside")


def _check_marks(chosen: Declaration, rules: LanguageRules, rename: Rename) -> None:
    """RefusedError for an annotation that may register what is renamed, or give it to others under its name."""
    above, marks = chosen.statement.prev_named_sibling, list[Node]()
    while above is not None and above.type == "attribute_item":  # of Rust
        marks, above = [*marks, above], above.prev_named_sibling
    for modifiers in (each for each in chosen.statement.named_children if each.type == "modifiers"):
        marks += [each for each in modifiers.named_children if each.type in MARKS]
    for mark in marks if rules.plain_marks else ():
        name = next(iter(re.findall(r"\w+", node_text(mark))), "")
        if name not in rules.plain_marks:
            raise RefusedError(f"`{name}` may use the name `{rename.old}`")


def _documented_splices(chosen: Declaration, rename: Rename) -> Iterator[Splice]:
    """`@param name` in the comment directly above the function."""
    function = chosen.scope
    while function.parent is not None and function.parent.type in AROUND_FUNCTIONS:
        function = function.parent
    comment = function.prev_named_sibling
    if comment is None or not comment.type.endswith("comment") or not node_text(comment).startswith("/**"):
        return
    pattern = rf"[@\\]param(?:\[[\w,]+\])?\s+(?:\{{[^}}\n]*\}}\s+)?\[?({re.escape(rename.old)})(?![\w.])"
    for match in re.finditer(pattern.encode(), comment.text or b""):
        yield Splice(comment.start_byte + match.start(1), comment.start_byte + match.end(1), rename.new)


def _check_same(new_text: str, language: str, rules: LanguageRules, rename: Rename, count: int, kind: NameKind) -> None:
    """RefusedError unless the new name has the places that the old one had."""
    found = find_uses(parsed(new_text, language), language, rules, rename.new)
    scopes = {each.scope.id for each in found.declarations}
    if len(scopes) != 1 or len(found.places) != count or kind not in {each.kind for each in found.declarations}:
        raise RefusedError(f"`{rename.new}` is in use, or would be something else")


def _declaration(node: Node, rules: LanguageRules) -> Declaration | None:
    """What a name declares in its place; None for a use."""
    child, parent = node, node.parent
    while parent is not None and (parent.type, field_of(child)) in rules.wrappers:
        child, parent = parent, parent.parent
    if parent is None:
        return None
    kind, is_outer = rules.declarations.get((parent.type, field_of(child)), (NameKind.ANY, False))
    if not kind or not _is_new_variable(parent):
        return None
    if kind is NameKind.VARIABLE and node.parent is not None and node.parent.type == "function_declarator":
        kind, is_outer = NameKind.FUNCTION, True
    scope = _scope_of(parent, rules, is_outer=is_outer)
    return Declaration(node, parent, scope, kind) if scope else None


def _is_new_variable(statement: Node) -> bool:
    """Whether a loop or `range` declares its variable, and does not assign to one that is there."""
    if statement.type == "for_in_statement":
        return statement.child_by_field_name("kind") is not None
    if statement.type in ("range_clause", "receive_statement"):
        return any(each.type == ":=" for each in statement.children)
    return True


def _scope_of(statement: Node, rules: LanguageRules, *, is_outer: bool) -> Node | None:
    if statement.type in ("preproc_def", "preproc_function_def"):
        return next((each for each in ancestors(statement) if each.parent is None), None)
    is_var = statement.parent is not None and statement.parent.type == "variable_declaration"
    scopes = rules.function_scopes if is_var and rules.function_scopes else rules.scopes
    scope = statement.parent if is_outer else statement
    while scope is not None and scope.type not in scopes:
        scope = scope.parent
    if scope is not None and scope.type == "parameter_list":  # of C: those of a definition count in its body
        outer = scope.parent
        while outer is not None and outer.type.endswith("_declarator"):
            outer = outer.parent
        return outer if outer is not None and outer.type == "function_definition" else scope
    return scope


def _check_repeated(declarations: Sequence[Declaration], rules: LanguageRules, name: str) -> None:
    """RefusedError for a name that one scope declares more than once, if that may be two things."""
    for scope in dict.fromkeys(each.scope.id for each in declarations):
        group = [each for each in declarations if each.scope.id == scope]
        kinds = {each.kind for each in group}
        if len(group) > 1 and (len(kinds) > 1 or not kinds <= rules.repeatable):
            raise RefusedError(f"`{name}` is declared again in line {line_of(group[1].name)}")
        bodies = [each for each in group if each.statement.type == "function_definition"]
        if len(bodies) > 1:
            raise RefusedError(f"`{name}` is defined again in line {line_of(bodies[1].name)}")


def _check_order(
    places: Sequence[tuple[Node, Declaration]], declarations: Sequence[Declaration], rules: LanguageRules, name: str
) -> None:
    """RefusedError for a place before a declaration, or in its value, that may refer to an outer one."""
    for node, declaration in places if rules.ordered else ():
        if declaration.kind not in (NameKind.VARIABLE, NameKind.CONSTANT):
            continue
        own = [each for each in declarations if each.scope == declaration.scope]  # in the order of the text
        is_early = node.start_byte < own[0].name.start_byte and declaration.scope.parent is not None
        is_nested = any(each.scope != declaration.scope and contains(each.scope, node) for each in declarations)
        is_in_value = node not in [each.name for each in own] and any(
            contains(each.statement, node) and each.statement.type not in WHOLE_BODIES for each in own
        )
        if is_early or (is_nested and is_in_value):
            raise RefusedError(f"`{name}` in line {line_of(node)} may be another one")


def _check_macro(node: Node) -> None:
    """RefusedError for a name in a macro of Rust that may not be an expression there."""
    inner, is_strange = node, False
    while (outer := inner.parent) is not None and outer.type == "token_tree":
        before = inner.prev_sibling
        called = before.prev_sibling if before is not None and node_text(before) == "!" else None
        is_strange |= called is not None and called.type == "identifier" and node_text(called) not in KNOWN_MACROS
        is_strange |= before is not None and node_text(before) in (".", "::", "$")
        inner = outer
    if inner != node:
        named = outer.child_by_field_name("macro") if outer is not None else None
        is_strange |= named is None or node_text(named) not in KNOWN_MACROS
    if is_strange:
        raise RefusedError(f"a macro names `{node_text(node)}` in line {line_of(node)}")


def _is_in(node: Node, contexts: frozenset[tuple[str, str]]) -> bool:
    if node.parent is None:
        return False
    return (node.parent.type, field_of(node)) in contexts or (node.parent.type, ANY_FIELD) in contexts
