"""Whether what an instruction asks to add is there: "add logging to load" adds something that logs, in `load`.

Only instructions that begin with "add …" or the like, and only things that are known by their words, are judged; and
what stands in quotes in the place of something else ("replace `a` by `b`"). Knows no model; whether the rest stays is
not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from specchat.edit.asked_changes import CODE_LIKE, EVERYDAY_WORDS, WORD, WORDS, May
from specchat.edit.edit_plan import Region, named_regions
from specchat.edit.hunks import diff_lines
from specchat.edit.source_text import Source, make_source

END_OF_THING = re.compile(
    r"[;.!?:](?:\s|\Z)|,|\b(?:to|in|into|inside|on|at|for|of|so|that|which|when|if|before|after|above|below|from|where|and"
    r"|with|using|around|about)\b",
    re.IGNORECASE,
)
COMMENT = r"#|//|/\*|--|<!--|\"\"\"|'''|^\s*\*"
# the words for a thing, and what a line has that adds it; of several things the last is meant ("a log level parameter")
THINGS: Sequence[tuple[str, str]] = (
    (r"logging|logs?|logger|prints?|printing|trac(?:e|ing)", r"(?i)log|print|warn|trace|debug|echo|console|puts"),
    (r"doc-?strings?|documentation|jsdoc|javadoc|doc comments?", COMMENT),
    (r"comments?", COMMENT),
    (r"(?:type )?(?:hints?|annotations?)|types(?=\W*\Z)", r"\w:\s*\w|->|@(?:param|return|type)"),
    (
        r"(?:error|exception) handling|try\W?(?:except|catch)?",
        r"(?i)\b(?:try|except|catch|rais|throw|if|match|rescue)|err",
    ),
    (
        r"(?<!type )checks?|validation|guards?|assertions?|asserts?",
        r"(?i)\b(?:if|assert|rais|throw|require|match|unless|check|valid)|\?",
    ),
    (r"(?<!type )(?<!typing )tests?|test cases?", r"(?i)test|assert|expect|describe|\bit\("),
    (r"imports?|includes?", r"\b(?:import|include|use|require|from)\b"),
    (r"decorators?", r"@|#\["),
    (r"defaults?|default values?", r"="),
    (r"parameters?|arguments?|options?|flags?|functions?|methods?|class|levels?|messages?", ""),
)
KIND = (
    r"(?:parameter|argument|option|method|function|class|constant|variable|field|key|import|decorator|section|property"
    r"|test)"
)
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
    rest = instruction[verb.end() :]
    end = next((each for each in END_OF_THING.finditer(rest) if rest[: each.start()].count("`") % 2 == 0), None)
    thing = rest[: end.start()] if end else rest
    for name in _names(thing, source.text):
        if not any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", line) for line in lines):
            return f"`{name}`"
    known = [(match.end(), match[0], sign) for words, sign in THINGS
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
