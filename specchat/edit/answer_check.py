"""Checks whether an answer is the complete new text and nothing else. Knows no model and no file."""

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from enum import StrEnum

from specchat.edit.answer_blocks import FENCE_LINE, ChosenText
from specchat.edit.asked_changes import AskedChanges, May
from specchat.edit.sketch import find_omission
from specchat.edit.source_text import Source, fit_tabs
from specchat.edit.syntax_check import PARSERS, global_names, newly_undefined_names, parses
from specchat.errors import NoChangeError, NoUsableEditError
from specchat.syntax import PLAIN_TEXT, Definition, definitions, syntax_diagnostics

REFUSAL = re.compile(r"\A\s*(I'm sorry|I am sorry|Sorry,|I cannot|I can't|I can’t|As an AI|I'm unable)", re.IGNORECASE)
PREAMBLE = re.compile(
    r"\A\s*(Here is|Here's|Here are|Sure[,!.]|Certainly[,!.]|Of course[,!.]|Below is|The (updated|modified|new) "
    r"|I have |I've |Okay[,!.]|To \w+ (this|the) )",
    re.IGNORECASE,
)
# "You should rename the function in your editor": words and spaces, as code never has them
SENTENCE = re.compile(r"[A-Z][\w'’]*,?(?: [\w'’`*-]+,?){5,}")
ANY_WORD = re.compile(r"\w+")
WORD = re.compile(r"[^\W\d_]\w{2,}")
PROSE_LANGUAGES = (PLAIN_TEXT, "markdown", "html")
LENIENT_LANGUAGES = ("bash", "yaml")  # in which a sentence has no syntax error
MIN_WORDS = 8  # with fewer words the comparison means nothing
MIN_KNOWN_WORD_FRACTION = 0.2  # of the old words: a rewritten file keeps more of them, prose about it fewer
MIN_KEPT_WORD_FRACTION = 0.4  # in order, of the shorter of two texts: a new version keeps more, talk about it less
MAX_ADDED_WORDS = 4  # to a text that has too few words to compare, or as many as it has
MAX_LOST_LINE_FRACTION = 0.4
EXCERPT_CHARS = 80
DATA_KINDS = ("key", "section", "table", "rule")  # parts of data and prose, whose names are no identity


class AnswerProblem(StrEnum):
    EMPTY = "no text"
    REFUSAL = "refusal"
    PROSE = "prose instead of the text"
    OTHER_LANGUAGE = "another language"
    UNLIKE = "unlike the file"
    OMISSION = "omission"
    CUT_OFF = "cut off"
    LOOP = "repetition loop"
    EXCERPT = "only a part of the text"
    PATCH = "changes that do not apply"
    MUCH_SHORTER = "much shorter"
    DEVIATION = "changes that nothing asks for"
    MISSING = "what was asked for is missing"
    UNPROVEN = "a text by a small model"


# a second attempt may succeed
RETRYABLE_PROBLEMS = (
    AnswerProblem.EMPTY, AnswerProblem.PROSE, AnswerProblem.OMISSION, AnswerProblem.EXCERPT, AnswerProblem.PATCH,
)  # fmt: skip


class UnusableAnswerError(NoUsableEditError):
    """The answer is not a new text; `problem` says why."""

    def __init__(self, problem: AnswerProblem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


def check_chosen_text(
    source: Source, chosen: ChosenText, instruction: str = "", *, is_excerpt_meant: bool = False
) -> str:
    """The complete new text that an answer to an instruction holds.

    UnusableAnswerError when it holds none, NoChangeError when the text is unchanged. An answer that consists of
    functions and classes of the file, without the others or without the imports that they use, takes their place in it.
    `is_excerpt_meant`: the model was told which definitions are missing, and insists; with few lines left, it is not
    believed.
    """
    if chosen.patch_problem:
        message = f"{source.name}: unusable answer ({AnswerProblem.PATCH}): {chosen.patch_problem}"
        raise UnusableAnswerError(AnswerProblem.PATCH, message)
    text, problem = chosen.text, find_problem(source, chosen.text)
    is_removal = May.LOSE_DEFINITIONS in AskedChanges.of(instruction, source.text).may
    is_excerpt_meant = is_excerpt_meant and (is_removal or not is_much_shorter(source.text, text))
    if not (problem or chosen.is_patched):
        is_excerpt = not is_excerpt_meant and _is_excerpt(source, chosen, instruction)
        is_piece = (is_excerpt or _lacks_used_names(source, text)) and _is_elsewhere(source.text, text)
        spliced = _replace_definitions(source, text) if is_piece and not is_removal else None
        text, problem = spliced or text, AnswerProblem.EXCERPT if is_excerpt and spliced is None else None
    if problem or (problem := None if chosen.is_patched else _find_talk(source, text, instruction)):
        excerpt = _problem_excerpt(source, text, problem)
        raise UnusableAnswerError(problem, f"{source.name}: unusable answer ({problem}): {excerpt}")
    text = text if chosen.is_patched else fit_tabs(source.text, text)
    text = source.with_original_ending(_restore_indent(source, text))
    if text == source.text:
        raise NoChangeError(f"{source.name}: the model changed nothing")
    return text


def _find_talk(source: Source, text: str, instruction: str) -> AnswerProblem | None:
    """Whether a text of an unknown language is unlike the old one: a filter would put talk into the user's buffer.

    An instruction that asks for other words, as a translation does, has to be believed.
    """
    is_new = not source.text.strip()
    if is_new or source.language != PLAIN_TEXT:
        return None
    if _no_longer_parses(source.text, text) or _has_new_fence(source, text):
        return AnswerProblem.PROSE
    is_other = May.REWORD not in AskedChanges.of(instruction, source.text).may and _is_unlike(source.text, text)
    return AnswerProblem.PROSE if is_other else None


def _is_excerpt(source: Source, chosen: ChosenText, instruction: str) -> bool:
    """Whether functions and classes are missing that the instruction does not concern, or many lines amid talk.

    A function may become much shorter: then only the lines outside of functions and classes count.
    """
    if chosen.talk and is_much_shorter(source.text, chosen.text):
        outside = [_lines_outside_definitions(text, source.language) for text in (source.text, chosen.text)]
        if _lost_definitions(source, chosen.text) or is_much_shorter(*outside):
            return True
    return bool(missing_definitions(source, chosen.text, instruction))


def missing_definitions(source: Source, text: str, instruction: str) -> set[str]:
    """The functions and classes that a new text lost and the instruction does not concern.

    Empty if it renames them: it gives the new names, or speaks of names or of something else that they become.
    """
    may = AskedChanges.of(instruction, source.text).may
    if May.LOSE_DEFINITIONS in may or _is_broken(source, text):
        return set()
    lost, added = _lost_definitions(source, text), _lost_definitions(source, text, is_reversed=True)
    words = set(ANY_WORD.findall(instruction))
    named, meant = lost & words, added if not words or May.RENAME in may else added & words
    renamed = 0 if May.DEFINE in may else max(0, len(meant) - len(named))
    return lost - named if len(lost - named) > renamed else set()


def _is_broken(source: Source, text: str) -> bool:
    """Whether a text has syntax errors that the old one has not; then its definitions cannot be told."""
    return parses(text, source.language) is False and bool(parses(source.text, source.language))


def _lacks_used_names(source: Source, text: str) -> bool:
    """Whether a text of Python uses names that only the old one defines, such as those of its imports."""
    if source.language != "python":
        return False
    old = global_names(source.text)
    return bool(old and set(newly_undefined_names(source.text, text)) & old.defined)


def _is_elsewhere(old: str, text: str) -> bool:
    """Whether an excerpt is a piece of the file, and not the file without some of its definitions."""
    first, old_first = ((each.strip().partition("\n")[0]).strip() for each in (text, old))
    return first != old_first or is_much_shorter(old, text)


def _lost_definitions(source: Source, text: str, *, is_reversed: bool = False) -> set[str]:
    """The names of functions and classes that only the old text has; reversed, that only the new one has."""
    old, new = ({each.name for each in definitions(of, source.language)} for of in (source.text, text))
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
    if find_omission(text, source.text):
        return AnswerProblem.OMISSION
    return AnswerProblem.PROSE if _is_prose(source, text) else None


def is_much_shorter(old: str, new: str) -> bool:
    before, after = (sum(bool(line.strip()) for line in text.split("\n")) for text in (old, new))
    return after < (1 - MAX_LOST_LINE_FRACTION) * before


def _is_prose(source: Source, text: str) -> bool:
    """A preamble, a new code fence, or almost none of the original words.

    If the original is prose itself, only an announcement ("Here is the text:") counts: the text may be a translation.
    """
    language = source.language
    is_code = language not in PROSE_LANGUAGES
    announces = text.strip().partition("\n")[0].rstrip().endswith(":")
    if (is_code or announces) and PREAMBLE.match(text) and not PREAMBLE.match(source.text):
        return True
    if not is_code or (language not in LENIENT_LANGUAGES and syntax_diagnostics(text, language) == []):
        return False
    if _has_new_fence(source, text) or starts_with_sentence(source, text):
        return True
    old_words, new_words = (set(WORD.findall(each)) for each in (source.text, text))
    return len(old_words) >= MIN_WORDS and len(old_words & new_words) < MIN_KNOWN_WORD_FRACTION * len(old_words)


def starts_with_sentence(source: Source, text: str) -> bool:
    """Whether the first line is a sentence that the old text does not have."""
    first = text.lstrip("\n").partition("\n")[0].strip()
    return bool(SENTENCE.match(first)) and first not in source.text


def _has_new_fence(source: Source, text: str) -> bool:
    return bool(FENCE_LINE.search(text)) and not FENCE_LINE.search(source.text)


def _problem_excerpt(source: Source, text: str, problem: AnswerProblem) -> str:
    if problem == AnswerProblem.OMISSION:
        return find_omission(text, source.text)
    if problem == AnswerProblem.EXCERPT and (lost := _lost_definitions(source, text)):
        return f"{', '.join(sorted(lost))} missing"[:EXCERPT_CHARS]
    return (text.strip().splitlines() or ["(empty)"])[0][:EXCERPT_CHARS]


def _restore_indent(source: Source, text: str) -> str:
    """Restore the indentation of a selection whose first line, or all lines, the model moved to the margin."""
    lines, old = text.lstrip("\n"), source.text.lstrip("\n")
    if not source.indent or lines[:1].isspace():
        return text
    above = source.text[: len(source.text) - len(old)]
    if _min_indent_below(lines) == _min_indent_below(old):
        return f"{above}{source.indent}{lines}"
    return above + "\n".join(source.indent + line if line.strip() else line for line in lines.split("\n"))


def _min_indent_below(text: str) -> int:
    """The smallest indentation of the lines after the first one, -1 without such lines."""
    lines = [line for line in text.split("\n")[1:] if line.strip()]
    return min((len(line) - len(line.lstrip()) for line in lines), default=-1)


def _replace_definitions(source: Source, text: str) -> str | None:
    """The file with the definitions of an excerpt in place of its own.

    None unless the excerpt has nothing but new versions of functions and classes that the file has once, between
    lines that the file has, too.
    """
    language = source.language
    new, old = _outer_definitions(text, language), _outer_definitions(source.text, language)
    names = [each.name for each in old]
    if language == PLAIN_TEXT or not new or any(names.count(each.name) != 1 for each in new):
        return None
    if len({each.name for each in new}) < len(new) or not _has_only_known_lines_between(source.text, text, new):
        return None
    places, lines, new_lines = {each.name: each for each in old}, source.text.split("\n"), text.split("\n")
    for definition in sorted(new, key=lambda each: places[each.name].first_line, reverse=True):
        place = places[definition.name]
        lines[place.first_line - 1 : place.last_line] = new_lines[definition.first_line - 1 : definition.last_line]
    spliced = "\n".join(lines)
    return None if _nested_names(source.text, language) - _nested_names(spliced, language) else spliced


def _lines_outside_definitions(text: str, language: str) -> str:
    """The lines of a text that belong to no function and no class; all lines of data and prose."""
    return "\n".join(_lines_outside(text, _outer_definitions(text, language)))


def _lines_outside(text: str, found: Sequence[Definition]) -> list[str]:
    inside = {number for each in found for number in range(each.first_line, each.last_line + 1)}
    return [line for number, line in enumerate(text.split("\n"), 1) if number not in inside]


def _outer_definitions(text: str, language: str) -> list[Definition]:
    found = definitions(text, language)
    return [] if any(each.kind in DATA_KINDS for each in found) else [each for each in found if not each.container]


def _nested_names(text: str, language: str) -> set[str]:
    """The names of methods and inner functions: a class that lacks some of them is an excerpt itself."""
    return {each.qualified_name for each in definitions(text, language) if each.container}


def _has_only_known_lines_between(old: str, text: str, found: list[Definition]) -> bool:
    known = {line.strip() for line in old.split("\n")}
    return all(not line.strip() or line.strip() in known for line in _lines_outside(text, found))
