"""What an instruction asks for, by its words: what to add, to remove, to put in another form. Knows no file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from specchat.syntax.statements import Statement, code_words

REMOVAL = re.compile(
    r"(?<![\w./])(?:remov|delet|drop|strip|replac|merg|inlin|combin|eliminat|get(?:ting)? rid of|take out|cut"
    r"|discard|omit|swap|exchang|substitut|dedup|undo|revert|stop|do not|don't|no longer|without|migrat"
    r"|switch from|instead of|rather than)[^\W_]*(?![\w/]|\.\w)",  # and not a part of a name, as in merge_sort.py
    re.IGNORECASE,
)
KEEPING = re.compile(
    r"\b(?:do not|don't|never|without|not)\s+(?:remov|delet|drop|los|chang|touch|break|modif)\w*.*?(?=[,;!]|\.\s|\Z)",
    re.IGNORECASE,
)
# An instruction such as "add a docstring", "parser: insert a check" or "write a new function"
ADDITION = re.compile(
    r"\A\W*(?:[\w/.-]+:\s+)?(?:please\s+|now\s+)?(?:(?:add|insert|append|prepend|introduce|include|import|document|annotate)\b"
    r"|(?:write|create|implement|define)\s+(?:a|an|another|one more)\s+new\b)",
    re.IGNORECASE,
)
ONLY_REMOVAL = re.compile(r"\A\W*(?:please\s+)?(?:remove|delete|drop|strip|get rid of)\b", re.IGNORECASE)
ONLY_RENAMING = re.compile(
    r"\A\W*(?:please\s+)?rename\b(?=.+\b(?:in)?to\b)(?!.*\b(?:and|then)\b)", re.IGNORECASE | re.DOTALL
)
# "set the timeout to 30"
SETTING = re.compile(
    r"\A\W*(?:please\s+)?(?:set|change|increase|decrease|raise|lower|bump|reduce|update)\b.*\bto\s+[`'\"]?(?:['\"\d-]|true\b"
    r"|false\b|none\b|null\b)",
    re.IGNORECASE | re.DOTALL,
)
SET_VERBS = (
    r"\b(?:set|change|increase|decrease|raise|lower|bump|reduce|update|make|use|reset|double|halve)\s+"
    r"(?:(?:the|value|default|of)\s+)*`?"
)
DEFINITION_REMOVAL = re.compile(
    r"\b(?:remov|delet|drop|inlin|merg|combin|simplif)\w*\b.*\b(function|method|class|code|definition|helper|test)",
    re.IGNORECASE,
)
# "remove the comments", "without docstrings", "translate the comments": these may be others than before
COMMENT_CHANGE = re.compile(
    r"\b(?:(?:remov|delet|drop|strip|translat|rewrit|rephras|reword|replac|convert|shorten|simplif|summari[sz])\w*"
    r"|get(?:ting)? rid of|without|no)\b.*\b(?:comment|docstring|documentation)",
    re.IGNORECASE,
)
# what the instruction may want to have other names, or to be something else
NAMING = re.compile(
    r"\b(?:renam|nam|call|snake|camel|pascal|convert|replac|rewrit|translat|turn|generator|operator|class|object)\w*"
    r"|case\b",
    re.IGNORECASE,
)
DEFINITION_ADDITION = re.compile(r"\b(?:add|insert|write|create|new)\b", re.IGNORECASE)
# the new text may have few of the old words
OTHER_WORDS = re.compile(
    r"\b(?:translat|rewrit|rephras|paraphras|reword|summari[sz]|convert|generat|replac|port)\w*|\b(?:write|turn)\b",
    re.IGNORECASE,
)
# "turn the loop into a function": what is missing then may stand somewhere else, in another form
OTHER_FORM = re.compile(
    r"\b(?:convert|turn|wrap|rewrit|refactor|restructur|extract|split|merg|combin|inlin|simplif|mov|port|replac|reorgani"
    r"|moderni|group|unif|dedupl|translat)\w*\b",
    re.IGNORECASE,
)
TRANSFORMATION = re.compile(
    rf"{OTHER_FORM.pattern}|\b(?:shorten|mak|use|using|optimi|clean|chang)\w*\b(?!-)", re.IGNORECASE
)
# what a data class, a named tuple or a record has by itself
GENERATED_METHODS = frozenset(("__init__", "__repr__", "__eq__", "__hash__", "equals", "hashCode", "toString"))
REPAIR = re.compile(r"\b(?:fix|bug|repair|correct|wrong|error)\w*", re.IGNORECASE)  # what is wrong may be to go
GENERATING = re.compile(r"\bdata ?class|\bnamed ?tuple|\brecord\b|\battrs\b", re.IGNORECASE)
# in these the verb may stand at the end: the whole instruction says what goes
OTHER_LANGUAGES = re.compile(
    r"\b(?:entfern|lösch|streich|ersetz|supprim|enlev|retir|remplac|elimin|quit|borr|reemplaz)\w*", re.IGNORECASE
)
# "remove the check in load" is not about load
END_OF_OBJECT = re.compile(
    r"[;.!?](?:\s|\Z)|\b(?:in|from|inside|within|by|with|so that|but|then|using|to|into)\b", re.IGNORECASE
)
WORD = re.compile(r"\w+")
TOPIC = re.compile(r"\A\s*[\w/.-]+\s?:\s")  # "parser: handle an empty text" is not about the name `parser`
SUBWORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
EVERYDAY_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an the of to in on at by for from with and or not no is are be it its this that into as if then else when"
        " all every each any add remove delete change set make use fix update rename return new old file code line"
        " function method class value name variable argument parameter def self import print test please should so do",
    )
)
TERM = re.compile(r"`([^`]+)`|\"([^\"]+)\"|(\w+(?:\.\w+)+)|(\w+)")
CODE_LIKE = re.compile(r"_|[a-z][A-Z]|\d|\.")
NEEDLESS = re.compile(
    r"\b(?:need(?:ed|less)|unneeded|unnecessary|redundant|superfluous|obsolete|deprecated|überflüssig\w*|inutil\w*"
    r"|innecesari\w*)\b",
    re.IGNORECASE,
)
ALL_CODE = re.compile(r"\b(?:everything|all code)\b", re.IGNORECASE)
UNUSED = re.compile(
    r"\b(?:un-?used|dead|unbenutzt\w*|ungenutzt\w*|unbenötigt\w*|inutilisé\w*|sin usar)\b", re.IGNORECASE
)
DUPLICATE = re.compile(r"\b(?:duplicat\w*|repeated|doubl\w*|doppelt\w*)\b", re.IGNORECASE)
PRINTS = re.compile(r"\A\s*(?:print|console|log|logger|logging|echo|printf|println|fmt|System|puts|warn)\b")


def _is_call(statement: Statement) -> bool:
    return "call" in statement.kind or statement.kind in ("command", "expression_statement", "macro_invocation")


def _is_variable(statement: Statement) -> bool:
    return bool(statement.name) and not (statement.is_function or statement.is_import or _is_class(statement))


def _is_class(statement: Statement) -> bool:
    return bool(re.search(r"class|struct|interface|enum|trait|record|type_spec|impl", statement.kind))


def _is_guard(statement: Statement) -> bool:
    return "__main__" in statement.text.partition("\n")[0]


# the first letters of a kind of statement, in the words of people
KINDS: Mapping[str, Callable[[Statement], bool]] = {
    "import": lambda each: each.is_import, "include": lambda each: each.is_import,
    "function": lambda each: each.is_function, "method": lambda each: each.is_function,
    "helper": lambda each: each.is_function, "funktion": lambda each: each.is_function,
    "class": _is_class, "klasse": _is_class, "struct": _is_class, "interface": _is_class, "enum": _is_class,
    "constant": _is_variable, "variable": _is_variable, "global": _is_variable, "field": _is_variable,
    "attribute": _is_variable, "key": _is_variable, "setting": _is_variable, "entr": _is_variable,
    "propert": lambda each: _is_variable(each) or each.is_function,
    "call": _is_call, "print": lambda each: bool(PRINTS.search(each.text)),
    r"log(?:s|ging|ger)?\b": lambda each: bool(PRINTS.search(each.text)),
    "output": lambda each: bool(PRINTS.search(each.text)), "debug": lambda each: bool(PRINTS.search(each.text)),
    "guard": _is_guard, "main": _is_guard, "entry point": _is_guard, "script": _is_guard,
    "test": lambda each: each.name.lower().startswith("test"),
    "decorator": lambda each: "decorator" in each.kind, "annotation": lambda each: "annotation" in each.kind,
    "assert": lambda each: "assert" in each.text.partition("\n")[0],
    "section": lambda each: "heading" in each.kind or each.kind in ("paragraph", "list_item"),
    "paragraph": lambda each: each.kind == "paragraph", "list": lambda each: each.kind == "list_item",
    "table": lambda each: "table" in each.kind, "rule": lambda each: each.kind == "rule_set",
    "line": lambda each: "\n" not in each.text.strip(),
    "link": lambda each: "http" in each.text or "](" in each.text,
}  # fmt: skip
# which may be about several
MASS_NOUNS = ("print", r"log(?:s|ging|ger)?\b", "output", "debug", "guard", "main", "script")


@dataclass(frozen=True)
class RemovalRequest:
    """The things that an instruction asks to remove: `terms` name them, `kinds` say of what kind they are."""

    text: str
    terms: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    old: tuple[Statement, ...] = ()
    is_precise: bool = False  # it begins with the verb, and names what goes: all else stays

    @classmethod
    def parse(cls, instruction: str, old: Sequence[Statement]) -> RemovalRequest:
        """The request of an instruction about these statements; one that asks for no removal covers nothing."""
        objects = [instruction] if OTHER_LANGUAGES.search(instruction) else _objects(instruction)
        text = " ".join(objects)
        words = [term for found in TERM.findall(text) if (term := next(filter(None, found), ""))]
        names, known = {each.name for each in old}, {word for each in old for word in each.words}
        terms = [word for word in words if word in names or (CODE_LIKE.search(word) and _is_known(word, known))]
        kinds = [kind for kind in KINDS if re.search(rf"\b{kind}", text, re.IGNORECASE)]
        is_precise = bool((terms or kinds in (["import"], ["include"])) and ONLY_REMOVAL.match(instruction))
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
        return any(pattern.search(self.text) for pattern in (NEEDLESS, UNUSED, DUPLICATE, ALL_CODE))

    def _of_kind(self, gone: Sequence[Statement]) -> list[Statement]:
        """Those of a kind that is named, else those that nothing uses: what else is needless, a person has to say."""
        if not self.kinds and not self._is_general:
            return []
        found = [each for each in gone if not self.kinds or any(KINDS[kind](each) for kind in self.kinds)]
        if UNUSED.search(self.text) or (NEEDLESS.search(self.text) and not self.kinds):
            found = [each for each in found if self._is_unused(each)]
        elif DUPLICATE.search(self.text):
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
    objects, instruction = list[str](), KEEPING.sub("", instruction)
    for verb in REMOVAL.finditer(instruction):
        rest = instruction[verb.end() :]
        end = next((each for each in END_OF_OBJECT.finditer(rest) if rest[: each.start()].count("`") % 2 == 0), None)
        objects.append(rest[: end.start()] if end else rest)
    return [each for each in objects if each.strip()]


def _is_known(word: str, known: set[str]) -> bool:
    return all(part in known for part in re.findall(r"\w+", word))


def _mentions(statement: Statement, term: str) -> bool:
    """Whether a term names a statement: its name, or a part of a statement without one."""
    if statement.name and not statement.is_call:
        return term in (statement.name, *statement.name.split("."))
    return re.search(rf"(?<!\w){re.escape(term)}(?!\w)", statement.text) is not None


def content_words(instruction: str) -> set[str]:
    """The words of an instruction that may be about something in a text."""
    words = WORD.findall(TOPIC.sub("", instruction))
    return {part for word in words if word.lower().removesuffix("s") not in EVERYDAY_WORDS for part in subwords(word)}


def subwords(name: str) -> set[str]:
    """The words of a name in lower case, without the s of a plural: MAX_RETRIES is "max", "retrie"."""
    return {part.lower().removesuffix("s") for part in SUBWORD.findall(name) if len(part) > 1}
