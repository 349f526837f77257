"""Which operations an instruction may be, for a model to choose from: in any language, by the names and values in it.

Every name and value of an operation stands in the instruction, and the instruction has no other name of a definition
and no other code (`quotes`, numbers, snake_case, CAPITALS, calls). So the model may mistake what is to be done, but
not with what. Reads the text of the file, and no word of a human language.
"""

import builtins
import re
from collections.abc import Iterator
from dataclasses import astuple, replace
from itertools import permutations, product
from keyword import iskeyword
from pathlib import PurePath

from specchat.edit import operations as ops
from specchat.edit.edit_plan import CODE_IDENTIFIER
from specchat.edit.parse_instruction import NAME, NO_NAMES, NUMBER, THINGS, VALUE, VERSION
from specchat.edit.source_text import Source
from specchat.refactoring.language_rules import PYTHON, rules_of
from specchat.syntax.definitions import definitions
from specchat.syntax.statements import statements

MAX_CHOICES = 40
MAX_WORDS = 20  # beside the names: a longer instruction is hardly one operation
QUOTED = r"`[^`\n]+`|(?<!\w)(?P<sign>[\"'])[^\"'\n]*(?P=sign)(?!\w)"  # not the apostrophe of a word
TOKEN = re.compile(rf"(?P<code>{QUOTED}|(?<![\w.])(?:{VERSION}|{NUMBER})(?!\w))|\b{NAME}|\w+")
NEXT_SENTENCE = re.compile(r"[.!?;:]\s+\S|\n")


def possible_operations(source: Source, instruction: str) -> list[ops.Operation]:
    """Every operation that the instruction may be; none where it cannot be one, or where too many fit."""
    words = _Words(source, instruction)
    if NEXT_SENTENCE.search(instruction.strip()) or words.count > MAX_WORDS + len(words.required):
        return []
    found = list(dict.fromkeys(filter(None, map(words.completed, _candidates(words)))))
    return found if len(found) <= MAX_CHOICES else []


def _tokens(instruction: str) -> Iterator[tuple[str, bool]]:
    """The words, numbers and quoted texts, and whether each one stands as code."""
    for match in TOKEN.finditer(instruction):
        is_constant = match[0].isupper() and len(match[0]) > 1
        is_call = instruction[match.end() :].startswith("(")
        is_code = match["code"] or is_constant or is_call or CODE_IDENTIFIER.match(match[0])
        yield match[0].strip("`").removesuffix("()"), bool(is_code)


class _Words:
    """The words of an instruction, and which of them the file has."""

    def __init__(self, source: Source, instruction: str) -> None:
        self.code, self.language = source.text, source.language
        tokens = [each for each in _tokens(instruction) if each[0].strip("'\"") != PurePath(source.name).name]
        texts = list(dict.fromkeys(text for text, _is_code in tokens))
        self.count, self.values = len(tokens), [text for text in texts if re.fullmatch(VALUE, text, re.IGNORECASE)]
        names = [name for text in texts if re.fullmatch(NAME, name := text.strip("'\"")) and not iskeyword(name)]
        found = statements(self.code, self.language)
        in_file = {word for each in found for word in each.words}
        imported = {word for each in found if each.is_import for word in each.words}
        builtin = dir(builtins) if self.language == PYTHON else ()
        self.known = [name for name in names if in_file.issuperset(re.split(r"\W+", name))]
        self.imported = [name for name in self.known if name in imported]
        self.own = [name for name in self.known if name not in imported and name not in builtin]
        self.new = [each for each in names if each not in self.known and each not in NO_NAMES and "." not in each]
        named = definitions(self.code, self.language)
        self.defined = {each.name: each for each in named} | {each.qualified_name: each for each in named}
        self.required = {text for text, is_code in tokens if is_code or text in self.defined}

    def is_called(self, name: str) -> bool:
        return name != "print" and re.search(rf"(?<![\w.]){re.escape(name)}\(", self.code) is not None

    def completed(self, operation: ops.Operation) -> ops.Operation | None:
        """The operation, with the one definition that it does not use as its scope; None if it leaves out anything."""
        texts = {value for value in astuple(operation) if isinstance(value, str)}
        used = {part for text in texts for part in (text, *text.split("."))}
        used |= {"print"} if operation == ops.Remove(ops.Removable.PRINTS) else set()
        left = [name for text in self.required if not {name := text.strip("'\""), text} & used]
        left = [name for name in left if not used.issuperset(name.split("."))]
        if not left:
            return operation
        has_scope = getattr(operation, "scope", None) == "" and operation != ops.Remove(ops.Removable.UNUSED_IMPORTS)
        is_scope = has_scope and len(left) == 1 and left[0] in self.defined
        return replace(operation, scope=left[0]) if is_scope else None  # pyright: ignore[reportCallIssue]


def _candidates(words: _Words) -> Iterator[ops.Operation]:
    rules, is_python = rules_of(words.language), words.language == PYTHON
    if rules.prints:
        yield from map(ops.Remove, THINGS if is_python else (ops.Removable.PRINTS, ops.Removable.COMMENTS))
        yield from (ops.Remove(ops.Removable.CALLS, called=name) for name in words.known if words.is_called(name))
    if rules.name_types or is_python:
        for name, new in product(words.own, words.new):
            owner, _, old = name.rpartition(".")
            yield ops.Rename(old, new, scope="" if owner in ("self", "cls", "this") else owner)
    if rules.values:
        yield from _new_values(words)
    if is_python:
        yield ops.SortImports()
        yield from (ops.Remove(ops.Removable.UNUSED_IMPORTS, name) for name in words.imported)
        named = [each for each in words.own if each in words.defined]
        yield from (ops.Move(*pair, is_before=side) for pair in permutations(named, 2) for side in (True, False))
        yield from _of_definitions(words)


def _new_values(words: _Words) -> Iterator[ops.Operation]:
    pairs = [("", *words.values)] if len(words.values) == 1 else list(permutations(words.values))
    for name, (old, new) in product(words.own, pairs if 0 < len(words.values) < 3 else ()):
        if name not in words.defined:
            yield ops.SetValue(name, new, old_value=old)


def _of_definitions(words: _Words) -> Iterator[ops.Operation]:
    for name in (each for each in words.own if each in words.defined):
        definition = words.defined[name]
        function = ops.NameKind.METHOD if definition.container else ops.NameKind.FUNCTION
        kind = ops.NameKind.CLASS if definition.kind == "class" else function
        yield ops.RemoveDefinition(definition.name, kind, definition.container if "." in name else "")
        if kind is not ops.NameKind.CLASS:
            yield from (ops.AddParameter(name, *each) for each in product(words.new, words.values))
