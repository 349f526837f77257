"""The statements of a source file, those that are members of another one (a class, a namespace, a table, a guard), and
those in the bodies of functions and loops.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from specchat.syntax.languages import node_kinds
from specchat.syntax.parse import COMMENT_TYPES, blanked, comment_nodes, find_nodes, line_of, node_text, syntax_tree

WORD = re.compile(r"\w+")
# strings, numbers, words, operators, and other signs one by one
TOKEN = re.compile(
    r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\\n])*`|\d(?:[\w.]*\w)?|\w+|[<>=!+*/%&|^~?:-]+|[^\w\s]"
)
KINDS = "holders clauses wrappers containers direct_containers markers imports functions calls bodies"
HOLDERS, CLAUSES, WRAPPERS, CONTAINERS, DIRECT_CONTAINERS, MARKERS, IMPORTS, FUNCTIONS, CALLS, BODIES = (
    node_kinds("statements", key) for key in WORD.findall(KINDS)
)
NO_STATEMENTS = node_kinds("statements", "no_statements") | set(COMMENT_TYPES)
CLASSES = frozenset(each for each in CONTAINERS if each.startswith(("class", "struct", "trait", "interface", "enum")))
PYTHON_CONTAINERS = frozenset(("if_statement", "try_statement", "with_statement"))
MAX_DEPTH = 40
NAME_FIELDS = ("name", "key", "left", "condition", "declarator")


@dataclass(frozen=True)
class Statement:
    """A statement or member. `words` leaves out comments and docstrings; `name` is "" for one that defines nothing.

    `tokens` are those of the statement alone, without those of the statements below it. `owner` is the number of the
    statement that it belongs to, -1 at the top level; `is_inner`: it stands in the body of a function or of a loop.
    Lines count from 1, `last_line` included.
    """

    kind: str
    name: str
    text: str
    words: tuple[str, ...]
    line: int
    owner: int = -1
    tokens: tuple[str, ...] = ()
    last_line: int = 0
    is_inner: bool = False

    @property
    def is_import(self) -> bool:
        return self.kind in IMPORTS

    @property
    def is_call(self) -> bool:
        return "call" in self.kind or self.kind in CALLS

    @property
    def is_part(self) -> bool:
        """Whether this belongs to the statement above it: a line of a body, a decorator."""
        return self.is_inner or self.kind in MARKERS

    @property
    def is_definition(self) -> bool:
        """Whether this is a function or a class."""
        return self.is_function or self.kind in CLASSES

    @property
    def is_function(self) -> bool:
        return self.kind in FUNCTIONS


def statements(text: str, language: str) -> list[Statement]:
    """Every statement in the order of the text, each before its members; none for plain text."""
    root = syntax_tree(text, language)
    if root is None:
        return []
    no_code = (*comment_nodes(root, language), *find_nodes(root, language, ("pass_statement",)))
    reading = _Reading(blanked(text, no_code), language)
    reading.collect(root, -1)
    return reading.found


def code_words(side: Iterable[Statement]) -> Counter[str]:
    """The words outside of imports."""
    words = Counter[str]()
    for each in side:
        if each.owner < 0 and not each.is_import:
            words.update(each.words)
        if each.owner >= 0 and each.is_import:  # its owner has counted it
            words.subtract(each.words)
    return +words


@dataclass
class _Reading:
    """The statements found so far in a text without its comments."""

    code: bytes
    language: str
    found: list[Statement] = field(default_factory=list[Statement])

    def collect(self, node: Node, owner: int, depth: int = 0) -> None:
        """Add the members of a node. What is nested more deeply than people write is not looked at."""
        for outer, inner in _members(node, is_direct=owner < 0 or node.type in DIRECT_CONTAINERS):
            self._add(outer, inner, owner, depth)

    def _add(self, outer: Node, inner: Node, owner: int, depth: int, *, is_inner: bool = False) -> None:
        words = tuple(WORD.findall(self._code(outer)))
        if not words or _is_docstring(inner):
            return
        number, last = len(self.found), outer.end_point.row + bool(outer.end_point.column)
        statement = Statement(
            inner.type, _name(inner), node_text(outer), words, line_of(outer), owner, (), last, is_inner
        )
        self.found.append(statement)
        markers = _markers(outer, inner)
        for marker in markers:
            text, line = node_text(marker), line_of(marker)
            words, last = tuple(WORD.findall(text)), marker.end_point.row + 1
            self.found.append(Statement(marker.type, "", text, words, line, number, _tokens(text), last, is_inner))
        below = list[Node]()
        if depth < MAX_DEPTH and not is_inner and _has_members(inner, self.language):
            self.collect(inner, number, depth + 1)
            below = [each for each, _inner in _members(inner, is_direct=inner.type in DIRECT_CONTAINERS)]
        elif depth < MAX_DEPTH:
            below = list(_body_statements(inner))
            for each in below:
                self._add(each, _unwrapped(each), number, depth + 1, is_inner=True)
        self.found[number] = replace(statement, tokens=_tokens(self._code(outer, [*markers, *below])))

    def _code(self, node: Node, without: Iterable[Node] = ()) -> str:
        parts, done = list[bytes](), node.start_byte
        for each in without:
            parts.append(self.code[done : each.start_byte])
            done = max(done, each.end_byte)
        return b" ".join([*parts, self.code[done : node.end_byte]]).decode(errors="replace")


def _tokens(text: str) -> tuple[str, ...]:
    return tuple(TOKEN.findall(text))


def _body_statements(node: Node) -> Iterator[Node]:
    """The outermost statements in the bodies below a node."""
    stack = [(child, node.type) for child in reversed(node.named_children)]
    while stack:
        child, parent = stack.pop()
        if child.type in NO_STATEMENTS:
            continue
        is_command = child.type == "command" and parent.endswith("_statement")
        if child.type not in BODIES and (parent in BODIES or is_command or child.type.endswith("_statement")):
            yield child
        else:
            stack.extend((each, child.type) for each in reversed(child.named_children))


def _members(node: Node, *, is_direct: bool, depth: int = 0) -> Iterator[tuple[Node, Node]]:
    """The statements below a node: with what belongs to them (`export`, decorators), and alone."""
    names = (node.child_by_field_name("key"), node.child_by_field_name("name"))
    for child in node.named_children if depth < MAX_DEPTH else ():
        if child in names or child.type in NO_STATEMENTS or child.type in MARKERS:
            continue
        if child.type in CLAUSES:
            yield from _members(child, is_direct=False, depth=depth + 1)
        elif child.type in WRAPPERS:
            inner = child.named_children[-1] if child.named_children else child
            if inner.type in HOLDERS:
                yield from _members(inner, is_direct=True, depth=depth + 1)
            elif is_direct:
                yield child, inner
        elif child.type in HOLDERS or (child.type == "import_declaration" and _is_group(child)):
            yield from _members(child, is_direct=True, depth=depth + 1)
        elif is_direct:
            yield child, _unwrapped(child)


def _is_group(node: Node) -> bool:
    """Whether this is an `import` of Go, which has its specifications below it."""
    return any(child.type in ("import_spec", "import_spec_list") for child in node.named_children)


def _unwrapped(node: Node) -> Node:
    while node.type in ("expression_statement", "decorated_definition") and len(node.named_children) == 1:
        node = node.named_children[0]
    return node


def _has_members(node: Node, language: str) -> bool:
    is_python = language == "python" and node.type in PYTHON_CONTAINERS
    return is_python or node.type in CONTAINERS or node.type in DIRECT_CONTAINERS


def _markers(outer: Node, inner: Node) -> list[Node]:
    holders = [outer, *([inner] if inner != outer else [])]
    holders += [child for child in inner.named_children if child.type == "modifiers"]
    return [child for each in holders for child in each.named_children if child.type in MARKERS]


def _is_docstring(node: Node) -> bool:
    return (
        node.type in ("string", "ellipsis") and node.parent is not None and node.parent.type == "expression_statement"
    )


def _name(node: Node) -> str:
    """What a statement defines: `count`, `app.debug`, a key, the condition of a guard."""
    if node.type in IMPORTS:
        return ""
    if node.type in ("impl_item", "rule_set", "media_statement"):
        return " ".join(node_text(node).partition("{")[0].split())
    for label in NAME_FIELDS:
        named = node.child_by_field_name(label)
        while named is not None and (
            inner := named.child_by_field_name("declarator") or named.child_by_field_name("name")
        ):
            named = inner
        if named is not None and node.type not in ("command", "call", "call_expression"):
            return unquoted(node_text(named))
    first = node.named_children[0] if node.named_children else None
    is_key = first is not None and first.type in ("bare_key", "dotted_key", "quoted_key", "property_name")
    return unquoted(node_text(first)) if first is not None and is_key else ""


def unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
