"""Every exception that specchat raises on purpose. Knows nothing else of the package.

    SpecchatError              exit code
    ├── UsageError                 2     a question that cannot be asked (empty prompt, unknown name)
    │   ├── InputError             2     a file that is missing, binary, or not what its name says
    │   └── ProfileError           2     a profile that does not say what it should
    ├── ContextError               6     the text does not fit the window that was allocated
    ├── ModelError                 7     a model that is missing, unreadable, or does not fit its partner
    │   └── CacheError             7     no room left for keys and values
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


class ContextError(SpecchatError):
    """The text is longer than the window."""

    exit_code = 6


class ModelError(SpecchatError):
    """A model that cannot be used."""

    exit_code = 7


class CacheError(ModelError):
    """No room for keys and values."""


class HostError(SpecchatError):
    """The engine process is out of reach."""

    exit_code = 7
