"""The table of the built-in drafters: names and one line of text each, for `--variant`, pickers, docs and the registry.

A name in this table is no promise: whether a drafter can run depends on the loaded models, and the router checks that.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from specchat.own_tables import own_tables
from specchat.plugins.discovery import find_extensions
from specchat.plugins.extension import Extension


@dataclass(frozen=True)
class DrafterInfo:
    """A row of the table. An empty `needs` means that the drafter needs only the target."""

    description: str
    needs: str = ""  # the required model or head, for error messages
    builder: str = ""  # "module:function", called by drafters/registry.py
    is_auto_candidate: bool = True  # whether `auto` may choose it


AUTO, PLAIN = "auto", "plain"
DRAFTERS: Mapping[str, DrafterInfo] = {name: DrafterInfo(**row) for name, row in own_tables(__file__).items()}
DRAFTER_NAMES = tuple(DRAFTERS)


def all_drafters() -> Mapping[str, DrafterInfo]:
    return {**DRAFTERS, **{name: DrafterInfo(extension.description) for name, extension in _extensions().items()}}


def plugin_drafters() -> tuple[str, ...]:
    return tuple(_extensions())


def _extensions() -> Mapping[str, Extension]:
    return find_extensions("drafters", DRAFTERS)
