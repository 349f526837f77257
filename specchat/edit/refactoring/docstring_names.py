"""Where a docstring names a parameter: the conventions of Sphinx, Google, NumPy and Epytext, and names in backticks.

Only these places are certain; the same word in running text may mean something else.
"""

import re
from collections.abc import Iterator

SECTION = re.compile(
    r"^[ \t]*(?:Args|Arguments|Parameters|Params|Other Parameters|Keyword Args|Keyword Arguments):?[ \t]*$"
)
UNDERLINE = re.compile(r"^[ \t]*-{3,}[ \t]*$")
ANY_HEADING = re.compile(r"^[ \t]*[A-Z][\w ]*:[ \t]*$")


def find_parameter_names(docstring: str, name: str) -> list[int]:
    """The positions, in characters, where a docstring names a parameter.

    For ":param limit: the limit" and the name "limit" it is [7].
    """
    return sorted({*_field_names(docstring, name), *_quoted_names(docstring, name), *_section_names(docstring, name)})


def _field_names(docstring: str, name: str) -> Iterator[int]:
    """`:param limit:`, `:param int limit:`, `:type limit:`, `@param limit:`."""
    field = rf"[:@](?:param|parameter|arg|argument|key|keyword|kwarg|type)\b[^:\n]*?\*{{0,2}}\b({re.escape(name)})\s*:"
    yield from (match.start(1) for match in re.finditer(field, docstring))


def _quoted_names(docstring: str, name: str) -> Iterator[int]:
    """`limit` and ``limit``."""
    quoted = rf"(?<![`\w])(`{{1,2}})({re.escape(name)})\1(?![`\w])"
    yield from (match.start(2) for match in re.finditer(quoted, docstring))


def _section_names(docstring: str, name: str) -> Iterator[int]:
    """`limit: …` and `limit (int): …` below "Args:", and `limit : int` below an underlined "Parameters"."""
    entry = re.compile(
        rf"^(?P<indent>[ \t]*)(?P<before>(?:\*{{0,2}}\w+, *)*\*{{0,2}})(?P<name>{re.escape(name)})"
        r"(?=(?:, *\*{0,2}\w+)*[ \t]*(?:\([^()\n]*\))?[ \t]*(?::|$))"
    )
    offset, section_indent, entry_indent = 0, None, None
    for line in docstring.split("\n"):
        indent = len(line) - len(line.lstrip())
        if SECTION.match(line):
            section_indent, entry_indent = indent, None
        elif section_indent is not None and line.strip() and not UNDERLINE.match(line):
            if entry_indent is None:
                entry_indent = indent
            if indent < max(section_indent, entry_indent) or (ANY_HEADING.match(line) and indent == section_indent):
                section_indent = None
            elif indent == entry_indent and (match := entry.match(line)):
                yield offset + match.start("name")
        offset += len(line) + 1
