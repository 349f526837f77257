"""What a user may choose for a session in the editor's own menus: a mode, a profile, who guesses.

Old editors know modes only, new ones options; the mode stands in both. Knows no conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from acp.schema import (
    ConfigOptionUpdate,
    CurrentModeUpdate,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
)

from specchat.errors import UsageError
from specchat.profile import all_drafters, load_profile, profile_names

ASK_MODE, EDIT_MODE, AUTO_MODE = "ask", "edit", "auto"
MODES: Mapping[str, str] = {
    ASK_MODE: "Answers only; no file is ever touched.",
    EDIT_MODE: "Edits a file when asked to, after you have seen the diff.",
    AUTO_MODE: "Edits a file when asked to, without asking back.",
}
PROFILE_DEFAULT = "profile"  # the value that stands for "nobody has chosen"


@dataclass(frozen=True)
class SessionConfig:
    """The choices of one session. `variant` is None while the profile decides."""

    profile: str
    mode: str = EDIT_MODE
    variant: str | None = None

    def with_option(self, option: str, value: str) -> SessionConfig:
        """One of them otherwise; UsageError for what cannot be chosen."""
        match option:
            case "mode":
                return replace(self, mode=_checked_choice(value, MODES, "mode"))
            case "profile":
                load_profile(value)
                return replace(self, profile=value)
            case "variant":
                _checked_choice(value, [PROFILE_DEFAULT, *all_drafters()], "variant")
                return replace(self, variant=None if value == PROFILE_DEFAULT else value)
            case _:
                raise UsageError(f"there is no option {option!r}")

    def updates(self) -> tuple[CurrentModeUpdate, ConfigOptionUpdate]:
        """What an editor is told when one of them has changed."""
        return (
            CurrentModeUpdate(session_update="current_mode_update", current_mode_id=self.mode),
            ConfigOptionUpdate(session_update="config_option_update", config_options=[*self.options()]),
        )

    def modes(self) -> SessionModeState:
        """The modes, for editors that know no options."""
        known = [SessionMode(id=id, name=id.capitalize(), description=says) for id, says in MODES.items()]
        return SessionModeState(current_mode_id=self.mode, available_modes=known)

    def options(self) -> list[SessionConfigOptionSelect]:
        """Every option with its value and its choices."""
        profiles = dict.fromkeys(sorted({*profile_names(), self.profile}), "")
        variants = {PROFILE_DEFAULT: "As the profile says."} | {
            name: each.description for name, each in all_drafters().items()
        }
        chosen = self.variant or PROFILE_DEFAULT
        return [
            _select_option("mode", "Mode", "mode", self.mode, MODES),
            _select_option("profile", "Profile", "model", self.profile, profiles),
            _select_option("variant", "Who guesses ahead", "model_config", chosen, variants),
        ]


def _select_option(
    id: str, name: str, category: str, value: str, choices: Mapping[str, str]
) -> SessionConfigOptionSelect:
    options = [SessionConfigSelectOption(value=each, name=each, description=what) for each, what in choices.items()]
    return SessionConfigOptionSelect.model_validate(
        {"id": id, "name": name, "type": "select", "category": category, "current_value": value, "options": options}
    )


def _checked_choice(value: str, choices: Sequence[str] | Mapping[str, str], what: str) -> str:
    if value not in choices:
        raise UsageError(f"there is no {what} {value!r}; known are {', '.join(choices)}")
    return value
