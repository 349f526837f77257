"""Files that are too long to be attached whole: when the whole file is asked about, and its parts.

Words and lengths only. Knows no model; `app/part_reader.py` asks a model about the parts.
"""

import re
from collections.abc import Sequence

from specchat.context.at_names import MENTION

ABOUT_THE_WHOLE = re.compile(
    r"\b(?:summar|tl;?\s?dr\b|overview|outline|gist\b|(?:main|key) (?:points?|ideas?)|what\b.{0,40}\babout\W*$"
    r"|zusammenfass|überblick|résum|resum|riassu|sintesi|samenvat|streszcz|sammanfatt)"
    r"|\bfass\w*\b.*\bzusammen|кратк|переска|резюм|要約|总结|總結|概括|요약",
    re.IGNORECASE | re.DOTALL,
)


def asks_about_whole(question: str, names: Sequence[str]) -> bool:
    """Whether a question is about all of a file, so that a few passages are no answer to it.

    >>> asks_about_whole("Summarize @book.txt", ["book.txt"]), asks_about_whole("Who is Jack?", ["book.txt"])
    (True, False)
    """
    return ABOUT_THE_WHOLE.search(without_names(question, names)) is not None


def without_names(question: str, names: Sequence[str]) -> str:
    """The question without the files that it names, whose words say nothing about their contents."""
    text = MENTION.sub(" ", question)
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, " ")
    return text


def split_parts(text: str, max_characters: int) -> tuple[str, ...]:
    """The text in parts that fit, each as long as possible, which end at line ends where lines are short enough."""
    parts, current = list[str](), ""
    for line in text.splitlines(keepends=True):
        if current and len(current) + len(line) > max_characters:
            parts.append(current)
            current = ""
        current += line
        while len(current) > max_characters:
            parts.append(current[:max_characters])
            current = current[max_characters:]
    return (*parts, *([current] if current.strip() else []))
