"""What a client may set, in `initializationOptions`. A value of the wrong kind is as if it had not been given."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, cast

log = logging.getLogger(__name__)

LONGEST_DEBOUNCE = 10_000


@dataclass(frozen=True)
class Settings:
    """The choices of one editor. Without `debounce_seconds` the wait follows from how fast answers are here."""

    profile: str = "code"  # who completes
    edit_profile: str = "edit"  # who rewrites
    debounce_seconds: float | None = None
    lines: int = 3  # of a suggestion that nobody asked for
    has_completion: bool = False  # offer the same as an entry of the list, for editors without grey text
    edit_command: str = ""  # the editor's own command that asks for an instruction


def read_settings(options: Any) -> Settings:
    """The settings in what a client sends."""
    given = cast("dict[str, Any]", options) if isinstance(options, dict) else {}
    default = Settings()
    debounce = _given(given, "debounceMs", int, None)
    return Settings(
        profile=_given(given, "profile", str, "") or default.profile,
        edit_profile=_given(given, "editProfile", str, "") or default.edit_profile,
        debounce_seconds=None if debounce is None else min(max(debounce, 0), LONGEST_DEBOUNCE) / 1000,
        lines=max(1, _given(given, "lines", int, default.lines)),
        has_completion=_given(given, "completion", bool, False),
        edit_command=_given(given, "editCommand", str, ""),
    )


def _given(options: dict[str, Any], name: str, kind: type, otherwise: Any) -> Any:
    value = options.get(name, otherwise)
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    if name in options:
        log.warning("%s must be of another kind than %r", name, value)
    return otherwise
