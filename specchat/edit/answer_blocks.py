"""Which part of an answer is the new text; the rest is talk.

An answer may be the text itself, a text in a code fence with or without talk around it, several blocks, or changes to
apply (`answer_patches.py`). Of all parts that fences enclose, and the answer as a whole, the one that parses, changes
something and is most like the file is taken. Whether it can be taken is decided by `answer_check.py`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import NamedTuple

from specchat.edit.answer_patches import (
    PatchError,
    apply_diff,
    apply_search_blocks,
    has_search_blocks,
    is_diff,
    without_search_blocks,
)
from specchat.edit.source_text import Source
from specchat.edit.syntax_check import parses
from specchat.syntax.languages import LANGUAGES, language_of

FENCE_LINE = re.compile(r"^ {0,3}(?P<marks>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*?)[ \t]*$", re.MULTILINE)
MAX_PAIRED_FENCES = 12  # with more fence lines, a block ends at the first line that can close it
MIN_FILE_SIMILARITY = 0.6  # of a block that is the whole file, beside a diff
DIFF_LANGUAGES = ("diff", "patch")
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # a model must not control the terminal


@dataclass(frozen=True)
class ChosenText:
    """The text that may become the new one, what the model says beside it, and why its changes do not apply."""

    text: str
    talk: str = ""
    is_patched: bool = False  # changes that were applied to the old text
    patch_problem: str = ""


@dataclass(frozen=True)
class _Block:
    """A part of an answer between two fence lines, or after the last one."""

    start: int
    end: int
    language: str
    inside: str
    is_closed: bool = True


class _Rank(NamedTuple):
    """How well a part fits: those that parse come first, then those that change something, then the most similar."""

    parses: bool
    is_changed: bool
    similarity: float

    @property
    def fit(self) -> tuple[bool, float]:
        """The rank without the question whether it changes something."""
        return self.parses, self.similarity


def choose_text(source: Source, answer: str) -> ChosenText:
    """The part of an answer to take.

    "Here it is:\\n```python\\nx = 2\\n```\\nDone." is "x = 2\\n" with the talk "Here it is:\\n\\nDone.".
    """
    answer = answer.replace("\r\n", "\n")
    blocks = [block for block in _blocks(answer) if block.inside.strip()]
    if patched := patched_text(source, answer):
        return patched
    if not source.text.strip():
        return _text_of_new_file(answer, blocks)
    if not blocks:
        return ChosenText(answer)
    whole = _Block(0, len(answer), "", answer)
    ranks = {block: _rank(source, block) for block in (*blocks, whole) if _may_be_a_text(source, block.inside)}
    best = max((block for block in ranks if block != whole), key=lambda block: ranks[block], default=whole)
    if whole in ranks and ranks[whole].fit > ranks[best].fit:
        return ChosenText(answer)  # its fences belong to the text
    return ChosenText(best.inside, _talk_around(answer, [best]))


def line_similarity(old: str, new: str) -> float:
    """How many lines two texts share in order, from 0 to 1; spaces around a line do not count."""
    old_lines, new_lines = ([line.strip() for line in each.split("\n") if line.strip()] for each in (old, new))
    return SequenceMatcher(None, old_lines, new_lines, autojunk=False).ratio()


def patched_text(source: Source, answer: str) -> ChosenText | None:
    """The old text with the changes of an answer; None when it names none, or holds a whole file beside them."""
    if has_search_blocks(answer) and not has_search_blocks(source.text):
        talk = FENCE_LINE.sub("", without_search_blocks(answer))
        return _try_patch(lambda: apply_search_blocks(source.text, answer), _clean(talk))
    if is_diff(source.text):
        return None
    if is_diff(answer):
        return _try_patch(lambda: apply_diff(source.text, source.name, answer), "")
    closed = list(_first_closed_blocks(answer))
    diffs = [block for block in closed if _diff_of(block)]
    files = [block for block in closed if block not in diffs]
    if not diffs or any(line_similarity(source.text, each.inside) >= MIN_FILE_SIMILARITY for each in files):
        return None

    def apply_all() -> str:
        text = source.text
        for block in diffs:
            text = apply_diff(text, source.name, _diff_of(block))
        return text

    return _try_patch(apply_all, _talk_around(answer, diffs))


def _may_be_a_text(source: Source, text: str) -> bool:
    """Whether fence lines inside can belong to a text: the old one has such lines, or the new one parses with them."""
    if not FENCE_LINE.search(text) or FENCE_LINE.search(source.text):
        return True
    return bool(parses(text, source.language))


def _try_patch(apply: Callable[[], str], talk: str) -> ChosenText:
    try:
        return ChosenText(apply(), talk, is_patched=True)
    except PatchError as error:
        return ChosenText("", talk, is_patched=True, patch_problem=str(error))


def _diff_of(block: _Block) -> str:
    """The unified diff in a block; "" for another block. A block of changed lines needs no header of a hunk."""
    if is_diff(block.inside):
        return block.inside
    headed = f"@@\n{block.inside}"
    return headed if block.language in DIFF_LANGUAGES and is_diff(headed) else ""


def _text_of_new_file(answer: str, blocks: Sequence[_Block]) -> ChosenText:
    """The only block of an answer, or the answer: nothing says which of several blocks is the file."""
    closed = list(_first_closed_blocks(answer))
    enclosing = [block for block in blocks if block.is_closed and not _talk_around(answer, [block])]
    chosen = enclosing[0] if enclosing else closed[0] if len(closed) == 1 else None
    return ChosenText(chosen.inside, _talk_around(answer, [chosen])) if chosen else ChosenText(answer)


def _blocks(answer: str) -> Iterator[_Block]:
    """Every text between two fence lines that can be a pair, the ordinary ones first, and after each fence line.

    A fence line inside of the text looks like an end. Which pair is meant, only the file can tell.
    """
    yield from _first_closed_blocks(answer)
    fences = list(FENCE_LINE.finditer(answer))
    for number, opening in enumerate(fences if len(fences) <= MAX_PAIRED_FENCES else ()):
        for closing in (each for each in fences[number + 1 :] if _closes(each, opening)):
            yield _block(answer, opening, closing.start(), closing.end())
    if fences and not fences[-1]["info"] and not answer[fences[-1].end() :].strip():
        # a model that closes a long fence with the usual three characters
        for opening in (each for each in fences[:-1] if not _closes(fences[-1], each)):
            yield _block(answer, opening, fences[-1].start(), fences[-1].end())
    for opening in fences:
        yield replace(_block(answer, opening, len(answer), len(answer)), is_closed=False)


def _first_closed_blocks(answer: str) -> Iterator[_Block]:
    """The blocks as Markdown reads them: each ends at the first line that can close it."""
    opening = None
    for fence in FENCE_LINE.finditer(answer):
        if opening is None:
            opening = fence
        elif _closes(fence, opening):
            yield _block(answer, opening, fence.start(), fence.end())
            opening = None


def _block(answer: str, opening: re.Match[str], inside_end: int, end: int) -> _Block:
    language = (opening["info"].split() or [""])[0].lower()
    return _Block(opening.start(), end, language, answer[opening.end() + 1 : inside_end])


def _closes(closing: re.Match[str], opening: re.Match[str]) -> bool:
    return not closing["info"] and closing["marks"].startswith(opening["marks"])


def _rank(source: Source, block: _Block) -> _Rank:
    text, named = block.inside, block.language
    language = source.language or (named if named in LANGUAGES else language_of(f"block.{named}"))
    is_broken = bool(parses(source.text, language)) and parses(text, language) is False
    is_changed = text.strip() != source.text.strip()
    return _Rank(not is_broken, is_changed, line_similarity(source.text, text))


def _talk_around(answer: str, blocks: Sequence[_Block]) -> str:
    """The answer without these blocks, which do not overlap."""
    parts, done = list[str](), 0
    for block in blocks:
        parts.append(_clean(answer[done : block.start]))
        done = block.end
    return "\n\n".join(part for part in (*parts, _clean(answer[done:])) if part)


def _clean(talk: str) -> str:
    return CONTROL_CHARACTERS.sub("", talk).strip()
