"""The kind of a request, from its structure and its words: the first matching rule of the profile decides.

Structure works in every language: attached files, code, the format of the answer, a question mark, the length. A
question is separated from a pasted text, so that a story about a table is not a request for a table. Only the start and
the end of a long text are read. Knows words, names and lengths, and neither a model nor a drafter.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from specchat.chat.request import EDIT_TASK, EDIT_TASKS, Request
from specchat.profile.keys import RouteRule

HEAD_CHARACTERS, TAIL_CHARACTERS = 3000, 1000  # the parts of a long text that are read
MAX_QUESTION_WORDS = 60  # a longer paragraph is not a question
# "git: how do I…" is one question, "Summarize: …" has a text
MIN_WORDS_BEFORE_COLON, MIN_WORDS_AFTER_TITLE = 3, 30
MIN_QUOTED_WORDS = 4  # fewer words in quotes are a name
MAX_GAP_WORDS = 4  # the most words that `...` matches
CODE_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
QUOTED_TEXT = re.compile(r'"([^"]+)"|“([^”]+)”')
QUESTION_START = re.compile(
    r"\W*(?:question|what|who|when|where|which|why|how|is|are|does|did|can|list|name|describe|explain|summari[sz]e)\b",
    re.IGNORECASE,
)
INLINE_CODE = re.compile(r"`[^`\n]+`")
QUESTION_MARKS = "?？؟"
UNSPACED_CHARACTER = "[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"  # of scripts without spaces
UNSPACED_TEXT = re.compile(UNSPACED_CHARACTER)
UNSPACED_STEM = re.compile(rf"{UNSPACED_CHARACTER}\*?")
CHARACTERS_OF_A_WORD = 2  # in such scripts
PARAGRAPH_BREAK = re.compile(r"\n\s*\n")
CODE_LINE = re.compile(
    r"^\s*(?:(?:async )?def \w+\(|class \w+\s*[:({]|import \w+|from \w+ import |#include\b|(?:let|const|var) \w+ ="
    r"|return\b|func \w+\(|fn \w+\(|public \w+|(?:for|if|while)\b.*[:{]\s*$|print\(|>>> |assert .*==|SELECT .* FROM )"
    r"|[;{}]\s*(?://.*)?$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Question:
    """The properties of a request that rules test: its instruction, and what it contains."""

    instruction: str
    word_count: int
    has_text: bool
    has_files: bool
    has_code: bool
    is_question: bool
    answer_format: str  # its kind; "" for free text
    task: str


def parse_question(request: Request) -> Question:
    """Separate the instruction from the text that it is about.

    "Fix the grammar: me and him was late" has the instruction "Fix the grammar", and a text.
    """
    text = request.text.strip()
    is_long = len(text) > HEAD_CHARACTERS + TAIL_CHARACTERS
    excerpt = f"{text[:HEAD_CHARACTERS]}\n\n{text[-TAIL_CHARACTERS:]}" if is_long else text
    instruction = _extract_instruction(excerpt)
    return Question(
        instruction=instruction,
        word_count=text.count(" ") + text.count("\n") + 1 if is_long else count_words(text),
        has_text=bool(request.files) or instruction != excerpt,
        has_files=bool(request.files),
        has_code="```" in excerpt or bool(CODE_LINE.search(excerpt) or INLINE_CODE.search(excerpt)),
        is_question=instruction.rstrip(" \n\"'”»）)").endswith(tuple(QUESTION_MARKS)),
        answer_format=request.answer_format.kind if request.answer_format else "",
        task=EDIT_TASK if request.task in EDIT_TASKS else request.task,
    )


def count_words(text: str) -> int:
    """The words of a text; in scripts without spaces, two characters count as one.

    >>> count_words("What is rain?"), count_words("雨是什么")
    (3, 2)
    """
    unspaced = len(UNSPACED_TEXT.findall(text))
    spaced = len(UNSPACED_TEXT.sub(" ", text).split()) if unspaced else len(text.split())
    return spaced + -(-unspaced // CHARACTERS_OF_A_WORD)


def _spaced(text: str) -> str:
    """With spaces around each character of a script without spaces, where patterns match anywhere."""
    return UNSPACED_STEM.sub(r" \g<0> ", text)


def _extract_instruction(text: str) -> str:
    unfenced = CODE_FENCE.sub("\n\n", text).strip()
    first, *others = PARAGRAPH_BREAK.split(unfenced)
    if not others:
        first, *others = unfenced.splitlines() or [""]
    before, after = _split_at_colon(first)
    if after:
        first = before
    elif not others:
        first = QUOTED_TEXT.sub(
            lambda quoted: quoted[0] if len(quoted[0].split()) < MIN_QUOTED_WORDS else "", first
        ).strip()
    last = others[-1:] if others and is_question(others[-1]) else []
    ends = [end for end in (first, *last) if len(end.split()) <= MAX_QUESTION_WORDS]
    return " ".join(ends) or first


def _split_at_colon(text: str) -> tuple[str, str]:
    """The parts before and after the first colon that ends a word, if they are an instruction and its text."""
    before, colon, after = re.sub(r":(?=\s)|：", "\0", text, count=1).partition("\0")
    is_title = count_words(before) < MIN_WORDS_BEFORE_COLON and count_words(after) < MIN_WORDS_AFTER_TITLE
    return (before, after) if colon and not is_title else (text, "")


def is_question(paragraph: str) -> bool:
    """Whether a short text asks for an answer: by a question mark in any language, or its first word in English.

    >>> is_question("Was ist das?"), is_question("Explain it"), is_question("Write it again")
    (True, True, False)
    """
    is_asking = paragraph.rstrip().endswith(tuple(QUESTION_MARKS)) or QUESTION_START.match(paragraph) is not None
    return is_asking and len(paragraph.split()) <= MAX_QUESTION_WORDS


def first_matching_rule(rules: Sequence[RouteRule], request: Request, temperature: float) -> RouteRule | None:
    question = parse_question(request)
    return next((rule for rule in rules if matches_rule(rule, question, temperature)), None)


def matches_rule(rule: RouteRule, question: Question, temperature: float) -> bool:
    flags = (
        (rule.has_text, question.has_text), (rule.has_files, question.has_files), (rule.has_code, question.has_code),
        (rule.is_question, question.is_question),
    )  # fmt: skip
    return (
        all(required is None or required == actual for required, actual in flags)
        and rule.task in ("", question.task)
        and (not rule.answer_format or question.answer_format in rule.answer_format)
        and rule.min_words <= question.word_count
        and (rule.max_words is None or question.word_count <= rule.max_words)
        and (rule.temperature_above is None or temperature > rule.temperature_above)
        and _matches_words(rule, question.instruction)
    )


def _matches_words(rule: RouteRule, instruction: str) -> bool:
    words = _spaced(instruction)
    return (
        (not rule.starts_with or _any_of(rule.starts_with, after=r"\W*").match(words) is not None)
        and all(not group or _any_of(group).search(words) is not None for group in (rule.contains, rule.also_contains))
        and not (rule.excludes and _any_of(rule.excludes).search(words))
    )


@cache
def _any_of(patterns: tuple[str, ...], after: str = "") -> re.Pattern[str]:
    return re.compile(f"{after}(?:{'|'.join(map(_pattern_to_regex, patterns))})", re.IGNORECASE)


def _pattern_to_regex(pattern: str) -> str:
    """`fix ... typo*` as a regular expression: whole words, a gap, any ending."""
    built, gap = "", ""
    for word in _spaced(pattern).split():
        if word == "...":
            gap = rf"(?:\W+\w+){{0,{MAX_GAP_WORDS}}}?"
            continue
        ending = r"\w*" if word.endswith("*") else r"(?!\w)"
        between = rf"{gap}\W+" if built else ""
        built, gap = rf"{built}{between}(?<!\w){re.escape(word.removesuffix('*'))}{ending}", ""
    return built
