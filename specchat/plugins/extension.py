"""One extension of a plugin: a value that names an object, and imports it only when it is used."""

import re
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from specchat.errors import PluginError, SpecchatError

OBJECT_REFERENCE = re.compile(r"[\w.]+:\w+")
MAX_ERROR_CHARACTERS = 300


@dataclass(frozen=True)
class Extension:
    """A name, a description of one line, and the object: "package.module:attribute".

    `arguments` are those of a slash command, for /help. Discovery sets `plugin_name`.
    """

    name: str
    description: str
    object_reference: str
    arguments: str = ""
    plugin_name: str = ""

    def __post_init__(self) -> None:
        if not self.description.strip() or "\n" in self.description:
            raise ValueError(f"{self.name!r} needs a description of one line, not {self.description!r}")
        if not OBJECT_REFERENCE.fullmatch(self.object_reference):
            raise ValueError(f"{self.name!r} needs a 'package.module:attribute', not {self.object_reference!r}")

    def load(self) -> Any:
        """Import the object; PluginError when that fails."""
        module, _, attribute = self.object_reference.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except (Exception, SystemExit) as error:  # foreign code may fail in any way
            raise self.plugin_error(f"cannot be loaded from {self.object_reference}", error) from error

    def call(self, *arguments: object) -> Any:
        """Import and call the object. A SpecchatError passes through; any other exception becomes a PluginError."""
        function = self.load()
        try:
            return function(*arguments)
        except SpecchatError:
            raise
        except (Exception, SystemExit) as error:  # foreign code may fail in any way
            raise self.plugin_error("failed", error) from error

    def plugin_error(self, what: str, error: BaseException | None = None) -> PluginError:
        cause = f": {error_text(error)}" if error else ""
        return PluginError(f"plugin {self.plugin_name}: {self.name!r} {what}{cause}")


def error_text(error: BaseException) -> str:
    """An error in one line: "ValueError: not so"."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_ERROR_CHARACTERS] or 'no message'}"
