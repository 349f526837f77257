"""From an answer to a new text: unwrap it, distrust it, compare it. Knows no model and no file."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from difflib import unified_diff
from pathlib import PurePath

from specchat.edit.source import Source
from specchat.errors import BrokenEditError, NoChangeError, NoUsableEditError

FENCE = re.compile(r"\A\s*(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<inside>.*?)\n?(?P=fence)[ \t]*\s*\Z", re.DOTALL)
REFUSAL = re.compile(r"\A\s*(I'm sorry|I am sorry|Sorry,|I cannot|I can't|As an AI)", re.IGNORECASE)
# "# … rest of the code", "// ... existing code ...", "<!-- remaining unchanged -->": a file that is not whole
OMISSION = re.compile(
    r"^\s*(#|//|--|/\*|<!--|;|%)\s*(\.{3}|…|\[|\()?\s*(the )?"
    r"(rest of|remaining|remainder of|existing|previous|other|same as|unchanged)\b.*"
    r"(code|file|function|method|class|implementation|unchanged|before|above|remains|stays|same)\b",
    re.IGNORECASE | re.MULTILINE,
)
ELLIPSIS = re.compile(r"^\s*(#|//|--|/\*|<!--|;|%)\s*(\.{3}|…)\s*(\*/|-->)?\s*$", re.MULTILINE)


def new_text(source: Source, answer: str) -> str:
    """The whole new text that an answer holds; an EditError when it holds none."""
    text = unfenced(answer)
    if not text.strip() or (REFUSAL.match(text) and not REFUSAL.match(source.text)):
        raise NoUsableEditError(f"{source.name}: the model gave no new text: {_first_line(answer)}")
    for pattern in (OMISSION, ELLIPSIS):
        for found in pattern.finditer(text):
            if found.group().strip() not in source.text:
                raise NoUsableEditError(f"{source.name}: the model left something out: {found.group().strip()}")
    text = _as_deep_as(source.indent, text)
    if source.encode(text) == source.encode(source.text):
        raise NoChangeError(f"{source.name}: the model sees nothing to change")
    check_syntax(source, text)
    return text


def unfenced(answer: str) -> str:
    """The inside of one fence around everything; otherwise the answer as it is.

    "```python\\nx = 1\\n```" becomes "x = 1".
    """
    found = FENCE.match(answer)
    return found["inside"] if found else answer


def check_syntax(source: Source, text: str) -> None:
    """BrokenEditError when the old text parses and the new one does not; languages that we cannot parse pass."""
    parse = PARSERS.get(PurePath(source.name).suffix)
    if parse and _fault(parse, source.text) is None and (fault := _fault(parse, text)):
        raise BrokenEditError(f"{source.name}: the new text does not parse: {fault}")


def diff(source: Source, text: str) -> str:
    """A unified diff that `patch -p1` and `git apply` take."""
    name = source.name.lstrip("/")
    old, new = (_lines(each.decode("utf-8-sig")) for each in (source.raw, source.encode(text)))
    lines = unified_diff(old, new, f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Lines as git sees them; `splitlines` would also cut at form feeds and other separators."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _as_deep_as(indent: str, text: str) -> str:
    """A selection that began indented stays so, also when the model moved it to the margin."""
    if not indent or text[:1].isspace():
        return text
    return "\n".join(indent + line if line.strip() else line for line in text.split("\n"))


def _first_line(answer: str) -> str:
    return (answer.strip().splitlines() or ["(nothing)"])[0][:80]


def _python(text: str) -> None:
    compile(text, "new text", "exec", dont_inherit=True)


PARSERS: Mapping[str, Callable[[str], object]] = {".py": _python, ".json": json.loads, ".toml": tomllib.loads}


def _fault(parse: Callable[[str], object], text: str) -> str | None:
    try:
        parse(text)
    except (ValueError, SyntaxError, RecursionError) as error:
        return str(error)
    return None
