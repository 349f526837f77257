"""One thing that a plugin adds. A value that names code and imports it only when it is called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from specchat.errors import PluginError, SpecchatError

WHERE = re.compile(r"[\w.]+:\w+")
LONGEST = 300  # letters of an error that are told


@dataclass(frozen=True)
class Offer:
    """A name, what it stands for in one line, and where it lies: "package.module:attribute".

    `arguments` are those of a slash command, as /help shows them. `plugin` is filled in by who asked.
    """

    name: str
    what: str
    where: str
    arguments: str = ""
    plugin: str = ""

    def __post_init__(self) -> None:
        if not self.what.strip() or "\n" in self.what:
            raise ValueError(f"{self.name!r} needs one line that says what it is, not {self.what!r}")
        if not WHERE.fullmatch(self.where):
            raise ValueError(f"{self.name!r} lies in 'package.module:attribute', not in {self.where!r}")

    def load(self) -> Any:
        """Import it; PluginError when it is not there."""
        module, _, attribute = self.where.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except Exception as error:  # code of others may fail in every way
            raise self.failure(f"cannot be loaded from {self.where}", error) from error

    def call(self, *arguments: object) -> Any:
        """Import it and call it; whatever it raises becomes a PluginError, but our own errors stay what they are."""
        function = self.load()
        try:
            return function(*arguments)
        except SpecchatError:
            raise
        except Exception as error:  # as above
            raise self.failure("failed", error) from error

    def failure(self, what: str, error: Exception | None = None) -> PluginError:
        """The error that tells whose fault it is."""
        return PluginError(f"plugin {self.plugin}: {self.name!r} {what}" + (f": {in_words(error)}" if error else ""))


def in_words(error: BaseException) -> str:
    """An error in one line: "ValueError: not so"."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:LONGEST] or 'no message'}"
