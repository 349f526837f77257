"""Checks whether an answer is the complete new text and nothing else. Knows no model and no file."""

import re
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from enum import StrEnum

from specchat.edit.answer_blocks import FENCE_LINE, ChosenText, choose_text
from specchat.edit.source_text import Source
from specchat.edit.syntax_check import PARSERS, parses
from specchat.errors import NoChangeError, NoUsableEditError
from specchat.syntax import PLAIN_TEXT, comments, definitions, language_of, syntax_diagnostics

REFUSAL = re.compile(r"\A\s*(I'm sorry|I am sorry|Sorry,|I cannot|I can't|I can’t|As an AI|I'm unable)", re.IGNORECASE)
PREAMBLE = re.compile(
    r"\A\s*(Here is|Here's|Here are|Sure[,!.]|Certainly[,!.]|Of course[,!.]|Below is|The (updated|modified|new) "
    r"|I have |I've |Okay[,!.]|To \w+ (this|the) )",
    re.IGNORECASE,
)
# "# … rest of the code", "// ... existing code ...", "<!-- remaining unchanged -->": the file is not complete
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
ANY_WORD = re.compile(r"\w+")
WORD = re.compile(r"[^\W\d_]\w{2,}")
DEFINITION_REMOVAL = re.compile(
    r"\b(?:remov|delet|drop|inlin|merg|combin|simplif)\w*\b.*\b(function|method|class|code|definition|helper|test)",
    re.IGNORECASE,
)
DEFINITION_ADDITION = re.compile(r"\b(?:add|insert|write|create|new)\b", re.IGNORECASE)
MIN_WORDS = 8  # with fewer words the comparison means nothing
MIN_KNOWN_WORD_FRACTION = 0.2  # of the old words: a rewritten file keeps more of them, prose about it fewer
MIN_KEPT_WORD_FRACTION = 0.4  # in order, of the shorter of two texts: a new version keeps more, talk about it less
MAX_ADDED_WORDS = 4  # to a text that has too few words to compare, or as many as it has
MAX_LOST_LINE_FRACTION = 0.4
EXCERPT_CHARS = 80


class AnswerProblem(StrEnum):
    EMPTY = "no text"
    REFUSAL = "refusal"
    PROSE = "prose instead of the text"
    OMISSION = "omission"
    CUT_OFF = "cut off"
    LOOP = "repetition loop"
    EXCERPT = "only a part of the text"
    MUCH_SHORTER = "much shorter"
    LOST_COMMENTS = "lost comments"


# a second attempt may succeed
RETRYABLE_PROBLEMS = (AnswerProblem.EMPTY, AnswerProblem.PROSE, AnswerProblem.OMISSION, AnswerProblem.EXCERPT)


class UnusableAnswerError(NoUsableEditError):
    """The answer is not a new text; `problem` says why."""

    def __init__(self, problem: AnswerProblem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


@dataclass(frozen=True)
class EditWarnings:
    """What the user should check before accepting: lost comments, and whether the text is much shorter."""

    lost_comments: tuple[str, ...] = ()
    is_much_shorter: bool = False

    @property
    def worst_problem(self) -> AnswerProblem | None:
        if self.is_much_shorter:
            return AnswerProblem.MUCH_SHORTER
        return AnswerProblem.LOST_COMMENTS if self.lost_comments else None

    @property
    def summary(self) -> str:
        warnings = [f"more than {MAX_LOST_LINE_FRACTION:.0%} of the lines are missing"] if self.is_much_shorter else []
        if self.lost_comments:
            first = self.lost_comments[0].partition("\n")[0][:EXCERPT_CHARS]
            warnings.append(f"comments lost: {len(self.lost_comments)} ({first})")
        return "; ".join(warnings)


def extract_new_text(source: Source, answer: str, instruction: str = "") -> str:
    """Return the complete new text in an answer to an instruction.

    UnusableAnswerError when the answer holds none, NoChangeError when the text is unchanged.
    """
    chosen = choose_text(source, answer)
    if problem := find_problem(source, chosen.text) or _find_problem_of_form(source, chosen, instruction):
        excerpt = _problem_excerpt(source, chosen.text, problem)
        raise UnusableAnswerError(problem, f"{source.name}: unusable answer ({problem}): {excerpt}")
    text = source.with_original_ending(_restore_indent(source, chosen.text))
    if text == source.text:
        raise NoChangeError(f"{source.name}: the model changed nothing")
    return text


def _find_problem_of_form(source: Source, chosen: ChosenText, instruction: str) -> AnswerProblem | None:
    """Problems that depend on where the text stood in the answer.

    A block amid talk may be an example, or only the changed part. Without a block, a text of an unknown language that
    is unlike the old one may be talk: a filter would put it into the user's buffer.
    """
    if chosen.is_excerpt_likely and _is_excerpt(source, chosen.text, instruction):
        return AnswerProblem.EXCERPT
    is_new = not source.text.strip()
    if is_new or chosen.is_fenced or language_of(source.name, source.text) != PLAIN_TEXT:
        return None
    is_talk = _no_longer_parses(source.text, chosen.text) or _is_unlike(source.text, chosen.text)
    return AnswerProblem.PROSE if is_talk else None


def _is_excerpt(source: Source, text: str, instruction: str) -> bool:
    """Whether many lines are missing, or functions and classes that the instruction does not concern."""
    if _is_much_shorter(source.text, text):
        return True
    if DEFINITION_REMOVAL.search(instruction):
        return False
    lost, added = _lost_definitions(source, text), _lost_definitions(source, text, is_reversed=True)
    named = lost & set(ANY_WORD.findall(instruction))
    renamed = 0 if DEFINITION_ADDITION.search(instruction) else max(0, len(added) - len(named))
    return len(lost - named) > renamed


def _lost_definitions(source: Source, text: str, *, is_reversed: bool = False) -> set[str]:
    """The names of functions and classes that only the old text has; reversed, that only the new one has."""
    language = language_of(source.name, source.text)
    old, new = ({each.name for each in definitions(of, language)} for of in (source.text, text))
    return new - old if is_reversed else old - new


def _no_longer_parses(old: str, new: str) -> bool:
    """Whether a text of several lines is code in some language, and the new one is not."""
    is_long = sum(bool(line.strip()) for line in old.split("\n")) > 1
    return is_long and any(parses(old, language) and not parses(new, language) for language in PARSERS)


def _is_unlike(old: str, new: str) -> bool:
    """Whether a text is no new version of another: few of its words stand there in this order, or too many are new."""
    old_words, new_words = (ANY_WORD.findall(text) for text in (old, new))
    if len(old_words) < MIN_WORDS:
        return (Counter(new_words) - Counter(old_words)).total() > max(MAX_ADDED_WORDS, len(old_words))
    blocks = SequenceMatcher(None, old_words, new_words, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) < MIN_KEPT_WORD_FRACTION * max(1, min(len(old_words), len(new_words)))


def find_problem(source: Source, text: str) -> AnswerProblem | None:
    if not text.strip():
        return AnswerProblem.EMPTY
    if REFUSAL.match(text) and not REFUSAL.match(source.text):
        return AnswerProblem.REFUSAL
    if find_omission(source, text):
        return AnswerProblem.OMISSION
    return AnswerProblem.PROSE if _is_prose(source, text) else None


def find_omission(source: Source, text: str) -> str:
    """The first placeholder ("... rest of the code") that the original text does not contain as often, or ""."""
    for pattern in (OMISSION, UNCHANGED, ELLIPSIS):
        remaining = Counter(match.group().strip() for match in pattern.finditer(source.text))
        for match in pattern.finditer(text):
            placeholder = match.group().strip()
            remaining[placeholder] -= 1
            if remaining[placeholder] < 0:
                return placeholder
    return ""


def find_warnings(source: Source, text: str) -> EditWarnings:
    """Lost comments and lost lines. A reworded comment does not count as lost."""
    language = language_of(source.name, source.text)
    old, new = (Counter(comments(each, language)) for each in (source.text, text))
    added = [comment for comment in new if comment not in old]
    missing = [comment for comment in old if new[comment] < old[comment]]
    lost = tuple(comment for comment in missing if not get_close_matches(comment, added, 1, cutoff=0.5))
    return EditWarnings(lost, _is_much_shorter(source.text, text))


def _is_much_shorter(old: str, new: str) -> bool:
    before, after = (sum(bool(line.strip()) for line in text.split("\n")) for text in (old, new))
    return after < (1 - MAX_LOST_LINE_FRACTION) * before


def _is_prose(source: Source, text: str) -> bool:
    """A preamble, a new code fence, or almost none of the original words.

    If the original is prose itself, only an announcement ("Here is the text:") counts: the text may be a translation.
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
    old_words, new_words = (set(WORD.findall(each)) for each in (source.text, text))
    return len(old_words) >= MIN_WORDS and len(old_words & new_words) < MIN_KNOWN_WORD_FRACTION * len(old_words)


def _problem_excerpt(source: Source, text: str, problem: AnswerProblem) -> str:
    if problem == AnswerProblem.OMISSION:
        return find_omission(source, text)
    if problem == AnswerProblem.EXCERPT and (lost := _lost_definitions(source, text)):
        return f"{', '.join(sorted(lost))} missing"[:EXCERPT_CHARS]
    return (text.strip().splitlines() or ["(empty)"])[0][:EXCERPT_CHARS]


def _restore_indent(source: Source, text: str) -> str:
    """Restore the indentation of a selection whose first line, or all lines, the model moved to the margin."""
    if not source.indent or text[:1].isspace():
        return text
    if _min_indent_below(text) == _min_indent_below(source.text):
        return source.indent + text
    return "\n".join(source.indent + line if line.strip() else line for line in text.split("\n"))


def _min_indent_below(text: str) -> int:
    """The smallest indentation of the lines after the first one, -1 without such lines."""
    lines = [line for line in text.split("\n")[1:] if line.strip()]
    return min((len(line) - len(line.lstrip()) for line in lines), default=-1)
