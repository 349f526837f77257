"""The control tokens of a vocabulary, and how a text that contains the words of one stays text.

If a message contains the text of a control token (for example "<|end|>"), it is split with a mark, U+FDD0: a
noncharacter that Unicode reserves for internal use, and that is first removed from every message. `Tokenizer.encode`
splits a rendered text at the marks and encodes the parts separately. Trimming and splitting inside a template still
work, and a text without control tokens is encoded as transformers encodes it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

SPLIT_MARK = "\ufdd0"
MATCHES_NOTHING = re.compile(r"(?!)")


class ControlTokens:
    """The texts of the control tokens."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.pattern = any_of(texts)

    def escape(self, text: str) -> str:
        """Put a mark inside every control token in a text.

        "a <|end|>" becomes "a <" + SPLIT_MARK + "|end|>", which `encode` does not parse as a control token.
        """
        text, count = text.replace(SPLIT_MARK, ""), 1
        while count:
            text, count = self.pattern.subn(lambda match: f"{match[0][:1]}{SPLIT_MARK}{match[0][1:]}", text)
        return text

    def escape_values(self, value: Any) -> Any:
        """A JSON value with every text in it escaped."""
        match value:
            case str():
                return self.escape(value)
            case Mapping():
                fields = cast("Mapping[str, Any]", value)
                return {self.escape(name): self.escape_values(each) for name, each in fields.items()}
            case list() | tuple():
                return [self.escape_values(each) for each in cast("Sequence[Any]", value)]
            case _:
                return value


def any_of(words: Iterable[str]) -> re.Pattern[str]:
    """A pattern of any of the words, longer ones first; words of one character cannot be split and are left out."""
    longest_first = sorted((word for word in words if len(word) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else MATCHES_NOTHING
