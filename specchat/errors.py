"""Every exception that specchat raises on purpose. Knows nothing else of the package.

    SpecchatError              exit code
    ├── UsageError                 2     a question that cannot be asked (empty prompt, unknown name)
    │   ├── InputError             2     a file that is missing, binary, or not what its name says
    │   └── ProfileError           2     a profile that does not say what it should
    ├── EditError                  1     a rewritten file that cannot be taken
    │   ├── NoUsableEditError      3     the answer is elided, cut off, empty or a refusal
    │   ├── BrokenEditError        4     the new text does not parse, the old one did
    │   ├── FileChangedError       5     somebody else wrote the file meanwhile
    │   ├── NotTakenError          8     the user said no
    │   ├── NoChangeError          9     the model says that nothing needs to change
    │   └── CancelledError       130     somebody pressed Ctrl-C
    ├── ContextError               6     the text does not fit the window that was allocated
    ├── ModelError                 7     a model that is missing, unreadable, or does not fit its partner
    │   └── CacheError             7     no room left for keys and values
    ├── DistrustError             10     guesses changed a text
    ├── PluginError                1     what somebody else's package adds does not work
    └── HostError                  7     the engine process cannot be reached or refuses

A message says what happened, where, and what to do, in one line: the edge prints it as it stands.
"""

from __future__ import annotations


class SpecchatError(Exception):
    """Something a person can act on."""

    exit_code = 1


class UsageError(SpecchatError):
    """The command or request makes no sense as it stands."""

    exit_code = 2


class InputError(UsageError):
    """A file or text that cannot be used."""


class ProfileError(UsageError):
    """A profile, or an option that overrides one, that cannot be used."""


class EditError(SpecchatError):
    """No edit was made."""


class NoUsableEditError(EditError):
    """The answer is not a file."""

    exit_code = 3


class BrokenEditError(EditError):
    """The new text does not parse."""

    exit_code = 4


class FileChangedError(EditError):
    """The file is not what it was."""

    exit_code = 5


class DeclinedError(EditError):
    """The user wants none of it."""

    exit_code = 8


class NoChangeError(EditError):
    """The answer is the file as it was."""

    exit_code = 9


class CancelledError(EditError):
    """Somebody pressed Ctrl-C."""

    exit_code = 130


class ContextError(SpecchatError):
    """The text is longer than the window."""

    exit_code = 6


class ModelError(SpecchatError):
    """A model that cannot be used."""

    exit_code = 7


class CacheError(ModelError):
    """No room for keys and values."""


class NotLosslessError(SpecchatError):
    """The engine broke its law on this machine."""

    exit_code = 10


class PluginError(SpecchatError):
    """Something that a plugin brought does not do what it should."""


class HostError(SpecchatError):
    """The engine process is out of reach."""

    exit_code = 7


def error_with_exit_code(message: str, exit_code: int) -> SpecchatError:
    """The error that a `Failed` event tells of."""
    error = SpecchatError(message)
    error.exit_code = exit_code
    return error


def last_output_line(output: str, default: str) -> str:
    """Where another program says what went wrong: the last line of its words, or `otherwise` when it had none."""
    lines = output.strip().splitlines()
    return lines[-1][:200] if lines else default
