"""Whether what an instruction asks to add is there: "add logging to load" adds something that logs, in `load`.

Only instructions that begin with "add …" or the like, and only things that are known by their words, are judged; and
what stands in quotes in the place of something else ("replace `a` by `b`"). Knows no model; whether the rest stays is
not decided here.
"""

import re
from collections.abc import Mapping, Sequence

from specchat.edit.asked_changes import CODE_LIKE, EVERYDAY_WORDS, WORD, WORDS, May, has_word, text_before
from specchat.edit.edit_plan import Region, named_regions
from specchat.edit.hunks import diff_lines
from specchat.edit.source_text import Source, make_source
from specchat.syntax.languages import language_tables

TABLES = language_tables(__file__)
THINGS: Mapping[str, str] = {words: sign.replace("\n", "") for words, sign in TABLES["things"].items()}
END_OF_THING, KIND = (TABLES["words"][key].replace("\n", "") for key in ("end", "named"))
NAME_AFTER_KIND = re.compile(rf"\b{KIND}\s+(?:(?:named|called)\s+)?[`'\"@]?(?P<name>[^\W\d][\w.-]*)", re.IGNORECASE)
NAME_BEFORE_KIND = re.compile(rf"[`'\"](?P<name>[\w.-]+)[`'\"]\s+{KIND}\b", re.IGNORECASE)
REPLACEMENT = re.compile(
    r"\b(?:replac|chang|swap|substitut|exchang)\w*\b[^.;\n]*?\b(?:by|with|to|into)\s+(?P<new>`[^`\n]+`|\"[^\"\n]+\"|'[^'\n]+')",
    re.IGNORECASE,
)


def missing_addition(source: Source, text: str, instruction: str) -> str:
    """What was to be added and is not there, in words for people; "" if it is there, or if that cannot be told."""
    replacements = [match["new"] for match in REPLACEMENT.finditer(instruction)]
    verb = WORDS[May.ADD].match(instruction)
    if not replacements and not verb:
        return ""
    lines = _added_lines(source, text, instruction)
    for new in replacements:
        if not any(new[1:-1] in line for line in lines):
            return new
    if not verb:
        return ""
    thing = text_before(re.compile(END_OF_THING, re.IGNORECASE), instruction[verb.end() :])
    for name in _names(thing, source.text):
        if not any(has_word(line, name) for line in lines):
            return f"`{name}`"
    known = [(match.end(), match[0], sign) for words, sign in THINGS.items()
             for match in re.finditer(rf"\b(?:{words})(?!\w)", thing, re.IGNORECASE)]  # fmt: skip
    _end, word, sign = max(known, default=(0, "", ""))
    return "" if not word or any(re.search(sign, line, re.MULTILINE) for line in lines) else word


def _names(thing: str, old: str) -> list[str]:
    """The names that the thing has: after its kind, or what looks like code and is not in the old text."""
    named = [match["name"] for pattern in (NAME_AFTER_KIND, NAME_BEFORE_KIND) for match in pattern.finditer(thing)]
    named = [each.rstrip(".").rpartition(".")[2] for each in named if each.lower() not in EVERYDAY_WORDS]
    return named + [word for word in WORD.findall(thing) if CODE_LIKE.search(word) and word not in old]


def _added_lines(source: Source, text: str, instruction: str) -> list[str]:
    """The new lines in the functions and classes that the instruction names; without any in them, all new lines."""
    lines = text.split("\n")
    shift, added = 0, list[int]()
    for change in diff_lines(source.text.split("\n"), lines):
        added += range(change.first + shift, change.first + shift + len(change.new))
        shift += len(change.new) - len(change.old)
    regions: Sequence[Region] = named_regions(make_source(text.encode(), source.name), instruction)
    inside = [number for number in added if any(each.first - 2 <= number + 1 <= each.last for each in regions)]
    return [lines[number] for number in inside or added]
