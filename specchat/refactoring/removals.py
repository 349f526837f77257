"""Removes statements, comments, docstrings and definitions so that the text stays valid: an empty block gets `pass`.

What is alone on its lines goes with the lines.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tree_sitter import Node

from specchat.edit.operations import NameKind, Removable, Remove, RemoveDefinition
from specchat.refactoring.language_rules import PYTHON, directive_pattern, metadata_pattern, rule_words, rules_of
from specchat.refactoring.project_mentions import check_mentions_of_word
from specchat.refactoring.python_text import check_parses, one_of
from specchat.refactoring.splices import (
    TOO_LONG,
    Area,
    RefusedError,
    Splice,
    Step,
    UnknownLanguageError,
    count_of,
    line_area,
    whole_area,
)
from specchat.syntax.definitions import Definition, definitions
from specchat.syntax.languages import load_grammar
from specchat.syntax.parse import COMMENT_TYPES, ancestors, contains, find_nodes, line_of, node_text, syntax_tree

# `logger.info(…)`, `self._log.warning(…)`, `logging.getLogger(__name__).debug(…)`
LOGGING_CALL = (
    r"(?:\w+\.)*_?(?:logging|logger|log|LOGGER|LOG)(?:\.getLogger\([\w\"'.]*\))?"
    r"\.(?:debug|info|warning|warn|error|exception|critical|fatal|log)"
)
CALL_TYPES, SEQUENCES, SIDE_EFFECTS, MAKING, PLAIN_CALLS = (
    rule_words("removals", key) for key in ("call_types", "sequences", "side_effects", "making", "plain_calls")
)
STATEMENT = "expression_statement"
DEFINITIONS = FUNCTION, CLASS = "function_definition", "class_definition"  # of Python
GO_FUNCTIONS = ("function_declaration", "method_declaration")
# in what a macro of Rust is given: a call, `?`, or an assignment
EFFECT_IN_TOKENS = re.compile(r"(?P<called>\w+)!?\s*\(|\?|(?<![=!<>])=(?!=)")
CODING = re.compile(r"#.*?coding[:=]")  # counts in the first two lines

DEFINITION_KINDS = {NameKind.FUNCTION: "function", NameKind.METHOD: "function", NameKind.CLASS: "class"}
DYNAMIC_LOOKUP = re.compile(r"\b(?:getattr|globals|locals|vars|eval|exec|__dict__|__getattr__|__all__)\b")


def remove_things(text: str, language: str, remove: Remove, area: Area) -> Step:
    """The removal as changes of the text. RefusedError says why it is not certain."""
    root = parsed(text, language)
    area = area.overlap(find_area(text, language, remove.scope))
    noun = f"{remove.called} {NOUNS[remove.what]}".strip()
    match remove.what:
        case Removable.COMMENTS:
            removal = _remove_comments(text.encode(), root, language, area)
        case Removable.DOCSTRINGS:
            removal = _remove_docstrings(text.encode(), root, language, area)
        case _:
            removal = _remove_calls(text.encode(), root, language, _calls(text, root, language, remove, area), noun)
    if remove.is_single and removal.count != 1:
        raise RefusedError(f"there are {count_of(removal.count, noun)}")
    left = f"; {removal.left}" if removal.left else ""
    return Step(f"remove {count_of(removal.count, noun)}{left}", tuple(removal.splices))


def parsed(text: str, language: str) -> Node:
    """The tree of a text without syntax errors."""
    root = syntax_tree(text, language)
    if root is None and load_grammar(language) is None:
        raise UnknownLanguageError(f"{language or 'plain text'} has no grammar")
    if root is None or root.has_error:
        raise RefusedError("the file does not parse" if root else TOO_LONG)
    return root


def find_area(text: str, language: str, scope: str) -> Area:
    """The lines of the one definition with this name, or the whole text."""
    if not scope:
        return whole_area(text)
    found = only_definition(text, language, scope)
    return line_area(text, found.first_line, found.last_line)


def only_definition(text: str, language: str, name: str, kind: str = "") -> Definition:
    """The one definition with this name ("feed", "Parser.feed"), of this kind if one is said."""
    named = [each for each in definitions(text, language) if f".{each.qualified_name}".endswith(f".{name}")]
    found = [each for each in named if kind in ("", each.kind)]
    if len(found) != 1:
        raise RefusedError(f"the file defines {count_of(found, kind or 'thing')} with the name `{name}`")
    return found[0]


def node_of(root: Node, definition: Definition) -> Node:
    """The outermost node of a definition of Python, with its decorators."""
    for each in find_nodes(root, PYTHON, (*DEFINITIONS, "decorated_definition")):
        if (line_of(each), each.end_point.row + 1) == (definition.first_line, definition.last_line):
            return each
    raise RefusedError(f"`{definition.name}` shares its lines with something else")


@dataclass(frozen=True)
class Removal:
    splices: Sequence[Splice]
    count: int
    left: str = ""


NOUNS: Mapping[Removable, str] = {
    Removable.PRINTS: "print statement", Removable.LOGGING: "logging call", Removable.COMMENTS: "comment",
    Removable.DOCSTRINGS: "docstring", Removable.CALLS: "call",
}  # fmt: skip


def _calls(text: str, root: Node, language: str, remove: Remove, area: Area) -> list[Node]:
    """The calls that are meant: those that print, those that log, or those of one function."""
    pattern = rules_of(language).prints
    if not pattern or (remove.what is Removable.LOGGING and language != PYTHON):
        raise UnknownLanguageError(f"{remove.what} of {language or 'plain text'} are not known")
    if remove.what is not Removable.PRINTS:
        pattern = re.escape(remove.called) if remove.called else LOGGING_CALL
    elif language == PYTHON:
        check_parses(text)
        if re.search(r"\bdef print\b|\bprint\s*=(?!=)", text):
            raise RefusedError("the file has a `print` of its own")
    found = [
        each for each in find_nodes(root, language, CALL_TYPES) if re.fullmatch(pattern, _called(each), re.VERBOSE)
    ]
    return [each for each in found if area.holds(each.start_byte, each.end_byte)]


def _remove_calls(raw: bytes, root: Node, language: str, calls: Sequence[Node], noun: str) -> Removal:
    noun = "print" if noun == NOUNS[Removable.PRINTS] else noun
    statements = [call.parent for call in calls if call.parent and call.parent.type == STATEMENT]
    for statement in statements:
        if find_nodes(statement, language, SIDE_EFFECTS):
            raise RefusedError(f"line {line_of(statement)} does more than the call")
    removed = [each for each in statements if not _does_more(each, language)]
    inside, more = len(calls) - len(statements), len(statements) - len(removed)
    notes = [f"{count_of(inside, noun)} inside other expressions left" if inside else "",
             f"{count_of(more, noun)} that may do more left" if more else ""]  # fmt: skip
    if language == "go":
        _check_go_uses(root, removed)
    return Removal(remove_statements(raw, removed, language), len(removed), "; ".join(filter(None, notes)))


def _does_more(statement: Node, language: str) -> bool:
    """Whether an argument may have an effect, or the text goes to a file."""
    outer = statement.named_children[0]
    calls = [each for each in find_nodes(statement, language, CALL_TYPES) if each.start_byte > outer.start_byte]
    keywords = find_nodes(statement, language, ("keyword_argument",)) if language == PYTHON else []
    to_file = any(node_text(each).partition("=")[0].strip() == "file" for each in keywords)
    makes = [*find_nodes(statement, language, MAKING), *find_nodes(statement, language, ("unary_expression",))]
    is_making = any(each.type in MAKING or re.match(r"<-|delete\b", node_text(each)) for each in makes)
    trees = find_nodes(statement, language, ("token_tree",))[:1]
    tokens = re.sub(r'"(?:\\.|[^"\\])*"', "", node_text(trees[0])) if trees else ""
    called = [_called(each).rpartition(".")[2] for each in calls]
    called += [each["called"] or "" for each in EFFECT_IN_TOKENS.finditer(tokens)]
    return to_file or is_making or not PLAIN_CALLS.issuperset(called)


def _called(call: Node) -> str:
    """What is called: "print", "console.log", "System.out.println"."""
    if call.type == "method_invocation":
        receiver, name = call.child_by_field_name("object"), call.child_by_field_name("name")
        return f"{node_text(receiver)}.{node_text(name)}" if receiver and name else ""
    named = call.child_by_field_name("function") or call.child_by_field_name("macro")
    return node_text(named) if named else ""


def _check_go_uses(root: Node, removed: Sequence[Node]) -> None:
    """Go does not compile with an import or a local variable that nothing uses."""
    names = find_nodes(root, "go", ("identifier",))
    left = [each for each in names if not any(contains(gone, each) for gone in removed)]
    imported = {node_text(each).strip('"').rpartition("/")[2] for each in find_nodes(root, "go", ("import_spec",))}
    for statement in removed:
        function = next((each for each in ancestors(statement) if each.type in GO_FUNCTIONS), root)
        for name in sorted({node_text(each) for each in names if contains(statement, each)}):
            places = [each for each in left if node_text(each) == name]
            if name in imported and not places:
                raise RefusedError(f"the import of {name} would be unused")
            here = [each for each in places if contains(function, each)]
            if here and all(_is_set(each) for each in here):
                raise RefusedError(f"the variable {name} would be unused")


def _is_set(name: Node) -> bool:
    """Whether a name of Go stands where it is declared or assigned, and is not read."""
    outer = name.parent if name.parent is not None and name.parent.type == "expression_list" else name
    around = outer.parent
    if around is None or around.type not in ("short_var_declaration", "assignment_statement", "var_spec"):
        return False
    return outer in (*around.children_by_field_name("left"), *around.children_by_field_name("name"))


def _remove_comments(raw: bytes, root: Node, language: str, area: Area) -> Removal:
    rules = rules_of(language)
    if not rules.prints and language not in ("toml", "bash", "yaml", "css", "html"):
        raise UnknownLanguageError(f"comments of {language or 'plain text'} are not known")
    if language in ("c", "cpp") and any(
        b"/*" in (each.text or b"") or b"//" in (each.text or b"")
        for each in find_nodes(root, language, ("preproc_arg",))
    ):
        raise RefusedError("a macro holds a comment")
    found = [each for each in find_nodes(root, language, COMMENT_TYPES) if area.holds(each.start_byte, each.end_byte)]
    text = raw.decode()
    for pattern, why in rules.comments_count.items():
        if re.search(pattern, text, re.MULTILINE):
            raise RefusedError(why)
    blocks = [match.span() for match in metadata_pattern().finditer(text)]
    rows = {row for start, end in blocks for row in range(text.count("\n", 0, start), text.count("\n", 0, end) + 1)}
    comments = [each for each in found if not is_directive(each) and each.start_point.row not in rows]
    kept = len(found) - len(comments)
    note = f"{count_of(kept, 'comment')} for tools kept" if kept else ""
    return Removal(_without_gaps(raw, [_comment_splice(raw, each) for each in comments]), len(comments), note)


def is_directive(comment: Node) -> bool:
    """Whether a tool reads a comment."""
    text, following = node_text(comment), comment.next_named_sibling
    is_tag = following is not None and following.type == "template_string" and text.startswith("/*")  # /* HTML */ `…`
    is_coding = comment.start_point.row < 2 and bool(CODING.match(text))
    return is_tag or is_coding or bool(directive_pattern().match(text))


def _comment_splice(raw: bytes, comment: Node) -> Splice:
    """The comment with the spaces before it, or with its lines when nothing else stands there."""
    start, end = comment.start_byte, comment.end_byte
    while raw[start:end].endswith(b"\n"):
        end -= 1  # a comment for the documentation of Rust includes the newline
    first, last = line_start(raw, start), line_end(raw, end)
    above, below = raw[first:start], raw[end:last]
    if not above.strip() and not below.strip():
        return Splice(first, min(last + 1, len(raw)), "")
    if b"\n" in raw[start:end]:
        raise RefusedError(f"the comment in line {line_of(comment)} stands between code on other lines")
    if not above.strip():
        return Splice(start, last - len(below.lstrip(b" \t")), "")
    before, after = above[-1:], below[:1]
    if not below.strip() or after in (b",", b";", b")", b"]"):
        return Splice(first + len(above.rstrip(b" \t")), end if below.strip() else last, "")
    if before.isspace() and after == b" ":
        return Splice(start, end + 1, "")
    is_apart = raw[start:].startswith(b"<") or before.isspace() or after.isspace()
    return Splice(start, end, " " if not is_apart and before.isalnum() == after.isalnum() else "")


def _remove_docstrings(raw: bytes, root: Node, language: str, area: Area) -> Removal:
    if language != PYTHON:
        raise UnknownLanguageError("only Python has docstrings")
    if re.search(rb"\b__doc__\b", raw):
        raise RefusedError("the program uses `__doc__`")
    found = [each for block in (root, *bodies(root, *DEFINITIONS)) if (each := _docstring_of(block))]
    found = [each for each in found if area.holds(each.start_byte, each.end_byte)]
    return Removal(remove_statements(raw, found, language), len(found))


def bodies(root: Node, *types: str) -> list[Node]:
    """The blocks of the definitions of these types, in Python."""
    return [body for each in find_nodes(root, PYTHON, types) if (body := each.child_by_field_name("body"))]


def _docstring_of(block: Node) -> Node | None:
    statements = [each for each in block.named_children if each.type != "comment"]
    first = statements[0] if statements else None
    if first is None or first.type != STATEMENT or len(first.named_children) != 1:
        return None
    value = first.named_children[0]
    is_text = value.type in ("string", "concatenated_string") and not re.match(r"[rRuU]?[fFbB]", node_text(value))
    return first if is_text else None


def remove_statements(raw: bytes, statements: Sequence[Node], language: str) -> list[Splice]:
    """Changes that remove statements; what is left stays valid."""
    blocks: dict[int, list[Node]] = {}
    for statement in statements:
        blocks.setdefault(statement.parent.id if statement.parent else 0, []).append(statement)
    splices: list[Splice] = []
    for removed in blocks.values():
        block = removed[0].parent
        assert block is not None
        runs = _runs(raw, removed)
        kept = [each for each in block.named_children if each.type not in COMMENT_TYPES and each not in removed]
        is_emptied = language == PYTHON and not kept and block.type == "block"
        if placeholder := "pass" if is_emptied else "" if block.type in SEQUENCES else "{}":
            splices.append(Splice(*runs.pop(0), placeholder))
        splices += [_statement_splice(raw, *each) for each in runs]
    return _without_gaps(raw, splices)


def _without_gaps(raw: bytes, splices: Sequence[Splice]) -> list[Splice]:
    """Removed lines with the blank lines around them: no more are left than stood on one side.

    Where a block or the text begins with removed lines, none is left.
    """
    merged: list[Splice] = []
    for each in sorted(splices, key=lambda splice: splice.start):
        if merged and _is_lines(raw, each) and merged[-1].end == each.start and not merged[-1].new:
            merged[-1] = replace(merged[-1], end=each.end)
        else:
            merged.append(each)
    return [replace(each, end=_end_of_gap(raw, each)) if _is_lines(raw, each) else each for each in merged]


def _is_lines(raw: bytes, splice: Splice) -> bool:
    """Whether whole lines go."""
    is_start = lambda position: position in (0, len(raw)) or raw[position - 1 : position] == b"\n"
    return not splice.new and is_start(splice.start) and is_start(splice.end)


def _end_of_gap(raw: bytes, lines: Splice) -> int:
    above, end = raw[: lines.start].rstrip(), lines.end
    blank_above = raw.count(b"\n", len(above), lines.start) - 1
    blank_below = len(re.findall(rb"[ \t]*\n", (re.match(rb"(?:[ \t]*\n)*", raw[end:]) or [b""])[0]))
    is_beginning = not above or above.endswith((b":", b"{"))
    for _line in range(blank_below if is_beginning else min(blank_above, blank_below)):
        end = line_end(raw, end) + 1
    return end


def _runs(raw: bytes, statements: Sequence[Node]) -> list[tuple[int, int]]:
    """The ranges of statements; those that only a `;` separates are one range."""
    runs: list[tuple[int, int]] = []
    for each in statements:
        if runs and re.fullmatch(rb"[ \t]*;[ \t]*", raw[runs[-1][1] : each.start_byte]):
            runs[-1] = (runs[-1][0], each.end_byte)
        else:
            runs.append((each.start_byte, each.end_byte))
    return runs


def _statement_splice(raw: bytes, start: int, end: int) -> Splice:
    first, last = line_start(raw, start), line_end(raw, end)
    before, after = raw[first:start], raw[end:last]
    if not before.strip() and re.fullmatch(rb"\s*;?\s*(#.*|//.*)?", after):
        return Splice(first, min(last + 1, len(raw)), "")
    if separator := re.search(rb"[ \t]*;[ \t]*\Z", before):  # `x = 1; print(x)`
        return Splice(first + separator.start(), end, "")
    separator = re.match(rb"[ \t]*;[ \t]*|[ \t]*", after)  # `print(x); x = 1`
    return Splice(start, end + (separator.end() if separator else 0), "")


def line_start(raw: bytes, position: int) -> int:
    return raw.rfind(b"\n", 0, position) + 1


def line_end(raw: bytes, position: int) -> int:
    """The position of the newline, or the end of the text."""
    found = raw.find(b"\n", position)
    return len(raw) if found < 0 else found


def remove_definition(text: str, remove: RemoveDefinition, path: Path) -> Step:
    """The removal of what nothing else mentions in a text of Python, with its decorators and its comment.

    RefusedError says by what way something may still reach it.
    """
    wanted = f"{remove.scope}.{remove.name}" if remove.scope else remove.name
    root, definition = parsed(text, PYTHON), only_definition(text, PYTHON, wanted, DEFINITION_KINDS[remove.kind])
    _check_unreachable(text, definition)
    check_mentions_of_word(path, definition.name)
    outermost = node_of(root, definition)
    _check_bases(outermost, definition.name)
    splices = remove_statements(text.encode(), [*comments_above(outermost), outermost], PYTHON)
    return Step(f"remove {definition.kind} `{definition.qualified_name}`", tuple(splices))


def _check_unreachable(text: str, definition: Definition) -> None:
    """Nothing outside the definition has its name or makes names."""
    if definition.name.startswith("__"):
        raise RefusedError(f"Python calls `{definition.name}` by itself")
    mention = one_of([definition.name])
    for number, line in enumerate(text.split("\n"), start=1):
        if definition.first_line <= number <= definition.last_line:
            continue
        if mention.search(line):
            raise RefusedError(f"line {number} mentions `{definition.name}`")
        if DYNAMIC_LOOKUP.search(line):
            raise RefusedError(f"line {number} may reach `{definition.name}` by its name")


def _check_bases(node: Node, name: str) -> None:
    """Of the class around a method: a base may call it."""
    outer = next((each for each in ancestors(node) if each.type in DEFINITIONS), None)
    bases = outer.child_by_field_name("superclasses") if outer else None
    owner = outer.child_by_field_name("name") if outer else None
    if bases and bases.named_children:
        raise RefusedError(f"a base of `{node_text(owner) if owner else ''}` may use `{name}`")


def comments_above(node: Node) -> list[Node]:
    """The comments in the lines right above, which are about it."""
    found = list[Node]()
    row, above = node.start_point.row, node.prev_sibling
    while above is not None and above.type == "comment" and above.end_point.row == row - 1:
        is_alone = above.prev_sibling is None or above.prev_sibling.end_point.row < above.start_point.row
        if not is_alone or above.start_point.column != node.start_point.column or is_directive(above):
            break
        found.insert(0, above)
        row, above = above.start_point.row, above.prev_sibling
    return found
