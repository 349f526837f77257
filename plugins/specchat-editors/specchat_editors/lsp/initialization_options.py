"""The client's `initializationOptions`. A value of the wrong type is ignored."""

import logging
from dataclasses import dataclass
from typing import Any, cast

log = logging.getLogger(__name__)

MAX_DEBOUNCE_MS = 10_000


@dataclass(frozen=True)
class InitializationOptions:
    """The options of one editor. Without `debounce_seconds` the delay follows the measured response time."""

    profile: str = "code"  # for completions
    edit_profile: str = "edit"  # for rewrites
    debounce_seconds: float | None = None
    max_lines: int = 3  # of an automatic suggestion
    offers_completion_list: bool = False  # for editors without ghost text
    edit_command: str = ""  # the editor's command that prompts for an instruction


def parse_initialization_options(options: Any) -> InitializationOptions:
    values = cast("dict[str, Any]", options) if isinstance(options, dict) else {}
    default = InitializationOptions()
    debounce = _typed_option(values, "debounceMs", int, None)
    return InitializationOptions(
        profile=_typed_option(values, "profile", str, "") or default.profile,
        edit_profile=_typed_option(values, "editProfile", str, "") or default.edit_profile,
        debounce_seconds=None if debounce is None else min(max(debounce, 0), MAX_DEBOUNCE_MS) / 1000,
        max_lines=max(1, _typed_option(values, "lines", int, default.max_lines)),
        offers_completion_list=_typed_option(values, "completion", bool, False),
        edit_command=_typed_option(values, "editCommand", str, ""),
    )


def _typed_option(options: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = options.get(name, default)
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    if name in options:
        log.warning("%s has an invalid value: %r", name, value)
    return default
