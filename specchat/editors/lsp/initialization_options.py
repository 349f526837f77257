"""What a client may set, in `initializationOptions`. A value of the wrong kind is as if it had not been given."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, cast

log = logging.getLogger(__name__)

MAX_DEBOUNCE_MS = 10_000


@dataclass(frozen=True)
class InitializationOptions:
    """The choices of one editor. Without `debounce_seconds` the wait follows from how fast answers are here."""

    profile: str = "code"  # who completes
    edit_profile: str = "edit"  # who rewrites
    debounce_seconds: float | None = None
    max_lines: int = 3  # of a suggestion that nobody asked for
    offers_completion_list: bool = False  # offer the same as an entry of the list, for editors without grey text
    edit_command: str = ""  # the editor's own command that asks for an instruction


def parse_initialization_options(options: Any) -> InitializationOptions:
    """The settings in what a client sends."""
    given = cast("dict[str, Any]", options) if isinstance(options, dict) else {}
    default = InitializationOptions()
    debounce = _typed_option(given, "debounceMs", int, None)
    return InitializationOptions(
        profile=_typed_option(given, "profile", str, "") or default.profile,
        edit_profile=_typed_option(given, "editProfile", str, "") or default.edit_profile,
        debounce_seconds=None if debounce is None else min(max(debounce, 0), MAX_DEBOUNCE_MS) / 1000,
        max_lines=max(1, _typed_option(given, "lines", int, default.max_lines)),
        offers_completion_list=_typed_option(given, "completion", bool, False),
        edit_command=_typed_option(given, "editCommand", str, ""),
    )


def _typed_option(options: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = options.get(name, default)
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    if name in options:
        log.warning("%s must be of another kind than %r", name, value)
    return default
