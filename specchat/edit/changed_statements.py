"""Which changed statements an instruction asks for, or are changed because of what it asks for.

Another number, string or operator is asked for by its name or its new value only. Knows pairs of statements and words,
and nothing of lines or files.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import takewhile

from specchat.edit.asked_changes import CODE_LIKE, SET_VERBS, TOPIC, WORD, AskedChanges, May, content_words, subwords
from specchat.edit.edit_plan import Region
from specchat.edit.replaced_statements import targets
from specchat.edit.statement_pairs import PROSE_KINDS, StatementPairs
from specchat.syntax.statements import Statement

IDENTIFIER = re.compile(r"[\w.-]+")  # the name of an `if` is its condition
NAME = re.compile(r"[^\W\d]\w*\Z")
PARAMETER = re.compile(r"[(,] (?:[*]+ )?(\w+)(?= [:=,)])")
CONSTANTS = frozenset(("True", "False", "None", "true", "false", "null", "nil", "yes", "no", "on", "off"))
SIGNS = frozenset(("", ",", ";", "(", ")", "[", "]", "{", "}", ":", ".", "->", "=>", "=", "::"))
NUMBER_BEFORE = r"(?:\b(?:to|by|with|as|of|is|be|return\w*|than|at|from|for|allow|on|least|most|use|port)|=)\s*[`'\"]?"


class ChangedStatements:
    """`regions` are what the instruction names. `is_removal_alone`: it asks to remove something, and nothing else."""

    def __init__(
        self, old: Sequence[Statement], new: Sequence[Statement], pairs: StatementPairs, asked: AskedChanges,
        regions: Sequence[Region], *, is_removal_alone: bool,
    ) -> None:  # fmt: skip
        self._old, self._new, self._pairs, self.asked, self._regions = old, new, pairs, asked, regions
        self._is_removal_alone = is_removal_alone
        self.all = {index for index, became in pairs.became.items() if old[index].tokens != new[became].tokens}
        self.wrong = {index for index in self.all if not self._may_become(old[index], new[pairs.became[index]])}

    def _may_become(self, old: Statement, new: Statement) -> bool:
        if old.kind in PROSE_KINDS:
            return True
        if _is_flip(old, new):
            is_named = self._names(old, new) and not self.asked.may & (May.SET_VALUE | May.REARRANGE)
            return is_named or self._has_value(old, new)
        if self._adds_unused_parameter(old, new) or self._loses_part(old, new):
            return False
        is_elsewhere = is_outside(old, self._regions) or (not self._regions and self._calls_another(old, new))
        if is_elsewhere:
            return self._follows(old, new) or self._is_mentioned(old)
        is_renamed = old.name != new.name and old.is_definition and not old.is_inner
        words = WORD.findall(self.asked.words)
        return not is_renamed or old.name in words or new.name in words or May.RENAME in self.asked.may

    def _adds_unused_parameter(self, old: Statement, new: Statement) -> bool:
        before, after = _parameters(old), _parameters(new)
        added = set(after) - {*before, *WORD.findall(self.asked.words)}
        return len(after) > len(before) and bool(added & _unused_words(new))

    def _loses_part(self, old: Statement, new: Statement) -> bool:
        """Whether a statement of a function only became shorter, by what nothing names: an `await`, an `else`."""
        words = [Counter(each for each in side.tokens if each not in SIGNS) for side in (old, new)]
        lost = set(words[0] - words[1])
        if not lost or words[1] - words[0] or not (old.is_inner or old.is_function):
            return False
        named = {part for each in WORD.findall(self.asked.words) for part in subwords(each)}
        return not any(subwords(each) & named or each in self._vanished for each in lost)

    @cached_property
    def _vanished(self) -> set[str]:
        """The names that only the old text defines."""
        defined = {name for each in self._old for name in (*targets(each), each.name)}
        return defined - {token for each in self._new for token in each.tokens}

    def _calls_another(self, old: Statement, new: Statement) -> bool:
        """Whether a statement that is a call in a function became the call of something else."""
        is_same = _called(old) == _called(new) or May.TRANSFORM in self.asked.may
        return old.is_inner and old.is_call and not is_same

    def _follows(self, old: Statement, new: Statement) -> bool:
        """Whether a change uses what is new in the functions that the instruction names, or is about one of them."""
        return bool(self._region_names & {*new.tokens} or self._asked_words & (set(old.words) ^ set(new.words)))

    def _is_mentioned(self, statement: Statement) -> bool:
        """Whether the instruction has a word of any name in a statement, beside the functions that it is about."""
        words = content_words(self.asked.words) - {part for name in self._region_names for part in subwords(name)}
        return bool(words & {part for token in statement.tokens if NAME.match(token) for part in subwords(token)})

    @cached_property
    def _region_names(self) -> set[str]:
        return {region.name.rpartition(".")[2] for region in self._regions}

    @cached_property
    def _asked_words(self) -> set[str]:
        """The words that come or go where the instruction says, and those of what is new."""
        words = {word for index in self._pairs.added for word in self._new[index].words}
        for old in self.all if self._regions else ():
            if not is_outside(self._old[old], self._regions):
                words |= set(self._old[old].words) ^ set(self._new[self._pairs.became[old]].words)
        return words

    def _names(self, old: Statement, new: Statement) -> bool:
        """Whether the instruction has a word of the name of a statement, or of the name before a changed value."""
        if self._is_removal_alone:
            return False
        values = list((Counter(_value_names(old)) - Counter(_value_names(new))).elements())
        names = [old.name] if IDENTIFIER.fullmatch(old.name) else []
        names += [name for name, _value in values]
        if _is_reworded(old, new):
            names += [word for _name, value in values if value[0] in "\"'`" for word in WORD.findall(value)]
        if set(names) & self._code_names:
            return True
        named = [parts for each in names if (parts := subwords(each)) and parts <= self._plain_words]
        is_alone = len(self.all) == 1 and not (self._pairs.gone or self._pairs.added) and _is_reworded(old, new)
        is_value = IDENTIFIER.fullmatch(old.name) and not old.is_definition
        is_set = is_value and re.search(SET_VERBS + re.escape(old.name) + r"\b", self.asked.words)
        return bool(is_set or (is_alone and named)) or any(len(parts) > 1 for parts in named)

    @cached_property
    def _code_names(self) -> set[str]:
        """The words of an instruction that must be names of code."""
        if self.asked.operation:
            return self.asked.names - self._region_names
        words = set(WORD.findall(TOPIC.sub("", self.asked.words))) - self._region_names
        return {word for word in words if CODE_LIKE.search(word) or re.search(rf"([`'\"]){word}\1", self.asked.words)}

    @cached_property
    def _plain_words(self) -> set[str]:
        """The words of an instruction that are no names of code."""
        if self.asked.operation:
            return set()
        words = re.findall(r"(?<![\w.`])[A-Za-z][a-z]*(?![\w`(]|\.\w)", self.asked.words)
        return {part for word in words for part in content_words(word)} - self._region_names

    def _has_value(self, old: Statement, new: Statement) -> bool:
        """Whether the instruction has a value that is new in a statement."""
        added = {token.strip("\"'`") for token in set(new.tokens) - set(old.tokens)}
        return any(value and _names_value(self.asked.words, value) for value in added)


def is_outside(statement: Statement, regions: Sequence[Region]) -> bool:
    """Whether functions or classes are named, and this statement is in none of them."""
    above = 1 if statement.kind == "attribute_item" else 0  # of Rust
    return bool(regions) and not any(
        region.first - above <= statement.line and statement.last_line <= region.last for region in regions
    )


def _is_flip(old: Statement, new: Statement) -> bool:
    """Whether two versions of a statement have the same names, and other values or operators."""
    names, values = zip(*(_names_and_values(each) for each in (old, new)), strict=True)
    return names[0] == names[1] and bool(values[0] - values[1])


def _is_reworded(old: Statement, new: Statement) -> bool:
    """Whether strings in two versions of a statement differ by more than numbers, and nothing else but names does."""
    others = [Counter(each for each in side.tokens if not re.match(r"[\"'`\w]", each)) for side in (old, new)]
    numbers = [Counter(each for each in side.tokens if each[0].isdigit()) for side in (old, new)]
    texts = [[re.sub(r"\d+", "0", each) for each in side.tokens] for side in (old, new)]
    return texts[0] != texts[1] and numbers[0] == numbers[1] and set(others[0] - others[1]) <= SIGNS


def _names_value(instruction: str, value: str) -> bool:
    """Whether an instruction has a value: a number after a word such as "to", as in "bump it to 3"."""
    before = NUMBER_BEFORE if value.isdigit() else r"(?<![\w.-])"
    return bool(re.search(rf"{before}{re.escape(value)}(?!\w)", instruction, re.IGNORECASE))


def _parameters(statement: Statement) -> list[str]:
    """The names of the parameters of a function in Python."""
    return PARAMETER.findall(" ".join(statement.tokens)) if statement.kind == "function_definition" else []


def _unused_words(statement: Statement) -> set[str]:
    return {word for word, count in Counter(statement.words).items() if count == 1}


def _called(statement: Statement) -> tuple[str, ...]:
    """The tokens before the arguments of a call."""
    return tuple(takewhile(lambda token: token not in ("(", "!"), statement.tokens))


def _value_names(statement: Statement) -> Iterator[tuple[str, str]]:
    """Each value of a statement with the last name before it: of `get(url, timeout=3)` it is timeout, 3."""
    name = ""
    for token in statement.tokens:
        if NAME.match(token) and token not in CONSTANTS:
            name = token
        elif token not in SIGNS:
            yield name, token


def _names_and_values(statement: Statement) -> tuple[list[str], Counter[str]]:
    names = [token for token in statement.tokens if NAME.match(token) and token not in CONSTANTS]
    rest = (token.strip("\"'`") for token in statement.tokens if not NAME.match(token) or token in CONSTANTS)
    return names, Counter(each for each in rest if each not in SIGNS)
