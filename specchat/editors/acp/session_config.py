"""The options of a session in the editor's own menus: mode, profile, drafter.

Old editors support modes only, new ones options; the mode appears in both. Knows no conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from acp import schema

from specchat.errors import UsageError
from specchat.profile import all_drafters, load_profile, profile_names

ASK_MODE, EDIT_MODE, AUTO_MODE = "ask", "edit", "auto"
MODES: Mapping[str, str] = {
    ASK_MODE: "Answers only; changes no file.",
    EDIT_MODE: "Edits files on request, after you permit the diff.",
    AUTO_MODE: "Edits files on request, without asking for permission.",
}
PROFILE_DEFAULT = "profile"  # the option value for "as the profile says"


@dataclass(frozen=True)
class SessionConfig:
    """The options of one session. `variant` is None while the profile decides."""

    profile: str
    mode: str = EDIT_MODE
    variant: str | None = None

    def with_option(self, option: str, value: str) -> SessionConfig:
        """A copy with one option changed; UsageError for an invalid option or value."""
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

    def updates(self) -> tuple[schema.CurrentModeUpdate, schema.ConfigOptionUpdate]:
        return (
            schema.CurrentModeUpdate(session_update="current_mode_update", current_mode_id=self.mode),
            schema.ConfigOptionUpdate(session_update="config_option_update", config_options=[*self.options()]),
        )

    def modes(self) -> schema.SessionModeState:
        """The modes, for editors without session options."""
        modes = [schema.SessionMode(id=id, name=id.capitalize(), description=text) for id, text in MODES.items()]
        return schema.SessionModeState(current_mode_id=self.mode, available_modes=modes)

    def options(self) -> list[schema.SessionConfigOptionSelect]:
        profiles = dict.fromkeys(sorted({*profile_names(), self.profile}), "")
        variants = {PROFILE_DEFAULT: "As the profile says."} | {
            name: each.description for name, each in all_drafters().items()
        }
        variant = self.variant or PROFILE_DEFAULT
        return [
            _select_option("mode", "Mode", "mode", self.mode, MODES),
            _select_option("profile", "Profile", "model", self.profile, profiles),
            _select_option("variant", "Drafter", "model_config", variant, variants),
        ]


def _select_option(
    id: str, name: str, category: str, value: str, choices: Mapping[str, str]
) -> schema.SessionConfigOptionSelect:
    options = [
        schema.SessionConfigSelectOption(value=each, name=each, description=what) for each, what in choices.items()
    ]
    return schema.SessionConfigOptionSelect.model_validate(
        {"id": id, "name": name, "type": "select", "category": category, "current_value": value, "options": options}
    )


def _checked_choice(value: str, choices: Sequence[str] | Mapping[str, str], what: str) -> str:
    if value not in choices:
        raise UsageError(f"there is no {what} {value!r}; available: {', '.join(choices)}")
    return value
