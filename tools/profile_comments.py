"""Writes what `profile/keys.toml` says about each key as comments into the shipped profiles, so that both say the same.

python -m tools.profile_comments

Only for keys that show their default (`# top_k = 0`), and for the name and the description: the comment above a value
that a profile sets says why it does. The rules of `chat.toml`, which have their own words, stay as they are.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from specchat.profile.keys import Profile
from specchat.profile.validation import KeyInfo, key_info, key_types

PROFILES = Path(__file__).parents[1] / "profiles"
TABLE, SHOWN_KEY = re.compile(r"\[(\w+)\]"), re.compile(r"(# )?(\w+) = ")
OWN_TABLES = "[["  # of rules


def with_comments(text: str) -> str:
    """The text of a profile with the comments of today."""
    begun, rules, rest = text.partition(OWN_TABLES)
    return "\n".join(_lines(begun.split("\n"))) + rules + rest


def _lines(lines: list[str]) -> Iterator[str]:
    known, comment = key_info(Profile), list[str]()
    for line in lines:
        if table := TABLE.match(line):
            known = key_info(key_types(Profile)[table[1]])
        shown = SHOWN_KEY.match(line)
        if shown and (info := _described(known, shown)):
            yield from info.comment.split("\n")
        elif shown or not line.startswith("#"):
            yield from comment
        else:
            comment.append(line)
            continue
        yield line
        comment.clear()
    yield from comment


def _described(known: Mapping[str, KeyInfo], shown: re.Match[str]) -> KeyInfo | None:
    """What is known about a key whose comment is generated."""
    is_generated = shown[1] is not None or shown[2] in ("name", "description")
    return known.get(shown[2]) if is_generated else None


if __name__ == "__main__":
    for path in sorted(PROFILES.glob("*.toml")):
        path.write_text(with_comments(path.read_text(encoding="utf-8")), encoding="utf-8")
