"""Changes a constant or a default value, and adds a parameter with a default.

The name must be given its value in one place, by a literal of the same kind; a computed value is left to the model.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from tree_sitter import Node

from specchat.edit.operations import AddParameter, NameKind, SetValue
from specchat.edit.parse_instruction import VERSION, VERSION_SUFFIX
from specchat.refactoring.language_rules import PYTHON, rules_of
from specchat.refactoring.project_mentions import PYTHON_SUFFIXES, files_with
from specchat.refactoring.python_dangers import PLAIN_DECORATORS
from specchat.refactoring.python_rename import check_new_name
from specchat.refactoring.python_text import one_of
from specchat.refactoring.removals import find_area, line_start, node_of, only_definition, parsed
from specchat.refactoring.splices import Area, RefusedError, Splice, Step
from specchat.syntax.parse import COMMENT_TYPES, ancestors, find_nodes, node_text

DATA_LANGUAGES = frozenset(("json", "toml", "yaml"))
LIST = "expression_list"
# the kinds of what an instruction calls so: the default of a parameter is not called a constant
SETTINGS = {NameKind.VARIABLE, NameKind.CONSTANT, NameKind.ATTRIBUTE}
CALLED = {
    NameKind.VARIABLE: SETTINGS, NameKind.CONSTANT: SETTINGS,
    NameKind.ATTRIBUTE: {NameKind.ATTRIBUTE, NameKind.CONSTANT},
}  # fmt: skip
NUMBER = re.compile(
    r"[-+]?(?:0[xXoObB][\da-fA-F_]+|(?:\d[\d_]*)?\.?\d[\d_]*\.?(?:[eE][-+]?\d+)?)(?:[uUlLfF]{1,3}|n|[iuf]\d{1,2}|[iu]size)?"
)
# a number computed from numbers: 60 * 60, 2**20, (1 + 2) << 3
ARITHMETIC = re.compile(r"[-+*/%()<>&|~^\s\d_.xXoObBa-fA-FeE]+")
STRING = re.compile(r"(?P<prefix>[rRuUbB]{0,2})(?P<quote>[\"'])(?P<text>(?:(?!(?P=quote))[^\\\n])*)(?P=quote)")
VERSION_TEXT = re.compile(rf"{VERSION}|v\d+(?:\.\d+)*")
AMOUNT = re.compile(r"(?!0[xob])\d+(?:\.\d+)?[a-zA-Z]{1,3}")  # 5m, 10MiB: a text of YAML without quotes
NUMBERED = re.compile(rf"v?\d+(?:\.\d+)+{VERSION_SUFFIX}")
MAIN_TABLES = ([], ["project"], ["package"], ["tool.poetry"])  # whose `version` is that of the project
KEYED = ("pair", "block_mapping_pair", "flow_pair", "table", "table_array_element")
CONSTANT_NAMES: tuple[str, ...] = ("true", "false", "none")


class LiteralKind(StrEnum):
    NUMBER = "number"
    STRING = "text"
    BOOLEAN = "boolean"
    NOTHING = "nothing"
    OTHER = "expression"


def set_value(text: str, language: str, change: SetValue, area: Area) -> Step:
    """The new value as a change of the text. RefusedError says why it is not certain."""
    root = parsed(text, language)
    if language not in DATA_LANGUAGES:
        area = area.overlap(find_area(text, language, change.scope))
    fitting = CALLED.get(change.kind, {change.kind})
    places = [each for each in _places(root, language, change, area) if not change.kind or each[1] in fitting]
    if len(places) > 1 and language == "toml" and change.name == "version":
        places = [each for each in places if _keys_around(each[0])[:-1] in MAIN_TABLES]
    if len(places) != 1:
        count = f"{len(places)} places" if places else "no place"
        raise RefusedError(f"{count} in the file give{'' if len(places) > 1 else 's'} `{change.name}` a value")
    if _is_bound_again(text, root, language, change.name, area):
        raise RefusedError(f"`{change.name}` gets several values")
    value, kind = places[0]
    old, new = node_text(value).strip(), written_in(change.value, language)
    if change.old_value and written_in(change.old_value, language).strip("\"'") != old.strip("\"'"):
        raise RefusedError(f"`{change.name}` is {old}, not {change.old_value}")
    new, start = in_quotes_of(new, old), value.start_byte
    _check_kinds(change.name, old, new, language)
    splices = (Splice(start, start + len(old.encode()), new),) if new != old else ()
    return Step(f"change {kind} `{change.name}` from {old} to {new}", splices)


def _check_kinds(name: str, old: str, new: str, language: str) -> None:
    kinds = [kind_of_literal(old, language), kind_of_literal(new, language)]
    if LiteralKind.OTHER in kinds:
        raise RefusedError(f"the value of `{name}` is no constant")
    if kinds[0] != kinds[1] and LiteralKind.NOTHING not in kinds:
        raise RefusedError(f"`{name}` is a {kinds[0]}, not a {kinds[1]}")


def _places(root: Node, language: str, change: SetValue, area: Area) -> Iterator[tuple[Node, NameKind]]:
    """The values of a name in this part of the text, and what each one is the value of."""
    known, name = rules_of(language).values, change.name
    for node in find_nodes(root, language, known):
        names, values = _names_and_values(node, *known[node.type])
        if len(names) != 1 or len(values) != 1 or not area.holds(node.start_byte, node.end_byte):
            continue
        is_attribute = names[0].type == "attribute"  # of Python
        named = node_text(names[0]).rpartition(".")[2] if is_attribute else node_text(names[0]).strip("\"'")
        if language in DATA_LANGUAGES:
            path = f".{'.'.join((*_keys_around(node), named))}"
            if not path.endswith(f".{change.scope}.{name}" if change.scope else f".{name}"):
                continue
            named = name
        if named == name:
            is_parameter = "parameter" in node.type or "pattern" in node.type
            kind = NameKind.ATTRIBUTE if is_attribute else NameKind.CONSTANT
            yield values[0], NameKind.PARAMETER if is_parameter else kind


def _keys_around(node: Node) -> list[str]:
    """The keys of the tables and mappings around a pair of a data file, the outermost first."""
    keys = list[str]()
    for each in ancestors(node):
        if each.type in KEYED and each.named_children:
            keys.insert(0, node_text(each.named_children[0]).replace('"', "").replace("'", ""))
    return keys


def _names_and_values(node: Node, name_field: str, value_field: str) -> tuple[Sequence[Node], Sequence[Node]]:
    if not name_field:  # a pair in TOML
        parts = [each for each in node.named_children if each.type not in COMMENT_TYPES]
        return parts[:1], parts[1:]
    names, values = (
        [part for each in side for part in (each.named_children if each.type == LIST else [each])]
        for side in map(node.children_by_field_name, (name_field, value_field))
    )
    return names, values


def _is_bound_again(text: str, root: Node, language: str, name: str, area: Area) -> bool:
    """Whether the name gets a value in another way, too, such as by a loop or by `+=`."""
    if language in DATA_LANGUAGES:
        return False
    if language != PYTHON:
        word = rf"(?<![\w.$]){re.escape(name)}(?!\w)"
        assigned = rf"{word}(?:\s*:[^=;,()\n]+)?\s*(?:[-+*/%&|^]|<<|>>|\*\*|:)?=(?![=>])"
        return len(re.findall(rf"{assigned}|{word}\s*(?:\+\+|--)|(?:\+\+|--){word}", text)) > 1
    rebinding = rules_of(language).rebinding
    for node in find_nodes(root, PYTHON, rebinding):
        bound = node.child_by_field_name(rebinding[node.type])
        if bound is None or bound.type == "subscript" or not area.holds(node.start_byte, node.end_byte):
            continue
        is_plain = node.type == "assignment" and bound.type in ("identifier", "attribute")
        is_chained = node.parent is not None and node.parent.type == "assignment"
        if (not is_plain or is_chained) and name in re.findall(r"\w+", node_text(bound)):
            return True
    return False


def kind_of_literal(text: str, language: str) -> LiteralKind:
    true, false, nothing = rules_of(language).constants
    if text in (true, false):
        return LiteralKind.BOOLEAN
    if text and text == nothing:
        return LiteralKind.NOTHING
    is_text = STRING.fullmatch(text) or VERSION_TEXT.fullmatch(text)
    if is_text or (language == "yaml" and AMOUNT.fullmatch(text)):
        return LiteralKind.STRING
    is_number = NUMBER.fullmatch(text) or (re.search(r"\d", text) and ARITHMETIC.fullmatch(text))
    return LiteralKind.NUMBER if is_number else LiteralKind.OTHER


def written_in(value: str, language: str) -> str:
    """A value of an instruction in a language: "true" is True in Python."""
    written: Mapping[str, str] = dict(zip(CONSTANT_NAMES, rules_of(language).constants, strict=True))
    return written.get(value.lower(), value)


def in_quotes_of(value: str, old: str) -> str:
    """A text with the kind of quotes that the old one has, where it needs no escapes for that.

    A version without quotes is a text where the old one is a version in quotes.
    """
    old_match = STRING.fullmatch(old)
    is_version = old_match and all(NUMBERED.fullmatch(each) for each in (value, old_match["text"]))
    new_match = STRING.fullmatch(f"'{value}'" if is_version else value)
    if not new_match or not old_match or old_match["quote"] in new_match["text"]:
        return value
    return f"{old_match['prefix']}{old_match['quote']}{new_match['text']}{old_match['quote']}"


# Adding a parameter


def add_parameter(text: str, change: AddParameter, area: Area, path: Path) -> Step:
    """The new parameter as a change of a text of Python. RefusedError says why it is not certain."""
    check_new_name(change.function.rpartition(".")[2], change.name)
    outermost = node_of(parsed(text, PYTHON), only_definition(text, PYTHON, change.function, "function"))
    function = next(iter(find_nodes(outermost, PYTHON, ("function_definition",))))
    if not area.holds(function.start_byte, function.start_byte):
        raise RefusedError(f"`{change.function}` is not in these lines")
    if change.name in map(node_text, find_nodes(function, PYTHON, ("identifier",))):
        raise RefusedError(f"`{change.name}` is in use in `{change.function}`")
    if takes_any := find_nodes(function, PYTHON, ("dictionary_splat_pattern",)):
        others = [text, *(other for _path, other in files_with(path, PYTHON_SUFFIXES, change.name))]
        if any(one_of([change.name]).search(each) for each in others):
            raise RefusedError(f"a caller may give `{change.name}` to `{node_text(takes_any[0])}`")
    for each in outermost.children:
        decorator = node_text(each).partition("(")[0].strip("@ ").rpartition(".")[2]
        is_strange = decorator not in PLAIN_DECORATORS or "property" in decorator or decorator == "setter"
        if each.type == "decorator" and is_strange:
            raise RefusedError(f"`@{decorator}` decides which parameters `{change.function}` has")
    default = written_in(change.default, PYTHON)
    if kind_of_literal(default, PYTHON) is LiteralKind.OTHER:
        raise RefusedError(f"{default} is no constant")
    written = f"{change.name}: {change.annotation} = {default}" if change.annotation else f"{change.name}={default}"
    parameters = function.child_by_field_name("parameters")
    assert parameters is not None
    return Step(f"add the parameter `{written}` to `{change.function}`", (_splice(text.encode(), parameters, written),))


def _splice(raw: bytes, parameters: Node, written: str) -> Splice:
    """At the end, but before `**options`; on a line of its own where the others have one."""
    existing = [each for each in parameters.named_children if each.type != "comment"]
    last = existing[-1] if existing else None
    if last is None:
        return Splice(parameters.start_byte + 1, parameters.start_byte + 1, written)
    first = line_start(raw, last.start_byte)
    indent = raw[first : last.start_byte].decode()
    separator = f"\n{indent}" if not indent.strip() else " "
    if node_text(last).startswith("**"):
        return Splice(last.start_byte, last.start_byte, f"{written},{separator}")
    comma = re.match(rb"\s*,", raw[last.end_byte : parameters.end_byte])
    if comma:
        end = last.end_byte + comma.end()
        return Splice(end, end, f"{separator}{written},")
    return Splice(last.end_byte, last.end_byte, f",{separator}{written}")
