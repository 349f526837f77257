"""Edits that remove a docstring, or add a given one."""

from __future__ import annotations

from random import Random

from recipes.edit_example import Edit
from recipes.phrasing import instruction_phrase
from recipes.snippets import Snippet, docstrings_of, without_lines


def remove_docstring(snippet: Snippet, rng: Random) -> Edit | None:
    """The only docstring of a snippet goes, and an empty line after it too."""
    found = docstrings_of(snippet)
    if len(found) != 1:
        return None
    lines, last = snippet.lines, found[0].last
    if last < len(lines) and not lines[last].strip():
        last += 1
    instruction = instruction_phrase("remove_docstring", rng, name=found[0].name)
    return Edit("remove_docstring", instruction, snippet.text, without_lines(lines, found[0].first, last))


def add_docstring(snippet: Snippet, rng: Random) -> Edit | None:
    """A real one-line docstring, taken out and asked for by its words."""
    lines = snippet.lines
    found = [one for one in docstrings_of(snippet) if lines[one.first - 1].strip() == f'"""{one.words}"""']
    found = [one for one in found if one.words and not set(one.words) & set('`"\\')]
    if not found:
        return None
    chosen = rng.choice(found)
    before = without_lines(lines, chosen.first, chosen.last)
    instruction = instruction_phrase("add_docstring", rng, name=chosen.name, words=chosen.words)
    return Edit("add_docstring", instruction, before, snippet.text)
