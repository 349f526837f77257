"""The statements of a file that its new text lost although the instruction does not ask for that.

A statement is there if the new text has it anywhere, or a changed version of it at its place, or what it says inside of
something new. It may go if the instruction asks for that: "remove the unused imports", "replace print by logging".
Function bodies are not looked at. Knows no model and no file.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

from specchat.edit.removal_request import ADDITION, RemovalRequest
from specchat.syntax.statements import Statement, code_words, statements

# the same may be said in another form: "turn the loop into a function", "simplify"
TRANSFORMATION = re.compile(
    r"\b(?:convert|turn|wrap|rewrit|refactor|restructur|extract|split|merg|combin|inlin|simplif|shorten|mov|port|mak"
    r"|use|using|replac|reorgani|moderni|optimi|clean|group|unif|chang|dedupl|translat)\w*\b",
    re.IGNORECASE,
)
PROSE_KINDS = frozenset(
    ("paragraph", "atx_heading", "setext_heading", "list_item", "text", "block_quote", "pipe_table")
)
SCALAR_KINDS = frozenset(("string", "number", "integer", "float", "boolean", "true", "false", "null", "plain_scalar"))
IMPORT_WORDS = frozenset(
    ("import", "from", "as", "use", "static", "include", "type", "pub", "extern", "crate", "h", "js")
)
BARE_IMPORT = re.compile(r"import\s*[\"']")  # of JavaScript
# what a data class, a named tuple or a record has by itself
GENERATED_METHODS = frozenset(("__init__", "__repr__", "__eq__", "__hash__", "equals", "hashCode", "toString"))
GENERATING = re.compile(r"\bdata ?class|\bnamed ?tuple|\brecord\b|\battrs\b", re.IGNORECASE)
MIN_SAME_KIND, MIN_OTHER_KIND = 0.3, 0.5  # how alike two versions of a statement are at least, by their words
MIN_ABSORBED_FRACTION = 0.6  # of the words of a statement that a transformation put into another one
MAX_COMPARED = 4000  # statements; a longer file is data that a machine wrote
MAX_NEIGHBOURS = 50
MAX_SHOWN = 60


@dataclass
class _Comparison:
    """Which statement of the new text each old one became; those left are lost."""

    old: Sequence[Statement]
    new: Sequence[Statement]
    became: dict[int, int] = field(default_factory=dict[int, int])  # changed or not
    changed: set[int] = field(default_factory=set[int])  # of the new ones, those that are no copies

    @property
    def free_old(self) -> list[int]:
        return [index for index in range(len(self.old)) if index not in self.became]

    @property
    def free_new(self) -> list[int]:
        taken = set(self.became.values())
        return [index for index in range(len(self.new)) if index not in taken]

    def pair(self, old: int, new: int, *, is_changed: bool) -> None:
        self.became[old] = new
        if is_changed:
            self.changed.add(new)


def lost_statements(old_text: str, new_text: str, language: str, instruction: str = "") -> list[Statement]:
    """The outermost statements that are gone and that the instruction does not ask to remove, by line."""
    old, new = statements(old_text, language), statements(new_text, language)
    if not old or len(old) + len(new) > MAX_COMPARED:
        return []
    comparison = _Comparison(old, new)
    _pair_equal(comparison)
    _pair_named(comparison)
    _pair_in_place(comparison, is_addition=bool(ADDITION.search(instruction)))
    gone = [index for index in comparison.free_old if not _is_inside_new(comparison, index)]
    if TRANSFORMATION.search(instruction):
        gone = [index for index in gone if not _is_absorbed(comparison, index)]
    if GENERATING.search(instruction):
        gone = [index for index in gone if old[index].name not in GENERATED_METHODS]
    candidates = [_lost_part(comparison, index) for index in gone if old[index].owner not in gone]
    lost = [each for each in candidates if each.words]
    asked = RemovalRequest.parse(instruction, old).covered(lost)
    return [each for each in lost if each not in asked]


def describe_loss(lost: Sequence[Statement]) -> str:
    """'line 41: `app.route(...)` would be lost, nothing asked for that'; of several the first and their number."""
    first = lost[0].text.strip().partition("\n")[0].rstrip(" {:")
    shown = first if len(first) <= MAX_SHOWN else f"{first[:MAX_SHOWN]}…"
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    return f"line {lost[0].line}: `{shown}`{more} would be lost, nothing asked for that"


def _pair_equal(comparison: _Comparison) -> None:
    """Pair statements with the same words: first in order, then wherever they moved to."""
    old, new = ([(each.words, each.is_import) for each in side] for side in (comparison.old, comparison.new))
    for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            comparison.pair(block.a + offset, block.b + offset, is_changed=False)
    places: dict[tuple[tuple[str, ...], bool], list[int]] = {}
    for index in reversed(comparison.free_new):
        places.setdefault(new[index], []).append(index)
    for index in comparison.free_old:
        if places.get(old[index]):
            comparison.pair(index, places[old[index]].pop(), is_changed=False)


def _pair_named(comparison: _Comparison) -> None:
    """Pair what has the same name: in the same owner if possible, else in another one."""
    for is_same_owner in (True, False):
        places: dict[tuple[str, str], list[int]] = {}
        for index in reversed(comparison.free_new):
            if name := comparison.new[index].name:
                places.setdefault((name, _path(comparison.new, index, is_same_owner)), []).append(index)
        for index in comparison.free_old:
            key = (comparison.old[index].name, _path(comparison.old, index, is_same_owner))
            if key[0] and places.get(key):
                comparison.pair(index, places[key].pop(), is_changed=True)


def _path(side: Sequence[Statement], index: int, is_wanted: bool) -> str:
    """The names of the owners of a statement, outer last."""
    names, owner = list[str](), side[index].owner
    while is_wanted and owner >= 0:
        names.append(side[owner].name)
        owner = side[owner].owner
    return ".".join(names)


def _pair_in_place(comparison: _Comparison, *, is_addition: bool) -> None:
    """Pair statements between the same neighbours that are alike. What is added replaces nothing, so it keeps all."""
    old, new = comparison.old, comparison.new
    for index in comparison.free_old:
        before = max((comparison.became[each] for each in range(index) if each in comparison.became), default=-1)
        after = min(
            (comparison.became[each] for each in range(index, len(old)) if each in comparison.became), default=len(new)
        )
        between = [each for each in comparison.free_new if before < each < after or before > after][:MAX_NEIGHBOURS]
        likeness = {each: _likeness(old[index], new[each]) for each in between}
        best = max(likeness, key=lambda each: likeness[each], default=-1)
        if best < 0 or not _is_version(old[index], new[best], likeness[best]):
            continue
        if not is_addition or not Counter(old[index].words) - Counter(new[best].words):
            comparison.pair(index, best, is_changed=True)


def _likeness(old: Statement, new: Statement) -> float:
    if old.is_import != new.is_import:
        return 0.0
    common = (Counter(old.words) & Counter(new.words)).total()
    return 2 * common / (len(old.words) + len(new.words))


def _is_version(old: Statement, new: Statement, likeness: float) -> bool:
    if old.is_import:
        return False  # the names that it binds count, see below
    if old.kind == new.kind and old.kind in (*PROSE_KINDS, *SCALAR_KINDS):
        return True
    return likeness >= (MIN_SAME_KIND if old.kind == new.kind else MIN_OTHER_KIND)


def _is_inside_new(comparison: _Comparison, index: int) -> bool:
    """Whether something new contains this statement as it was: a function into which it was moved."""
    old = comparison.old[index]
    wanted = sum(comparison.old[each].words == old.words for each in comparison.free_old)
    return _added_count(comparison, old.words) >= wanted


def _added_count(comparison: _Comparison, words: tuple[str, ...]) -> int:
    """How often these words follow each other in what is new, beyond what it said before its change."""
    sources = {new: old for old, new in comparison.became.items()}
    count = 0
    for each in (*comparison.free_new, *comparison.changed):
        count += _occurrences(words, comparison.new[each].words)
        if each in sources:
            count -= _occurrences(words, comparison.old[sources[each]].words)
    return count


def _occurrences(part: tuple[str, ...], whole: tuple[str, ...]) -> int:
    size = len(part)
    return sum(whole[start : start + size] == part for start in range(len(whole) - size + 1))


def _is_absorbed(comparison: _Comparison, index: int) -> bool:
    """Whether most words of this statement were added somewhere else."""
    added = Counter[str]()
    sources = {new: old for old, new in comparison.became.items()}
    for each in (*comparison.free_new, *comparison.changed):
        before = Counter(comparison.old[sources[each]].words) if each in sources else Counter[str]()
        added += Counter(comparison.new[each].words) - before
    words = Counter(comparison.old[index].words)
    return (words & added).total() >= MIN_ABSORBED_FRACTION * words.total()


def _lost_part(comparison: _Comparison, index: int) -> Statement:
    """The statement; of an import the names that are no longer imported though the code that uses them is there."""
    old, new, statement = comparison.old, comparison.new, comparison.old[index]
    if not statement.is_import:
        return statement
    imported = {word for each in new if each.is_import for word in each.words}
    missing = _bound_words(statement) - imported
    before, after = set(code_words(old)), set(code_words(new))
    is_needless = bool(missing & before) and not missing & after
    return replace(statement, words=() if is_needless else tuple(missing))


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
