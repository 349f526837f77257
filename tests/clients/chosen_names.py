"""The names that a command line chooses among those of a table; one that is none ends it with a line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def add_names(parser: argparse.ArgumentParser, known: Sequence[str]) -> None:
    """Let the parser take names in `names`, by default all; the beginning of one will do where it is of one only."""

    def name(given: str) -> str:
        begun = [given] if given in known else [each for each in known if each.lower().startswith(given.lower())]
        if len(begun) != 1:
            parser.exit(2, f"{given!r} is not the beginning of one name; the names are {'; '.join(known)}\n")
        return begun[0]

    parser.add_argument("names", nargs="*", type=name, default=[*known], help="; ".join(known))
