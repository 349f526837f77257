"""Sketches: code that shows the lines which change and has gaps ("# ... existing code ...") where the file stays.

A plugin merges them; the words of gaps are here, as an answer that is no sketch must not have them. Knows no model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from specchat.edit.source_text import Source
from specchat.errors import NoUsableEditError
from specchat.plugins.discovery import find_extensions
from specchat.plugins.own_plugins import missing_plugin

if TYPE_CHECKING:
    from specchat.edit.contract import KeptEdit

COMMENT_SIGN = r"(?:\{\s*/\*|#|//|--|/\*|<!--|;|%)"
# "# … rest of the code", "// ... existing code ...", "<!-- remaining unchanged -->": the text is not complete
OMISSION = re.compile(
    rf"^\s*{COMMENT_SIGN}\s*(\.{{3}}|…|\[|\()?\s*(the |your )?"
    r"(rest of|remaining|remainder of|existing|previous|other|same as|unchanged)\b.*"
    r"(code|file|function|method|class|implementation|unchanged|before|above|remains|stays|same)\b",
    re.IGNORECASE | re.MULTILINE,
)
UNCHANGED = re.compile(
    rf"^\s*{COMMENT_SIGN}\s*(\.{{3}}|…)?\s*unchanged\s*(\.{{3}}|…)?\s*(\*/\}}?|-->)?\s*$", re.IGNORECASE | re.MULTILINE
)
ELLIPSIS = re.compile(rf"^\s*{COMMENT_SIGN}\s*(\.{{3}}|…)\s*(\*/\}}?|-->)?\s*$", re.MULTILINE)
FENCE = re.compile(r"\A\s*(`{3,}|~{3,})[^\n]*\n(.*?)^\s*\1\s*\Z", re.DOTALL | re.MULTILINE)


class UnclearSketchError(NoUsableEditError):
    """A sketch can be merged in more than one way, or in none; the message says where."""


class SketchMerger(Protocol):
    """Merges sketches: of a plugin (`register_sketch_mergers`)."""

    def merge(self, source: Source, sketch: str) -> str:
        """The new text of the file; UnclearSketchError where it is not certain."""
        ...

    def keep(self, source: Source, text: str, sketch: str, is_valid: Callable[[str], bool]) -> KeptEdit:
        """The new text of a model, with what a sketch does not show put back where that leaves a valid text."""
        ...


def sketch_merger() -> SketchMerger:
    """The first one of a plugin; UsageError without one says which plugin to install."""
    extension = next(iter(find_extensions("sketch_mergers").values()), None)
    if extension is None:
        raise missing_plugin("the merge of sketches", "apply")
    return extension.call()


def find_omission(text: str, original: str) -> str:
    """The first placeholder ("... rest of the code") that the original text does not contain as often, or ""."""
    for pattern in (OMISSION, UNCHANGED, ELLIPSIS):
        remaining = Counter(match.group().strip() for match in pattern.finditer(original))
        for match in pattern.finditer(text):
            placeholder = match.group().strip()
            remaining[placeholder] -= 1
            if remaining[placeholder] < 0:
                return placeholder
    return ""


def without_fence(sketch: str) -> str:
    """The text of a sketch without the code fence around it."""
    text = sketch.removeprefix("\ufeff").replace("\r\n", "\n")
    fenced = FENCE.match(text)
    return fenced[2] if fenced else text
