"""All exceptions that specchat raises for users. Imports nothing of the package.

A message says in one line what happened, where, and what to do. The command line prints it unchanged.
"""


class SpecchatError(Exception):
    """An error that the user can act on."""

    exit_code = 1


class UsageError(SpecchatError):
    """An invalid command or request, such as an empty prompt or an unknown name."""

    exit_code = 2


class InputError(UsageError):
    """A file or text that is missing, binary or invalid."""


class ProfileError(UsageError):
    """An invalid profile, or an invalid option that overrides one."""


class EditError(SpecchatError):
    """No edit was made."""


class NoUsableEditError(EditError):
    """The answer is elided, cut off, empty or a refusal."""

    exit_code = 3


class BrokenEditError(EditError):
    """The new text does not parse, and the old one does."""

    exit_code = 4


class FileChangedError(EditError):
    """Another program changed the file in the meantime."""

    exit_code = 5


class DeclinedError(EditError):
    """The user declined the edit."""

    exit_code = 8


class NoChangeError(EditError):
    """The answer is the unchanged file."""

    exit_code = 9


class CancelledError(EditError):
    """The user pressed Ctrl-C."""

    exit_code = 130


class ContextError(SpecchatError):
    """The text is longer than the context window."""

    exit_code = 6


class ModelError(SpecchatError):
    """A model that is missing, unreadable, or does not fit its target."""

    exit_code = 7


class CacheError(ModelError):
    """No memory for the KV cache."""


class PluginError(SpecchatError):
    """A plugin does not work."""


class HostError(SpecchatError):
    """The engine process cannot be reached, or refuses."""

    exit_code = 7


def error_with_exit_code(message: str, exit_code: int) -> SpecchatError:
    """The error of a `Failed` event."""
    error = SpecchatError(message)
    error.exit_code = exit_code
    return error


def last_output_line(output: str, default: str) -> str:
    """The last line of a program's output, which mostly names the error, or `default` for empty output."""
    lines = output.strip().splitlines()
    return lines[-1][:200] if lines else default


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or its kind where it says nothing.

    >>> first_line(ValueError("no such row\nat all")), first_line(KeyError())
    ('no such row', 'KeyError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
