"""The commands of a line for the shell, in any nesting, or that they are not certain.

bash's grammar reads the line, and `sh` may be another shell: what the two read differently, or what a shell computes
only when it runs, is not certain. So only forms that are listed here are read.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from tree_sitter import Node

from specchat.syntax.languages import node_kinds
from specchat.syntax.parse import node_text, syntax_tree

UNKNOWN = "\0"  # in a word: what the shell puts there
TEXTS, OTHER_READ, RESERVED = (node_kinds("shell", key) for key in ("texts", "read", "reserved"))
READ_NODES = TEXTS | OTHER_READ
CONTINUATION = "\\\n"
UNREAD_SIGNS = ("&>", "&>>", "|&")  # of bash only; other shells see two signs in each
EVALUATED = re.compile(r"\$[({]|`")  # what some programs of the shell evaluate once more
EXPANDED = re.compile(r"[*?\[]|\{[^{}]*(,|\.\.)[^{}]*\}")
ESCAPE, QUOTED_ESCAPE = re.compile(r"\\(.)", re.DOTALL), re.compile(r'\\([$`"\\])')


def shell_commands(line: str) -> list[tuple[str, ...]] | None:
    """The words of each command, without quotes, assignments and redirections. None where that is not certain.

    `cd x && X=1 gi"t" push > log` has ("cd", "x") and ("git", "push").
    """
    if CONTINUATION in line and "#" in line:  # a comment is not continued
        return None
    root = syntax_tree(line.replace(CONTINUATION, ""), "bash")
    if root is None or root.has_error:
        return None
    nodes = list(_nodes(root))
    if not all(_is_read(node) for node in nodes):
        return None
    commands = [tuple(map(_word, _words(node))) for node in nodes if node.type == "command" and _words(node)]
    return None if any(words[0] in RESERVED for words in commands) else commands


def _nodes(root: Node) -> Iterator[Node]:
    """All nodes in the order of the text. Not recursive, because a line may be nested deeply."""
    stack = [root]
    while stack:
        yield (node := stack.pop())
        stack.extend(reversed(node.children))


def _is_read(node: Node) -> bool:
    """Whether every shell reads this node so. Two words that touch, or a redirection to two files, are misread."""
    if not node.is_named:
        return node.type not in UNREAD_SIGNS
    if node.type in TEXTS and EVALUATED.search(_word(node)):
        return False
    touching = node.type == "command" and any(a.end_byte == b.start_byte for a, b in pairwise(_words(node)))
    is_split = node.type == "file_redirect" and len(node.children_by_field_name("destination")) > 1
    return node.type in READ_NODES and not touching and not is_split


def _words(command: Node) -> list[Node]:
    return [*command.children_by_field_name("name"), *command.children_by_field_name("argument")]


def _word(node: Node) -> str:
    """The text of a word; UNKNOWN stands for what the shell expands."""
    text = node_text(node)
    match node.type:
        case "command_name":
            return "".join(map(_word, node.children))
        case "concatenation":
            unquoted = "".join(node_text(child) if child.type in ("word", "number") else "_" for child in node.children)
            is_expanded = EXPANDED.search(ESCAPE.sub("", unquoted))
            return UNKNOWN if is_expanded else "".join(map(_word, node.children))
        case "raw_string":
            return text[1:-1]
        case "string":
            has_expansion = any(child.is_named and child.type != "string_content" for child in node.children)
            return UNKNOWN if has_expansion else QUOTED_ESCAPE.sub(r"\1", text[1:-1])
        case "string_content":
            return QUOTED_ESCAPE.sub(r"\1", text)
        case "word" | "number":
            return UNKNOWN if EXPANDED.search(ESCAPE.sub("", text)) else ESCAPE.sub(r"\1", text)
        case _:
            return UNKNOWN
