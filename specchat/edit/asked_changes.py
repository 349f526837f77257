"""What an instruction lets change, read once: from the operation that it is, or else from its words. Knows no file.

All words about changes are in `asked_changes.toml`. A reader asks the typed value, never the words, what may change.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from enum import Enum, Flag, auto
from functools import lru_cache, reduce
from operator import or_

from specchat.edit import operations as ops
from specchat.edit.parse_instruction import parse_instruction
from specchat.syntax.languages import language_tables
from specchat.syntax.statements import Statement, code_words


class May(Flag):
    """What an instruction lets a new text do."""

    NOTHING = 0
    ADD = auto()  # and nothing else: "add a docstring"
    SET = auto()  # and nothing else: "set the timeout to 30"
    SET_VALUE = auto()  # no other one
    RENAME_ALONE = auto()
    REARRANGE = auto()  # and change no value: "move load below main"
    SORT_IMPORTS = auto()
    REPAIR = auto()  # what is wrong may be to go
    LOSE = auto()
    LOSE_DEFINITIONS = auto()
    LOSE_COMMENTS = auto()  # or have others: "translate the comments"
    DEFINE = auto()
    RENAME = auto()  # or make something else of what has a name
    REWORD = auto()  # the new text may have few of the old words
    REFORM = auto()  # "turn the loop into a function": what is missing may stand somewhere else, in another form
    TRANSFORM = auto()  # that, or less: "use pathlib"
    GENERATE = auto()  # a data class, a named tuple or a record has some methods by itself
    REINDENT = auto()


class Only(Enum):
    """The one kind of change that an instruction asks for: all else stays equal."""

    COMMENTS = auto()
    TYPES = auto()
    FORMAT = auto()


TABLES = language_tables(__file__)


def _patterns(table: str, flags: re.RegexFlag = re.IGNORECASE) -> Mapping[str, re.Pattern[str]]:
    words = {key: lines.replace("\n", "").format(**TABLES["stems"]) for key, lines in TABLES[table].items()}
    return {key: re.compile(each, flags) for key, each in words.items()}


WORDS = {May[key.upper()]: pattern for key, pattern in _patterns("may").items()}
ONE_KIND = {Only[key.upper()]: pattern for key, pattern in _patterns("only", re.IGNORECASE | re.DOTALL).items()}
REMOVAL = _patterns("removal")
SET_VERBS = rf"\b(?:{TABLES['stems']['set']}|make|use|reset|double|halve)\s+(?:(?:the|value|default|of)\s+)*`?"
# what a data class, a named tuple or a record has by itself
GENERATED_METHODS = frozenset(("__init__", "__repr__", "__eq__", "__hash__", "equals", "hashCode", "toString"))
WORD = re.compile(r"\w+")
TOPIC = re.compile(r"\A\s*[\w/.-]+\s?:\s")  # "parser: handle an empty text" is not about the name `parser`
SUBWORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
EVERYDAY_WORDS = frozenset(TABLES["names"]["everyday"].split())
TERM = re.compile(r"`([^`]+)`|\"([^\"]+)\"|(\w+(?:\.\w+)+)|(\w+)")
CODE_LIKE = re.compile(r"_|[a-z][A-Z]|\d|\.")
PRINTS = re.compile(
    r"\A\s*(?:(?:self|this)\.|std::)?_*"
    r"(?:print|console|(?i:log|logger|logging)|echo|printf|println|fmt|System|puts|warn)\b"
)


def _is_call(statement: Statement) -> bool:
    return "call" in statement.kind or statement.kind in ("command", "expression_statement", "macro_invocation")


def _is_variable(statement: Statement) -> bool:
    return bool(statement.name) and not (statement.is_function or statement.is_import or _is_class(statement))


def _is_class(statement: Statement) -> bool:
    return bool(re.search(r"class|struct|interface|enum|trait|record|type_spec|impl", statement.kind))


TESTS: Mapping[str, Callable[[Statement], bool]] = {
    "import": lambda each: each.is_import, "function": lambda each: each.is_function, "class": _is_class,
    "variable": _is_variable, "property": lambda each: _is_variable(each) or each.is_function, "call": _is_call,
    "print": lambda each: bool(PRINTS.search(each.text)),
    "guard": lambda each: "__main__" in each.text.partition("\n")[0],
    "test": lambda each: each.name.lower().startswith("test"),
    "decorator": lambda each: "decorator" in each.kind, "annotation": lambda each: "annotation" in each.kind,
    "assert": lambda each: "assert" in each.text.partition("\n")[0],
    "section": lambda each: "heading" in each.kind or each.kind in ("paragraph", "list_item"),
    "paragraph": lambda each: each.kind == "paragraph", "list": lambda each: each.kind == "list_item",
    "table": lambda each: "table" in each.kind, "rule": lambda each: each.kind == "rule_set",
    "line": lambda each: "\n" not in each.text.strip(),
    "link": lambda each: "http" in each.text or "](" in each.text,
}  # fmt: skip
KINDS = {word: TESTS[kind] for kind, words in TABLES["kinds"].items() for word in words}
MASS_NOUNS: Sequence[str] = TABLES["names"]["mass_nouns"]
KINDS_OF = {
    ops.Removable.PRINTS: "print", ops.Removable.LOGGING: "print", ops.Removable.UNUSED_IMPORTS: "import",
}  # fmt: skip
OF_OPERATIONS: Mapping[type[ops.Operation], May] = {
    ops.Rename: May.RENAME | May.REARRANGE, ops.Remove: May.LOSE, ops.RemoveDefinition: May.LOSE | May.LOSE_DEFINITIONS,
    ops.SetValue: May.SET | May.SET_VALUE,
    ops.AddParameter: May.ADD, ops.Move: May.REFORM | May.TRANSFORM | May.REARRANGE,
    ops.SortImports: May.SORT_IMPORTS | May.REARRANGE,
}  # fmt: skip


@dataclass(frozen=True)
class AskedChanges:
    """What may change. `words` have the names and values; those of an operation are also in `names`."""

    words: str
    may: May = May.NOTHING
    only: Only | ops.Rename | None = None
    operation: ops.Operation | None = None

    @classmethod
    @lru_cache(maxsize=8)  # an edit asks several times for its one instruction
    def of(cls, instruction: str | ops.Operation, code: str = "") -> AskedChanges:
        """Of the one operation that an instruction about this text is, else of its words."""
        if not isinstance(instruction, str):
            return cls._of_operation(instruction)
        match parse_instruction(instruction, code=code):
            case (operation,):
                return cls._of_operation(operation)
            case _:
                may = (may for may, pattern in WORDS.items() if pattern.search(instruction))
                only = next((each for each, pattern in ONE_KIND.items() if pattern.match(instruction)), None)
                return cls(instruction, reduce(or_, may, May.NOTHING), only)

    @classmethod
    def _of_operation(cls, operation: ops.Operation) -> AskedChanges:
        texts = (ops.Removable.COMMENTS, ops.Removable.DOCSTRINGS)
        is_text = isinstance(operation, ops.Remove) and operation.what in texts
        only = operation if isinstance(operation, ops.Rename) else Only.COMMENTS if is_text else None
        may = OF_OPERATIONS[type(operation)] | (May.LOSE_COMMENTS if is_text else May.NOTHING)
        return cls(str(operation), may, only, operation)

    @property
    def is_precise(self) -> bool:
        """Whether nothing else may change than what has a name in it."""
        return self.operation is not None or bool(self.may & (May.ADD | May.SET | May.RENAME_ALONE))

    @property
    def names(self) -> set[str]:
        """The names and values of the operation."""
        values = astuple(self.operation) if self.operation else ()
        return {part for each in values if type(each) is str for part in (each, *each.split("."))}


@dataclass(frozen=True)
class RemovalRequest:
    """The things that an instruction asks to remove: `terms` name them, `kinds` say of what kind they are."""

    text: str
    terms: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    old: tuple[Statement, ...] = ()
    is_precise: bool = False  # it begins with the verb, and names what goes: all else stays

    @classmethod
    def of(cls, asked: AskedChanges, old: Sequence[Statement]) -> RemovalRequest:
        """The request about these statements; one that asks for no removal covers nothing."""
        match asked.operation:
            case None:
                return cls._of_words(asked.words, old)
            case (
                ops.RemoveDefinition(name=name)
                | ops.Remove(what=ops.Removable.CALLS, called=name)
                | ops.Remove(what=ops.Removable.UNUSED_IMPORTS, scope=name)
            ) if name:
                return cls("it", (name,), (), tuple(old), is_precise=True)
            case ops.Remove(what=what) if what in KINDS_OF:
                return cls(what, (), (KINDS_OF[what],), tuple(old), is_precise=True)
            case _:
                return cls("")

    @classmethod
    def _of_words(cls, instruction: str, old: Sequence[Statement]) -> RemovalRequest:
        objects = [instruction] if REMOVAL["other_languages"].search(instruction) else _objects(instruction)
        text = " ".join(objects)
        words = [term for found in TERM.findall(text) if (term := next(filter(None, found), ""))]
        names, known = {each.name for each in old}, {word for each in old for word in each.words}
        terms = [word for word in words if word in names or (CODE_LIKE.search(word) and _is_known(word, known))]
        kinds = [kind for kind in KINDS if re.search(rf"\b{kind}", text, re.IGNORECASE)]
        is_precise = bool((terms or kinds in (["import"], ["include"])) and REMOVAL["alone"].match(instruction))
        terms = terms or [word for word in words if word in known and not _is_kind(word) and len(word) > 2]
        return cls(text, tuple(terms), tuple(kinds), tuple(old), is_precise)

    def covered(self, gone: Iterable[Statement]) -> list[Statement]:
        """Those of the statements that are gone as this asks for."""
        if not self.text:
            return []
        named = [each for each in gone if any(_mentions(each, term) for term in self.terms)]
        others = [each for each in gone if each not in named]
        return named if self.terms and not self._is_general else [*named, *self._of_kind(others)]

    @property
    def _is_general(self) -> bool:
        return any(REMOVAL[each].search(self.text) for each in ("needless", "unused", "duplicate", "everything"))

    def _of_kind(self, gone: Sequence[Statement]) -> list[Statement]:
        """Those of a kind that is named, else those that nothing uses: what else is needless, a person has to say."""
        if not self.kinds and not (self._is_general and REMOVAL["all_code"].search(self.text)):
            return []  # "the unnecessary else" is no function
        found = [each for each in gone if not self.kinds or any(KINDS[kind](each) for kind in self.kinds)]
        if REMOVAL["unused"].search(self.text) or (REMOVAL["needless"].search(self.text) and not self.kinds):
            found = [each for each in found if self._is_unused(each)]
        elif REMOVAL["duplicate"].search(self.text):
            found = [each for each in found if sum(each.words == other.words for other in self.old) > 1]
        is_one = any(
            re.search(rf"\b{kind}\b", self.text, re.IGNORECASE) for kind in self.kinds if kind not in MASS_NOUNS
        )
        return found if not is_one or len(found) == 1 else []

    def _is_unused(self, statement: Statement) -> bool:
        """Whether no other statement has a name that this one defines."""
        if statement.text.lstrip().startswith("@"):
            return False  # a decorator may register it
        if statement.is_import:
            return not set(statement.words) & set(code_words(self.old))
        own = Counter(statement.words)[statement.name]
        return bool(statement.name) and code_words(self.old)[statement.name] <= own


def _is_kind(word: str) -> bool:
    return any(re.fullmatch(rf"{kind}s?", word, re.IGNORECASE) for kind in KINDS)


def _objects(instruction: str) -> list[str]:
    """What follows each verb of a removal, up to what says where, or by what."""
    instruction = REMOVAL["keeping"].sub("", instruction)
    verbs = WORDS[May.LOSE].finditer(instruction)
    objects = (text_before(REMOVAL["end_of_object"], instruction[verb.end() :]) for verb in verbs)
    return [each for each in objects if each.strip()]


def text_before(end: re.Pattern[str], text: str) -> str:
    """The text up to the first such end that does not stand in backticks."""
    found = next((each for each in end.finditer(text) if text[: each.start()].count("`") % 2 == 0), None)
    return text[: found.start()] if found else text


def _is_known(word: str, known: set[str]) -> bool:
    return all(part in known for part in re.findall(r"\w+", word))


def _mentions(statement: Statement, term: str) -> bool:
    """Whether a term names a statement: its name, or a part of a statement without one."""
    if statement.name and not statement.is_call:
        return term in (statement.name, *statement.name.split("."))
    return has_word(statement.text, term)


def has_word(text: str, word: str) -> bool:
    """Whether a word stands in a text as a whole; its ends may be signs."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def content_words(instruction: str) -> set[str]:
    """The words of an instruction that may be about something in a text."""
    words = WORD.findall(TOPIC.sub("", instruction))
    return {part for word in words if word.lower().removesuffix("s") not in EVERYDAY_WORDS for part in subwords(word)}


def subwords(name: str) -> set[str]:
    """The words of a name in lower case, without the s of a plural: MAX_RETRIES is "max", "retrie"."""
    return {part.lower().removesuffix("s") for part in SUBWORD.findall(name) if len(part) > 1}
