"""Phrases for edit instructions: many for each kind, with names, prints and comments to fill in."""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recipes.snippets import Snippet

TEMPLATES: dict[str, tuple[str, ...]] = {
    "rename": (
        "Rename {old} to {new}",
        "rename {old} to {new}",
        "Rename the {what} {old} to {new}",
        "Rename {what} {old} to {new}",
        "Change the name of {old} to {new}",
        "Change the name {old} to {new} everywhere",
        "Call it {new} instead of {old}",
        "{old} should be called {new}",
        "{old} -> {new}",
        "Replace the name {old} with {new}",
        "Replace {old} by {new}",
        "Use the name {new} for the {what} {old}",
        "The {what} {old} should be named {new}",
        "Give {old} the new name {new}",
        "rename the {what} {old} into {new}",
    ),
    "two_renames": (
        "Rename {old} to {new} and {old2} to {new2}",
        "rename {old} to {new}, and {old2} to {new2}",
        "{old} -> {new}, {old2} -> {new2}",
    ),
    "constant": (
        "Set {name} to {new}",
        "set {name} to {new}",
        "Change {name} to {new}",
        "Change {name} from {old} to {new}",
        "Change the value of {name} to {new}",
        "Change the value of {name} from {old} to {new}",
        "Make {name} {new} instead of {old}",
        "{name} should be {new}",
        "{name} should be {new}, not {old}",
        "Use {new} for {name}",
        "change {name} = {old} to {new}",
    ),
    "remove_docstring": (
        "Remove the docstring",
        "remove the docstring",
        "Delete the docstring",
        "Remove the docstring of {name}",
        "Drop the docstring from {name}",
        "Take out the docstring",
        "Remove docstrings",
        "No docstring, please",
    ),
    "add_docstring": (
        'Add the docstring "{words}" to {name}',
        'Add a docstring to {name}: "{words}"',
        'Document {name} with "{words}"',
        'Give {name} the docstring "{words}"',
        'add a docstring "{words}" to {name}',
    ),
    "type_hints": (
        "Add type hints",
        "add type hints",
        "Add type annotations",
        "Add type hints to {name}",
        "Annotate {name} with types",
        "Add types to the signature of {name}",
    ),
    "type_hints_told": (
        "Add type hints to {name}: {hints}",
        "Add type hints: {hints}",
        "Annotate {hints}",
        "In {name}, annotate {hints}",
    ),
    "remove_print": (
        "Remove the prints",
        "remove the prints",
        "Remove all print statements",
        "Remove the print statements",
        "Delete the print calls",
        "Remove prints",
        "Take out the debug prints",
        "Drop every print",
        "remove print()",
        "No more printing: remove the print calls",
    ),
    "remove_comments": (
        "Remove the comments",
        "remove the comments",
        "Delete all comments",
        "Strip the comments",
        "Drop every comment",
    ),
    "add_parameter": (
        "Add a parameter {name}={value} to {function}",
        "Add a parameter {name} with default {value} to {function}",
        "Give {function} a parameter {name} that defaults to {value}",
        "Add the argument {name}={value} to {function}",
        "{function} should take {name}={value} as its last parameter",
        "add parameter {name} (default {value}) to {function}",
    ),
    "sort_imports": (
        "Sort the imports",
        "sort the imports",
        "Sort imports alphabetically",
        "Put the imports in order",
        "Order the imports",
    ),
    "add_import": ("Import {name}", "Add import {name}", "Add an import of {name}", "Add `import {name}` at the top"),
    "remove_import": (
        "Remove the import of {name}",
        "Remove import {name}",
        "Do not import {name}",
        "Delete the import of {name}",
    ),
    "fix_comparison": (
        "Fix the comparison {wrong}: it should be {right}",
        "The comparison {wrong} is the wrong way round; it should be {right}",
        "Replace {wrong} with {right}",
        "Fix the flipped comparison {wrong}",
        "{wrong} should be {right}",
    ),
    "copy": (
        "Repeat this code",
        "Repeat the code unchanged",
        "Copy this exactly",
        "Write this again without any change",
        "Return the code as it is",
        "Print this file again",
    ),
}

POLITE = (
    "Please {}",
    "Could you {}?",
    "Can you {}?",
    "{} please",
    "I want you to {}",
    "Now {}",
    "{}, and change nothing else",
)
QUOTED = {"old", "new", "old2", "new2", "name", "function", "wrong", "right"}


def instruction_phrase(kind: str, rng: random.Random, **words: str) -> str:
    """One way to ask for this, names in backticks or bare, with or without a full stop."""
    mark = "`" if rng.random() < 0.6 else ""
    filled = {key: f"{mark}{word}{mark}" if key in QUOTED else word for key, word in words.items()}
    text = rng.choice(TEMPLATES[kind]).format(**filled)
    if rng.random() < 0.15:
        is_name = text.startswith(("`", "{")) or any(text.startswith(word) for word in filled.values())
        text = rng.choice(POLITE).format(text if is_name else text[0].lower() + text[1:])
    elif rng.random() < 0.5:
        text += "."
    return text


NEW_TEXTS = (
    "hello", "default", "utf-8", "ascii", "main", "test", "data", "result", "output.txt", "INFO", "warning", "error", "red",
    "green", "blue", "left", "right", "center", "https://example.org", "localhost", "admin", "guest", "unknown", "ready",
    "done", "json", "yaml", "csv", "w", "rb", "a", "first", "last", "north", "yes", "no", "monday", "%Y-%m-%d", "v2", "alpha",
)  # fmt: skip

NOUNS_AND_VERBS = (
    "item value count total index size name path file line word text data row column user order price key node"
    " left right first last start stop begin limit offset width height depth level score rate ratio factor weight"
    " mass speed time date day hour minute second month year event task job queue stack list table map graph tree"
    " edge vertex point shape color image pixel frame buffer chunk block page record field entry label title"
    " header body footer message request response reply answer question input output source target origin result"
    " error status state flag mode option config setting param token symbol letter char digit number amount sum"
    " mean median min max low high top bottom upper lower next prev current old new temp final base root parent"
    " child sibling leaf branch commit merge patch delta diff batch epoch step loss grad layer model network cache"
    " pool worker thread process lock signal handler callback hook filter mapper reducer parser lexer reader"
    " writer loader saver builder factory manager client server socket port host address url query schema view"
    " panel button window cursor mouse camera light sound melody note song album artist player game board piece"
    " move turn round match team member group role account bank card cash stock share bond fund tax rent loan debt"
    " cost profit margin budget plan goal city street house room door wall floor roof garden river lake sea island"
    " mountain forest field farm animal bird fish dog cat horse apple orange lemon grape bread cheese sugar salt"
    " water coffee tea milk paper pen book story poem chapter engine motor wheel brake gear pump valve pipe wire"
    " cable switch sensor meter gauge timer clock alarm battery charge load send fetch find make build parse check"
    " clean split join merge sort scan read write open close run stop get set add compute update create remove"
    " select apply convert format render draw print show hide wait sleep retry verify"
)
WORDS = tuple(NOUNS_AND_VERBS.split())


def new_name(old: str, taken: Sequence[str], rng: random.Random, *, is_class: bool = False) -> str:
    """A name of the same manner that the text does not use: words, old plus something, or letters at random."""
    while True:
        candidate = invent_name(old, rng, is_class or (old[:1].isupper() and not old.isupper()))
        if candidate not in taken and candidate.isidentifier() and candidate != old:
            return candidate


def invent_name(old: str, rng: random.Random, is_class: bool) -> str:
    chance = rng.random()
    words = [rng.choice(WORDS) for _ in range(rng.choice((1, 1, 2, 2, 2, 3)))]
    if chance < 0.12:
        words = ["".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(2, 9)))]
    if is_class:
        return "".join(word.capitalize() for word in words)
    if chance > 0.9 and len(old) > 2:
        stem = old.strip("_")
        return rng.choice(
            (f"{stem}_{words[0]}", f"{words[0]}_{stem}", f"new_{stem}", f"{stem}s", f"{stem}{rng.randint(2, 9)}")
        )
    if old.isupper() and len(old) > 1:
        return "_".join(words).upper()
    if chance > 0.86 and len(words) > 1:
        return words[0] + "".join(word.capitalize() for word in words[1:])
    prefix = "_" if old.startswith("_") and not old.startswith("__") else ""
    if 0.12 <= chance < 0.16:
        return rng.choice(string.ascii_lowercase)
    return prefix + "_".join(words)


PRINT_TEXTS = (
    "here", "done", "start", "end", "debug", "starting", "finished", "loop", "checking", "value is", "got", "before", "after",
    "in function", "step 1", "step 2", "ok", "reached", "result", "called", "processing", "entering", "leaving", "hello",
)  # fmt: skip


def print_line(snippet: Snippet, rng: random.Random) -> str:
    """A print as people leave them behind."""
    name = rng.choice(snippet.names)
    saying = rng.choice(PRINT_TEXTS)
    quote = rng.choice('""\'')
    return rng.choice(
        (
            f"print({name})",
            f"print({quote}{saying}{quote})",
            f"print({quote}{saying}{quote}, {name})",
            f"print({quote}{saying}:{quote}, {name})",
            f"print(f{quote}{name} = {{{name}}}{quote})",
            f"print(f{quote}{saying} {{{name}}}{quote})",
            f"print({quote}DEBUG: {saying}{quote})",
            f"print(repr({name}))",
            f"print({quote}{name}{quote}, {name})",
            "print()",
            f"print({quote}-{quote} * {rng.randint(10, 80)})",
        )
    )


def comment_line(snippet: Snippet, rng: random.Random) -> str:
    name = rng.choice(snippet.names)
    verb, noun = rng.choice(WORDS), rng.choice(WORDS)
    return rng.choice(
        (
            f"# {verb} the {noun}",
            f"# TODO: {verb} {noun}",
            f"# {name} holds the {noun}",
            f"# now {verb} it",
            f"# the {noun} is needed here",
            f"# {noun}",
            f"# see {name}",
            f"# This will {verb} the {noun}.",
        )
    )
