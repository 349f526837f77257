"""Edits of imports: sort them, add one, remove one."""

from __future__ import annotations

import re
from random import Random

from recipes.edit_example import Edit
from recipes.phrasing import instruction_phrase
from recipes.snippets import Snippet


def sort_imports(snippet: Snippet, rng: Random) -> Edit | None:
    """The first block of one-line imports, put in order; the damage is the order."""
    lines = snippet.lines
    block = [
        index
        for index, line in enumerate(lines)
        if re.match(r"(import|from) [\w.]+( import [\w, ]+)?( as \w+)?\n", line)
    ]
    if len(block) < 2 or block != list(range(block[0], block[0] + len(block))) or len(block) > 10:
        return None
    imports = [lines[index] for index in block]
    ordered = sorted(set(imports), key=lambda line: (line.startswith("from"), line))
    shuffled = ordered.copy()
    rng.shuffle(shuffled)
    head, tail = "".join(lines[: block[0]]), "".join(lines[block[-1] + 1 :])
    return Edit(
        "sort_imports",
        instruction_phrase("sort_imports", rng),
        head + "".join(shuffled) + tail,
        head + "".join(ordered) + tail,
    )


def change_import(snippet: Snippet, rng: Random) -> Edit | None:
    """One plain import removed or added at the top of the block, by name."""
    lines = snippet.lines
    block = [index for index, line in enumerate(lines) if re.match(r"import \w+\n", line)]
    if not block:
        return None
    index = rng.choice(block)
    name = lines[index].split()[1]
    rest = "".join(lines[:index] + lines[index + 1 :])
    if not rest.strip():
        return None
    if index == 0 and rng.random() < 0.5:
        return Edit("add_import", instruction_phrase("add_import", rng, name=name), rest, snippet.text)
    return Edit("remove_import", instruction_phrase("remove_import", rng, name=name), snippet.text, rest)
