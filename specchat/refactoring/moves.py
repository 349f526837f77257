"""Moves a definition or a constant of Python before or after another one of its module or class, where no order counts.

Its lines stay as they are, with decorators and the comment right above. A move passes definitions and constants only:
none of them may use the other while it is defined, run code, or be noted by something in their order.
"""

import builtins
import re
from itertools import takewhile

from tree_sitter import Node

from specchat.edit.operations import Move
from specchat.refactoring.language_rules import PYTHON, directive_pattern, rule_words
from specchat.refactoring.python_dangers import MODULE_LOOKUPS, PLAIN_DECORATORS
from specchat.refactoring.python_text import NO_RELATIVES
from specchat.refactoring.removals import CLASS, DEFINITIONS, FUNCTION, bodies, comments_above, parsed
from specchat.refactoring.splices import RefusedError, Splice, Step, UnknownLanguageError, count_of, line_area
from specchat.syntax.parse import blanked, contains, find_nodes, line_of, node_text

NOTES_ORDER = re.compile(
    r"__init_subclass__|__subclasses__|metaclass|__prepare__|getsource|currentframe|\bgetmembers\b"
)
RUNNING = rule_words("moves", "running")


def move_statement(text: str, move: Move) -> Step:
    """The move as changes of a text of Python. RefusedError says what depends on the order."""
    root = parsed(text, PYTHON)
    moved, anchor = (_statement(root, name) for name in (move.name, move.anchor))
    if moved.parent is None or moved.parent != anchor.parent or moved == anchor:
        raise RefusedError(f"`{move.name}` and `{move.anchor}` are not two statements of one module or class")
    block = [each for each in moved.parent.named_children if each.type != "comment"]
    old, new = block.index(moved), block.index(anchor) + (not move.is_before)
    passed = block[new:old] if new <= old else block[old + 1 : new]
    for each in (moved, *passed):
        _check_order(root, each)
    if moved.parent.type == "block" and _inner(moved).type == "assignment":
        raise RefusedError("the order of the fields of a class counts")
    for pattern in (NOTES_ORDER, MODULE_LOOKUPS):
        if found := pattern.search(text):
            raise RefusedError(f"`{found[0].strip()}` may note the order")
    for each in passed:
        if names := {_name(each)} & _used(text, moved) or {_name(moved)} & _used(text, each):
            raise RefusedError(f"`{min(names)}` in line {line_of(each)} has to keep its place")
    for each in (moved, anchor):
        if (place := block.index(each) + 1) < len(block) and re.match("[rRuU]?[\"']", node_text(block[place])):
            raise RefusedError(f"the text in line {line_of(block[place])} is about the line above")
    ends = (old == 0, old == len(block) - 1)
    splices = _splices(text.split("\n"), text, moved, anchor, ends, is_before=move.is_before) if passed else ()
    return Step(f"move `{move.name}` {'before' if move.is_before else 'after'} `{move.anchor}`", splices)


def _statement(root: Node, name: str) -> Node:
    """The one statement of a module or class that defines a name ("feed", "Parser.feed")."""
    owner, _, last = name.rpartition(".")
    blocks = [each for each in bodies(root, CLASS) if owner in ("", _name(each.parent or each))]
    blocks = [*([] if owner else [root]), *blocks]
    found = [each for block in blocks for each in block.named_children if _name(each) == last]
    if len(found) != 1:
        kind = RefusedError if found else UnknownLanguageError  # a local statement is for a model
        raise kind(f"{count_of(found, 'statement')} of the file define `{name}`")
    return found[0]


def _inner(node: Node) -> Node:
    """The definition below decorators, or what an expression statement is."""
    if node.type == "expression_statement" and len(node.named_children) == 1:
        return node.named_children[0]
    return node.child_by_field_name("definition") or node


def _name(node: Node) -> str:
    """What a definition or an assignment defines, "" for anything else."""
    inner = _inner(node)
    name = inner.child_by_field_name("left" if inner.type == "assignment" else "name")
    return node_text(name) if name and name.type == "identifier" and inner.type in (*DEFINITIONS, "assignment") else ""


def _used(text: str, node: Node) -> set[str]:
    """The words of a statement that count when it is reached: those outside of the bodies of functions."""
    code = blanked(text, bodies(node, FUNCTION))[node.start_byte : node.end_byte]
    return set(re.findall(r"\w+", code.decode(errors="replace")))


def _check_order(root: Node, node: Node) -> None:
    """RefusedError for what runs code, registers itself, or is neither a definition nor a constant."""
    decorators, classes = find_nodes(node, PYTHON, ("decorator",)), find_nodes(root, PYTHON, (CLASS,))
    later = [*bodies(node, FUNCTION), *decorators, *find_nodes(node, PYTHON, ("type",))]
    running = [each for each in find_nodes(node, PYTHON, RUNNING) if not any(contains(part, each) for part in later)]
    if not _name(node) or any(each.type == "call" or find_nodes(each, PYTHON, ("identifier",)) for each in running):
        raise RefusedError(f"line {line_of(node)} may run code, whose place counts")
    own = set(map(_name, find_nodes(root, PYTHON, DEFINITIONS)))
    for each in decorators:
        name = node_text(each).partition("(")[0].strip("@ ").rpartition(".")[2]
        if name not in PLAIN_DECORATORS or name in own or len(find_nodes(each, PYTHON, ("call",))) > 1:
            raise RefusedError(f"`@{name}` may note the order")
    plain = set(NO_RELATIVES) - own | {name for name in dir(builtins) if name not in own}
    for each in classes:
        listed = each.child_by_field_name("superclasses")
        strange = [base for base in map(node_text, listed.named_children if listed else ()) if base not in plain]
        plain |= set() if strange else {_name(each)}
        if strange and node.start_byte <= each.start_byte < node.end_byte:
            raise RefusedError(f"`{strange[0]}` may note the order of its classes")


def _splices(
    lines: list[str], text: str, moved: Node, anchor: Node, ends: tuple[bool, bool], *, is_before: bool
) -> tuple[Splice, ...]:
    """The lines in their new place; the wider of the gaps around them stays, and goes along with a definition."""
    (first, end), (start, stop) = (_rows(each, lines) for each in (moved, anchor))
    above, below = (sum(1 for _line in takewhile(lambda line: not line.strip(), side))
                    for side in (lines[:first][::-1], lines[end:]))  # fmt: skip
    is_definition = any(_inner(each).type in DEFINITIONS for each in (moved, anchor))
    gap = below if ends[0] else above if ends[1] else (max if is_definition else min)(above, below)
    is_end = end + below >= len(lines)
    gone = (first - above, end) if is_end else (first, end + (below if ends[0] else min(above, below)))
    place = start if is_before else stop
    inserted = [*lines[first:end], *[""] * gap] if is_before else [*[""] * gap, *lines[first:end]]
    low, high = min(gone[0], place), max(gone[1], place)
    for row in range(low, high):
        if lines[row].lstrip().startswith("#") and directive_pattern().match(lines[row].lstrip()):
            raise RefusedError(f"the comment in line {row + 1} is for a tool")
    kept = [*lines[low : gone[0]], *lines[gone[1] : high]]
    new = [*inserted, *kept] if place == low else [*kept, *inserted]
    area = line_area(text, low + 1, high)
    return (Splice(area.start, area.end, "\n".join(new) + ("\n" if high < len(lines) else "")),)


def _rows(node: Node, lines: list[str]) -> tuple[int, int]:
    """The lines of a statement, from 0, with the comments right above and those at the end of its body."""
    first = min(each.start_point.row for each in (*comments_above(node), node))
    row, column = node.end_point.row, node.start_point.column
    is_alone = not lines[node.start_point.row][:column].strip() and re.fullmatch(
        rb"\s*(#.*)?", lines[row].encode()[node.end_point.column :]
    )
    if not is_alone or (first and lines[first - 1].lstrip().startswith("#")):
        raise RefusedError(f"line {first + 1} shares its place with something else")
    end = row + 1
    for number in range(end, len(lines)):
        line = lines[number].lstrip()
        if line.startswith("#") and len(lines[number]) - len(line) > column:
            end = number + 1
        elif line:
            break
    return first, end
