"""One thing that a plugin adds. A value that names code and imports it only when it is called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from specchat.errors import PluginError, SpecchatError

OBJECT_REFERENCE = re.compile(r"[\w.]+:\w+")
MAX_ERROR_CHARACTERS = 300  # letters of an error that are told


@dataclass(frozen=True)
class Extension:
    """A name, what it stands for in one line, and where it lies: "package.module:attribute".

    `arguments` are those of a slash command, as /help shows them. `plugin` is filled in by who asked.
    """

    name: str
    description: str
    object_reference: str
    arguments: str = ""
    plugin_name: str = ""

    def __post_init__(self) -> None:
        if not self.description.strip() or "\n" in self.description:
            raise ValueError(f"{self.name!r} needs one line that says what it is, not {self.description!r}")
        if not OBJECT_REFERENCE.fullmatch(self.object_reference):
            raise ValueError(f"{self.name!r} lies in 'package.module:attribute', not in {self.object_reference!r}")

    def load(self) -> Any:
        """Import it; PluginError when it is not there."""
        module, _, attribute = self.object_reference.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except Exception as error:  # code of others may fail in every way
            raise self.plugin_error(f"cannot be loaded from {self.object_reference}", error) from error

    def call(self, *arguments: object) -> Any:
        """Import it and call it; whatever it raises becomes a PluginError, but our own errors stay what they are."""
        function = self.load()
        try:
            return function(*arguments)
        except SpecchatError:
            raise
        except Exception as error:  # as above
            raise self.plugin_error("failed", error) from error

    def plugin_error(self, what: str, error: Exception | None = None) -> PluginError:
        """The error that tells whose fault it is."""
        return PluginError(f"plugin {self.plugin_name}: {self.name!r} {what}" + (f": {error_text(error)}" if error else ""))


def error_text(error: BaseException) -> str:
    """An error in one line: "ValueError: not so"."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_ERROR_CHARACTERS] or 'no message'}"
