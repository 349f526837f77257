"""A diff as coloured text: marks and backgrounds for its lines, and the colours of the language of its file.

The marks alone tell the lines apart where there are no colours.
"""

from pathlib import PurePath

from textual.content import Content
from textual.highlight import highlight

from specchat.drawing.glyphs import printable
from specchat.syntax import language_of

MARK_STYLES = {"+": "$text-success", "-": "$text-error"}
LINE_BACKGROUNDS = {"+": "on $success 15%", "-": "on $error 15%"}
HEADING_MARK, HEADING_STYLE = "@", "$text-muted"


def diff_content(file: str, diff: str) -> Content:
    """The lines of a diff of this file."""
    lines = [printable(line.rstrip("\r\n")) for line in diff.split("\n")]
    language = language_of(PurePath(file).name) or "text"
    code = highlight("\n".join(line[1:] for line in lines), language=language).split("\n", allow_blank=True)
    coloured = [*code, *[Content()] * (len(lines) - len(code))]
    return Content("\n").join(_diff_line(line, code) for line, code in zip(lines, coloured, strict=False))


def _diff_line(line: str, code: Content) -> Content:
    mark, text = line[:1], line[1:]
    if mark == HEADING_MARK:
        return Content(line).stylize(HEADING_STYLE)
    shown = code if code.plain == text else Content(text)  # the lexer may drop blank lines at the ends
    if mark not in MARK_STYLES:
        return Content(mark) + shown
    return (Content(mark).stylize(MARK_STYLES[mark]) + shown).stylize(LINE_BACKGROUNDS[mark])
