"""The contract of an edit: a new text changes what the instruction asks for, and nothing else.

Old and new text are compared as statements. What is gone or changed is a deviation, unless the instruction asks for it
or it follows from what the instruction asks for:

    gone      it names the statement, or its kind, as something to remove, or asks for another form of it
    changed   it names the statement or its new value; it concerns the function; the change uses a new name
    added     it is no copy of what is there, and what was to be added is in it

Another number, string or operator is asked for by its name or its new value only. A deviation whose lines can be put
back is put back, byte for byte; each other one has to be seen by a person. It is checked on what a model wrote, and on
what an operation of the syntax tree makes. Knows no model and no file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property

from specchat.edit.added_things import missing_addition
from specchat.edit.answer_check import (
    MAX_LOST_LINE_FRACTION,
    PROSE_LANGUAGES,
    AnswerProblem,
    UnusableAnswerError,
    is_much_shorter,
)
from specchat.edit.asked_changes import GENERATED_METHODS, AskedChanges, May, RemovalRequest
from specchat.edit.changed_statements import ChangedStatements, is_outside
from specchat.edit.edit_plan import Region, named_regions
from specchat.edit.hunks import Change, apply_changes, diff_lines, split_lines
from specchat.edit.operations import Operation, Rename
from specchat.edit.postconditions import broken_lines, keep_blanks, postcondition_of, put_back_lines
from specchat.edit.replaced_statements import loses_effect, replaced
from specchat.edit.source_text import Source
from specchat.edit.statement_pairs import StatementPairs, with_below
from specchat.errors import DeclinedError
from specchat.syntax.parse import Comment, comments
from specchat.syntax.statements import Statement, code_words, statements

IMPORT_WORDS = frozenset(
    ("import", "from", "as", "use", "static", "include", "type", "pub", "extern", "crate", "h", "js")
)
BARE_IMPORT = re.compile(r"import\s*[\"']")  # of JavaScript
MAX_COMPARED = 6000  # statements; a longer file is data that a machine wrote
MAX_SHOWN = 60


@dataclass(frozen=True)
class Deviation:
    """A line of the old text that would be lost or become `new`, or a new one, although nothing asks for that."""

    line: int
    old: str
    new: str = ""

    def __str__(self) -> str:
        end = "be added" if not self.old else f"become `{self.new}`" if self.new else "be lost"
        return f"line {self.line}: `{self.old or self.new}` would {end}, nothing asked for that"

    @classmethod
    def of(cls, old: Statement, new: Statement | None = None) -> Deviation:
        """A statement that is gone, or the first lines that differ in two versions of one."""
        lines, new_lines = (each.text.strip().split("\n") if each else [] for each in (old, new))
        place = next(
            (place for place, (one, other) in enumerate(zip(lines, new_lines, strict=False)) if one != other), 0
        )
        return cls(old.line + place, shown_line(lines[place]), shown_line(new_lines[place]) if new_lines else "")


def shown_line(line: str) -> str:
    line = line.strip().rstrip(" {:")
    return line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN]}…"


@dataclass(frozen=True)
class EditWarnings:
    """What a person should check before accepting: unasked changes, or that a text without a grammar lost most lines.

    `put_back` was found, too, and is not in the text any more.
    """

    deviations: tuple[Deviation, ...] = ()
    put_back: tuple[Deviation, ...] = ()
    is_much_shorter: bool = False
    missing: str = ""  # what was to be added
    understood: str = ""  # the operation that the instruction is said to be, where its words do not confirm it
    unproven: str = ""  # why a text by this model has to be seen, whatever it is

    @property
    def worst_problem(self) -> AnswerProblem | None:
        if self.is_much_shorter:
            return AnswerProblem.MUCH_SHORTER
        if self.deviations or self.understood:
            return AnswerProblem.DEVIATION
        if self.missing:
            return AnswerProblem.MISSING
        return AnswerProblem.UNPROVEN if self.unproven else None

    @property
    def summary(self) -> str:
        if self.is_much_shorter:
            return f"more than {MAX_LOST_LINE_FRACTION:.0%} of the lines are missing"
        if self.deviations:
            return describe(self.deviations)
        if self.understood:
            return f'understood as "{self.understood}", which has to be reviewed, or said in these words'
        return f"the new lines have no {self.missing}, which was to be added" if self.missing else self.unproven


@dataclass(frozen=True)
class KeptEdit:
    """A new text that keeps the contract as far as lines can be put back, and what is left to check."""

    text: str
    warnings: EditWarnings


def describe(deviations: Sequence[Deviation]) -> str:
    """The first one, and how many there are."""
    more = f", and {len(deviations) - 1} more" if len(deviations) > 1 else ""
    return f"{deviations[0]}{more}"


def keep_contract(
    source: Source, text: str, instruction: str, is_valid: Callable[[str], bool] = lambda _text: True
) -> KeptEdit:
    """The new text, with what nothing asks for put back where that leaves a valid text."""
    asked = AskedChanges.of(instruction, source.text)
    blanks = _keep_blanks(source, text, asked)
    text = blanks if blanks != text and is_valid(blanks) else text
    comparison = Comparison(source, text, asked)
    found = comparison.warnings
    restored = comparison.put_back() if found.deviations else text
    if restored != text:
        restored = _keep_blanks(source, restored, asked)
    if restored in (text, source.text) or not is_valid(restored):
        return KeptEdit(text, found)
    left = Comparison(source, restored, asked).warnings
    lines = {each.line for each in left.deviations}
    fixed = tuple(each for each in found.deviations if each.line not in lines)
    return KeptEdit(restored, replace(left, put_back=fixed)) if fixed else KeptEdit(text, found)


def _keep_blanks(source: Source, text: str, asked: AskedChanges) -> str:
    if May.REINDENT in asked.may:
        return text
    is_prose, is_sorted = source.language in PROSE_LANGUAGES, May.SORT_IMPORTS in asked.may
    return keep_blanks(
        source.text, text, is_prose=is_prose, is_sorted=is_sorted, keeps_levels=isinstance(asked.only, Rename)
    )


def find_warnings(source: Source, text: str, instruction: str | Operation = "") -> EditWarnings:
    """What a person should check; nothing is put back."""
    return Comparison(source, text, AskedChanges.of(instruction, source.text)).warnings


def check_unreviewed(
    source: Source, warnings: EditWarnings, way_out: str = "--allow-shrink accepts it", *, allows_shrink: bool = False
) -> None:
    """UnusableAnswerError for a text that a person should see before it is used. `way_out`: what lets it pass."""
    problem = warnings.worst_problem
    if problem and not allows_shrink:
        error = UnusableAnswerError(problem, f"{source.name}: {warnings.summary}; {way_out}")
        if problem != AnswerProblem.MUCH_SHORTER:
            error.exit_code = DeclinedError.exit_code  # a sound answer, which does what it was not asked to
        raise error


class Comparison:
    """Old and new text as statements, and what an instruction lets change."""

    def __init__(self, source: Source, text: str, asked: AskedChanges) -> None:
        self.source, self.text, self.asked = source, text, asked
        old, new = statements(source.text, source.language), statements(text, source.language)
        self._is_known = bool(old) and len(old) + len(new) <= MAX_COMPARED
        self._old, self._new = (old, new) if self._is_known else ([], [])
        is_addition = May.ADD in asked.may
        self._removal = RemovalRequest.of(asked, self._old)
        self._is_precise = asked.is_precise or self._removal.is_precise
        self._may_move = May.TRANSFORM in asked.may and (asked.operation is not None or not self._is_precise)
        self._pairs = StatementPairs.of(self._old, self._new, is_addition=is_addition, may_move=self._may_move)
        self._gone = set(self._pairs.gone)
        changes = ChangedStatements(
            self._old, self._new, self._pairs, asked, self._regions, is_removal_alone=self._removal.is_precise
        )
        self._changed = changes.all
        self._wrong_changed = changes.wrong | {
            index for index in changes.all if old[index].is_inner and loses_effect(self._pairs, index)
        }
        self._lost = self._find_lost()
        self._postcondition = postcondition_of(asked.only) if old and asked.only else None
        self._broken = list(
            broken_lines(self._postcondition, source.text, text, source.language) if self._postcondition else ()
        )

    @property
    def warnings(self) -> EditWarnings:
        """What a person should check."""
        if self._broken:
            return EditWarnings(tuple(Deviation(*each) for each in self._broken))
        if self._is_known:
            missing = missing_addition(self.source, self.text, self.asked.words)
            return EditWarnings(tuple(self._deviations()), missing=missing)
        is_shorter = is_much_shorter(self.source.text, self.text)
        return EditWarnings(is_much_shorter=is_shorter and May.LOSE_COMMENTS not in self.asked.may)

    def put_back(self) -> str:
        """The new text with the old lines wherever lines hold what nothing asks for, and nothing that is asked for."""
        if self._broken and self._postcondition:
            return put_back_lines(self._postcondition, self.source.text, self.text, self.source.language)
        return self._put_back_statements() if self._is_targeted else self.text

    def _deviations(self) -> list[Deviation]:
        """What is gone or changed although nothing asks for it, by line."""
        comments_lost = [Deviation.of(each) for each in self._lost_comments]
        if self._postcondition:  # which is kept, so the code is the same
            return comments_lost
        changed = [Deviation.of(self._old[old], self._new[self._pairs.became[old]]) for old in self._wrong_changed]
        lost = [Deviation.of(each) for each in self._lost.values()]
        lost += [Deviation(each.line, "", shown_line(each.text.strip().split("\n")[0])) for each in self._doubled]
        return sorted([*changed, *lost, *comments_lost], key=lambda each: each.line)

    @property
    def _is_targeted(self) -> bool:
        """Whether the words tell what may change: without that, what is missing may be what was asked for."""
        return self._is_precise or (bool(self._regions) and not self.asked.may & (May.LOSE | May.REFORM))

    def _put_back_statements(self) -> str:
        wrong_old = self._lines_of(self._old, {*self._lost, *self._wrong_changed})
        for comment in self._lost_comments:
            wrong_old.update(range(comment.line, comment.last_line + 1))
        wrong_new = self._lines_of(self._new, {self._pairs.became[old] for old in self._wrong_changed})
        asked_old = self._lines_of(self._old, (self._changed | self._gone) - self._wrong_changed - self._all_lost)
        asked_new = self._lines_of(
            self._new, {*self._pairs.added, *(self._pairs.became[old] for old in self._changed - self._wrong_changed)}
        )
        inner = {index for index in self._lost if self._old[index].is_inner and not self._old[index].is_call}
        replaced_lines = self._lines_of(self._old, inner)
        lines, kept, shift = split_lines(self.source.text), list[Change](), 0
        for change in diff_lines(lines, split_lines(self.text)):
            first = change.first + shift
            shift += len(change.new) - len(change.old)
            old, new = range(change.first + 1, change.end + 1), range(first + 1, first + len(change.new) + 1)
            is_wrong = wrong_old.intersection(old) or wrong_new.intersection(new)
            is_rewritten = replaced_lines.intersection(old) and "".join(change.new).strip()
            if not is_wrong or is_rewritten or asked_old.intersection(old) or asked_new.intersection(new):
                kept.append(change)
        return "".join(apply_changes(lines, kept))

    def _lines_of(self, side: Sequence[Statement], indexes: Iterable[int]) -> set[int]:
        """The lines of these statements without those of the statements below them."""
        below: dict[int, set[int]] = {}
        for each in side:
            below.setdefault(each.owner, set()).update(range(each.line, each.last_line + 1))
        return {
            line
            for index in indexes
            for line in range(side[index].line, side[index].last_line + 1)
            if line not in below.get(index, ()) or line == side[index].line
        }

    # what is gone

    def _find_lost(self) -> dict[int, Statement]:
        """The outermost statements that are gone and that nothing asks to remove."""
        gone = set(self._gone)
        if self._may_move:
            gone = {index for index in gone if self._old[index].is_inner or not self._pairs.is_absorbed(index)}
        if May.GENERATE in self.asked.may:
            gone = {index for index in gone if self._old[index].name not in GENERATED_METHODS}
        free = {index for index in gone if self._may_be_replaced(index)}
        taken_over = replaced(self._pairs) if free else set[int]()
        free = {index for index in free if gone.intersection(with_below(self._old, index)) <= taken_over}
        parts = {index: self._lost_part(index) for index in gone - free if self._old[index].owner not in gone}
        missing = {index: each for index, each in parts.items() if each.words}
        asked = self._removal.covered(missing.values())
        return {index: each for index, each in missing.items() if each not in asked}

    @cached_property
    def _all_lost(self) -> set[int]:
        """The lost statements with all that are below them."""
        lost = set(self._lost)
        for index in sorted(self._gone):
            if self._old[index].owner in lost:
                lost.add(index)
        return lost

    def _may_be_replaced(self, index: int) -> bool:
        """Whether another statement may stand in the place of one: in a function that the instruction may concern."""
        statement = self._old[index]
        is_concerned = statement.is_inner and not self._is_precise and not is_outside(statement, self._regions)
        return is_concerned and not statement.is_call

    @cached_property
    def _regions(self) -> tuple[Region, ...]:
        return named_regions(self.source, self.asked.words)

    def _lost_part(self, index: int) -> Statement:
        """The statement; of an import the names that are no longer imported though the code that uses them is there."""
        statement = self._old[index]
        if not statement.is_import:
            return statement
        imported = {word for each in self._new if each.is_import for word in each.words}
        missing = _bound_words(statement) - imported
        before, after = set(code_words(self._old)), set(code_words(self._new))
        is_needless = bool(missing & before) and not missing & after
        return replace(statement, words=() if is_needless else tuple(missing))

    @property
    def _doubled(self) -> list[Statement]:
        """What is added outside of functions although it is there already: a text that was put into itself."""
        added = set(self._pairs.added)
        there = {each.words for index, each in enumerate(self._new) if not each.is_part and index not in added}
        new = (self._new[index] for index in sorted(added))
        return [each for each in new if not each.is_inner and len(each.words) > 1 and each.words in there]

    @cached_property
    def _lost_comments(self) -> list[Statement]:
        """Comments and docstrings whose code is still there; a reworded one is not lost."""
        if May.LOSE_COMMENTS in self.asked.may:
            return []
        old, new = (comments(each, self.source.language) for each in (self.source.text, self.text))
        before, after = Counter(each.text for each in old), Counter(each.text for each in new)
        added = [each for each in new if each.text not in before]
        texts, codes = [each.text for each in added], {each.code for each in added}
        fewer = {each.text: each for each in old if after[each.text] < before[each.text] and self._has_code_of(each)}
        lost = [
            each
            for each in fewer.values()
            if each.code not in codes and not get_close_matches(each.text, texts, 1, cutoff=0.5)
        ]
        return [
            Statement("comment", "", each.text, (), each.line, last_line=each.line + each.text.count("\n"))
            for each in lost
        ]

    def _has_code_of(self, comment: Comment) -> bool:
        """Whether what a comment is about is still there, as it was or in a new version."""
        first = comment.line + comment.text.count("\n") + 1
        following = next((index for index, each in enumerate(self._old) if each.line >= first), None)
        return comment.code in self.text or (following in self._changed and comment.code in self._old[following].text)


def _bound_words(statement: Statement) -> set[str]:
    """The names that an import defines: all after `import` in Python, before `from` in JavaScript, else the last.

    All words of one that defines none, and is there for what it does.
    """
    words = list(statement.words)
    if statement.kind == "preproc_include" or BARE_IMPORT.match(statement.text):
        return set(words) - IMPORT_WORDS
    if statement.kind == "import_from_statement" and "import" in words:
        return set(words[words.index("import") + 1 :]) - IMPORT_WORDS
    if "from" in words[1:]:
        return set(words[: words.index("from", 1)]) - IMPORT_WORDS
    return set(words[-1:])
