"""Is an answer the whole new text, and nothing else? Everything that says no has a name. Knows no model and no file."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from specchat.edit.source_text import Source
from specchat.errors import NoChangeError, NoUsableEditError
from specchat.syntax import comments, language_of, syntax_diagnostics

FENCED_ANSWER = re.compile(r"\A\s*(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<inside>.*?)\n?(?P=fence)[ \t]*\s*\Z", re.DOTALL)
FENCE_LINE = re.compile(r"^\s*(?:`{3,}|~{3,})", re.MULTILINE)
REFUSAL = re.compile(r"\A\s*(I'm sorry|I am sorry|Sorry,|I cannot|I can't|I can’t|As an AI|I'm unable)", re.IGNORECASE)
PREAMBLE = re.compile(
    r"\A\s*(Here is|Here's|Here are|Sure[,!.]|Certainly[,!.]|Of course[,!.]|Below is|The (updated|modified|new) "
    r"|I have |I've |Okay[,!.]|To \w+ (this|the) )",
    re.IGNORECASE,
)
# "# … rest of the code", "// ... existing code ...", "<!-- remaining unchanged -->": a file that is not whole
OMISSION = re.compile(
    r"^\s*(#|//|--|/\*|<!--|;|%)\s*(\.{3}|…|\[|\()?\s*(the |your )?"
    r"(rest of|remaining|remainder of|existing|previous|other|same as|unchanged)\b.*"
    r"(code|file|function|method|class|implementation|unchanged|before|above|remains|stays|same)\b",
    re.IGNORECASE | re.MULTILINE,
)
UNCHANGED = re.compile(
    r"^\s*(#|//|--|/\*|<!--|;|%)\s*(\.{3}|…)?\s*unchanged\s*(\.{3}|…)?\s*(\*/|-->)?\s*$", re.IGNORECASE | re.MULTILINE
)
ELLIPSIS = re.compile(r"^\s*(#|//|--|/\*|<!--|;|%)\s*(\.{3}|…)\s*(\*/|-->)?\s*$", re.MULTILINE)
WORD = re.compile(r"[^\W\d_]\w{2,}")
MIN_WORDS = 8  # in fewer words nothing can be recognised
MIN_KNOWN_WORD_FRACTION = 0.2  # of the old words: a rewritten file keeps more of them, a speech about it fewer
MAX_LOST_LINE_FRACTION = 0.4
LOOP_REPEATS = 4
LOOP_WINDOW_CHARS = 4000  # of the end, where a loop would be
EXCERPT_CHARS = 80


class AnswerProblem(StrEnum):
    """Why an answer is not taken, or not without a look at it."""

    EMPTY = "no text"
    REFUSAL = "a refusal"
    PROSE = "talk about the text"
    OMISSION = "something left out"
    CUT_OFF = "no end"
    LOOP = "a loop"
    MUCH_SHORTER = "much shorter"
    LOST_COMMENTS = "comments lost"


RETRYABLE_PROBLEMS = (AnswerProblem.EMPTY, AnswerProblem.PROSE, AnswerProblem.OMISSION)  # a second try may do better


class UnusableAnswerError(NoUsableEditError):
    """An answer that is no new text, and why in one word."""

    def __init__(self, problem: AnswerProblem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


@dataclass(frozen=True)
class EditWarnings:
    """What a person should look at before it is taken: comments that are gone, and whether it is much shorter."""

    lost_comments: tuple[str, ...] = ()
    is_much_shorter: bool = False

    @property
    def worst_problem(self) -> AnswerProblem | None:
        """The gravest of them."""
        return (
            AnswerProblem.MUCH_SHORTER
            if self.is_much_shorter
            else AnswerProblem.LOST_COMMENTS
            if self.lost_comments
            else None
        )

    @property
    def summary(self) -> str:
        """All of them for a person, "" when there are none."""
        said = [f"more than {MAX_LOST_LINE_FRACTION:.0%} of the lines are gone"] if self.is_much_shorter else []
        if self.lost_comments:
            first = self.lost_comments[0].partition("\n")[0][:EXCERPT_CHARS]
            said.append(f"comments lost: {len(self.lost_comments)} ({first})")
        return "; ".join(said)


def extract_new_text(source: Source, answer: str) -> str:
    """The whole new text that an answer holds. RejectedError when it holds none, NoChangeError for the old one."""
    text = strip_fence(source, answer)
    verdict = find_problem(source, text)
    if verdict:
        raise UnusableAnswerError(
            verdict,
            f"{source.name}: the answer is {_describe_problem(verdict)}: {_problem_excerpt(source, text, verdict)}",
        )
    text = source.with_original_ending(_restore_indent(source, text))
    if text == source.text:
        raise NoChangeError(f"{source.name}: the model sees nothing to change")
    return text


def strip_fence(source: Source, answer: str) -> str:
    """The inside of one fence around everything; the answer as it is when the text itself is such a block.

    "```python\\nx = 1\\n```" becomes "x = 1".
    """
    found = FENCED_ANSWER.match(answer)
    return found["inside"] if found and not FENCED_ANSWER.match(source.text) else answer


def find_problem(source: Source, text: str) -> AnswerProblem | None:
    """What speaks against this text, None when nothing does."""
    if not text.strip():
        return AnswerProblem.EMPTY
    if REFUSAL.match(text) and not REFUSAL.match(source.text):
        return AnswerProblem.REFUSAL
    if find_omission(source, text):
        return AnswerProblem.OMISSION
    return AnswerProblem.PROSE if _is_prose(source, text) else None


def find_omission(source: Source, text: str) -> str:
    """The first placeholder that stands in for text and was not in the original as often; "" when there is none."""
    for pattern in (OMISSION, UNCHANGED, ELLIPSIS):
        known = Counter(found.group().strip() for found in pattern.finditer(source.text))
        for found in pattern.finditer(text):
            placeholder = found.group().strip()
            known[placeholder] -= 1
            if known[placeholder] < 0:
                return placeholder
    return ""


def find_warnings(source: Source, text: str) -> EditWarnings:
    """What got lost on the way. A comment that was reworded is not lost."""
    language = language_of(source.name, source.text)
    old, new = (Counter(comments(each, language)) for each in (source.text, text))
    added = [comment for comment in new if comment not in old]
    gone = [comment for comment in old if new[comment] < old[comment]]
    lost = tuple(comment for comment in gone if not get_close_matches(comment, added, 1, cutoff=0.5))
    before, after = (sum(bool(line.strip()) for line in each.split("\n")) for each in (source.text, text))
    return EditWarnings(lost, after < (1 - MAX_LOST_LINE_FRACTION) * before)


def is_looping(answer: str) -> bool:
    """Whether a text that did not end says the same again and again."""
    end = answer[-LOOP_WINDOW_CHARS:]
    units = (end[-length:] for length in range(EXCERPT_CHARS // LOOP_REPEATS, len(end) // LOOP_REPEATS + 1))
    return any(unit.strip() and end.endswith(unit * LOOP_REPEATS) for unit in units)


def _is_prose(source: Source, text: str) -> bool:
    """Talk around the text or in place of it: a preamble, a fence that was not there, or nothing of the old words.

    Of a text that is prose itself only an announcement tells: it may be translated, and begin as people begin.
    """
    language = language_of(source.name, source.text)
    is_code = language not in ("", "markdown", "html")
    announces = text.strip().partition("\n")[0].rstrip().endswith(":")
    if (is_code or announces) and PREAMBLE.match(text) and not PREAMBLE.match(source.text):
        return True
    if not is_code:
        return False
    if FENCE_LINE.search(text) and not FENCE_LINE.search(source.text):
        return True
    if syntax_diagnostics(text, language) == []:
        return False
    known, said = (set(WORD.findall(each)) for each in (source.text, text))
    return len(known) >= MIN_WORDS and len(known & said) < MIN_KNOWN_WORD_FRACTION * len(known)


def _describe_problem(problem: AnswerProblem) -> str:
    return "one with something left out" if problem == AnswerProblem.OMISSION else str(problem)


def _problem_excerpt(source: Source, text: str, problem: AnswerProblem) -> str:
    if problem == AnswerProblem.OMISSION:
        return find_omission(source, text)
    return (text.strip().splitlines() or ["(nothing)"])[0][:EXCERPT_CHARS]


def _restore_indent(source: Source, text: str) -> str:
    """A selection that began indented stays so, also when the model moved it, or its first line, to the margin."""
    if not source.indent or text[:1].isspace():
        return text
    if _min_indent_below(text) == _min_indent_below(source.text):
        return source.indent + text
    return "\n".join(source.indent + line if line.strip() else line for line in text.split("\n"))


def _min_indent_below(text: str) -> int:
    """How deep the lines below the first one are at least."""
    lines = [line for line in text.split("\n")[1:] if line.strip()]
    return min((len(line) - len(line.lstrip()) for line in lines), default=-1)
