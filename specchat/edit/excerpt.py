"""An answer with only some functions and classes of a file: they take the place of the old ones. Knows no model."""

from specchat.edit.source_text import Source
from specchat.syntax import PLAIN_TEXT, Definition, definitions

DATA_KINDS = ("key", "section", "table", "rule")  # parts of data and prose, whose names are no identity


def replace_definitions(source: Source, text: str) -> str | None:
    """The file with the definitions of an excerpt in place of its own.

    None unless the excerpt has nothing but new versions of functions and classes that the file has once, between
    lines that the file has, too.
    """
    language = source.language
    new, old = _outer_definitions(text, language), _outer_definitions(source.text, language)
    names = [each.name for each in old]
    if language == PLAIN_TEXT or not new or any(names.count(each.name) != 1 for each in new):
        return None
    if len({each.name for each in new}) < len(new) or not _has_only_known_lines_between(source.text, text, new):
        return None
    places, lines, new_lines = {each.name: each for each in old}, source.text.split("\n"), text.split("\n")
    for definition in sorted(new, key=lambda each: places[each.name].first_line, reverse=True):
        place = places[definition.name]
        lines[place.first_line - 1 : place.last_line] = new_lines[definition.first_line - 1 : definition.last_line]
    spliced = "\n".join(lines)
    return None if _nested_names(source.text, language) - _nested_names(spliced, language) else spliced


def lines_outside_definitions(text: str, language: str) -> str:
    """The lines of a text that belong to no function and no class; all lines of data and prose."""
    inside = {
        number for each in _outer_definitions(text, language) for number in range(each.first_line, each.last_line + 1)
    }
    return "\n".join(line for number, line in enumerate(text.split("\n"), 1) if number not in inside)


def _outer_definitions(text: str, language: str) -> list[Definition]:
    found = definitions(text, language)
    return [] if any(each.kind in DATA_KINDS for each in found) else [each for each in found if not each.container]


def _nested_names(text: str, language: str) -> set[str]:
    """The names of methods and inner functions: a class that lacks some of them is an excerpt itself."""
    return {each.qualified_name for each in definitions(text, language) if each.container}


def _has_only_known_lines_between(old: str, text: str, found: list[Definition]) -> bool:
    known = {line.strip() for line in old.split("\n")}
    inside = {number for each in found for number in range(each.first_line, each.last_line + 1)}
    lines = enumerate(text.split("\n"), 1)
    return all(not line.strip() or line.strip() in known for number, line in lines if number not in inside)
