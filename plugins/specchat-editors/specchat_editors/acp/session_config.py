"""What the user chooses in the editor's own menus: slash commands, mode, model, profile, drafter.

Old editors support modes only, new ones options; the mode appears in both. The commands are the shared ones that make
sense in an editor, and `/edit` and `/fix`. Those that switch the conversation are excluded: the editor does this itself
and would show the wrong one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from specchat.app.command_registry import COMMAND_PATTERN, COMMANDS, Command, conversation_commands
from specchat.errors import UsageError
from specchat.host.protocol import JsonObject
from specchat.hub.runnable_models import local_choices
from specchat.profile.drafter_names import all_drafters
from specchat.profile.keys import AGENT_OFF, AGENT_ON, AGENT_PLAN
from specchat.profile.profile_files import profile_names
from specchat.profile.settings import Settings

ASK_MODE, EDIT_MODE, AUTO_MODE, AGENT_MODE, PLAN_MODE = "ask", "edit", "auto", "agent", "plan"
MODES: Mapping[str, str] = {
    ASK_MODE: "Answers only; changes no file.",
    EDIT_MODE: "Edits files on request, after you permit the diff.",
    AUTO_MODE: "Edits files on request, without asking for permission.",
    AGENT_MODE: "Uses tools in the project, after you permit each change and command.",
    PLAN_MODE: "Uses the tools that only read, and answers with a plan.",
}
READING_MODES, TOOL_MODES = (ASK_MODE, PLAN_MODE), (AGENT_MODE, PLAN_MODE)
AGENT_OF_MODE: Mapping[str, str] = {
    ASK_MODE: AGENT_OFF,
    AGENT_MODE: AGENT_ON,
    PLAN_MODE: AGENT_PLAN,
}  # else the profile
VARIANT_KEY = "speculation.variant"
PROFILE_DEFAULT = "profile"  # the option value for "as the profile says"
EDIT = "edit"
EDIT_ARGUMENTS, EDIT_HELP = "FILE[:FIRST-LAST] INSTRUCTION", "rewrite a file by instruction; shows the diff first"
SHARED_COMMANDS = (
    "retry",
    "undo",
    "show",
    "rename",
    "profile",
    "variant",
    "temperature",
    "seed",
    "think",
    "stats",
    "why",
)
HELP = "help"
FIX, FIX_INSTRUCTION = "fix", "fix the mistakes in it"
FIX_ARGUMENTS, FIX_HELP = "FILE[:FIRST-LAST]", f"same as /{EDIT} with '{FIX_INSTRUCTION}'"
QUESTION_TEMPLATES: Mapping[str, str] = {"explain": "Explain {}.", "test": "Write tests for {}."}
ATTACHED_CODE = "the attached code"  # the default argument


@dataclass(frozen=True)
class RunnableModel:
    """A model as `models.target` names it. `weights` is the format with which it fits, "" for that of the profile."""

    name: str
    description: str
    weights: str = ""


def runnable_models() -> Iterator[RunnableModel]:
    """Every whole model on this disk that fits the memory that is free now, in the most precise format."""
    for choice in local_choices():
        if choice.fits:
            weights = f"with {choice.weights} weights" if choice.weights else ""
            described = ", ".join(filter(None, [choice.size or "size unknown", choice.quantization, weights]))
            yield RunnableModel(choice.name, described, choice.weights)


@dataclass(frozen=True)
class SessionConfig:
    """The options of one session: the mode, and what the menus show and change of the settings."""

    settings: Settings
    mode: str = EDIT_MODE
    runnable: tuple[RunnableModel, ...] = ()  # the models on this disk that can answer here

    def with_option(self, option: str, value: str) -> SessionConfig:
        """A copy with one option changed; UsageError for an invalid option or value."""
        match option:
            case "mode":
                return replace(self, mode=_checked_choice(value, MODES, "mode"))
            case "model":
                _checked_choice(value, self._models, "model")
                weights = next((each.weights for each in self.runnable if each.name == value), None)
                return self._with_changes({"models.target": value, "models.weights": weights or None})
            case "profile":
                return replace(self, settings=self.settings.with_profile(value))
            case "variant":
                _checked_choice(value, [PROFILE_DEFAULT, *all_drafters()], "variant")
                return self._with_changes({VARIANT_KEY: None if value == PROFILE_DEFAULT else value})
            case _:
                raise UsageError(f"there is no option {option!r}")

    def _with_changes(self, values: Mapping[str, str | None]) -> SessionConfig:
        return replace(self, settings=self.settings.changed(values))

    @property
    def _target(self) -> str:
        return self.settings.profile.models.target

    @property
    def _models(self) -> dict[str, str]:
        """The choices with what they are; the model in use is one of them in any case."""
        return {self._target: ""} | {each.name: each.description for each in self.runnable}

    def updates(self) -> tuple[JsonObject, JsonObject]:
        return (
            {"sessionUpdate": "current_mode_update", "currentModeId": self.mode},
            {"sessionUpdate": "config_option_update", "configOptions": self.options()},
        )

    def menus(self) -> JsonObject:
        """The options, and the modes for editors without session options."""
        modes = [{"id": id, "name": id.capitalize(), "description": text} for id, text in MODES.items()]
        return {"modes": {"currentModeId": self.mode, "availableModes": modes}, "configOptions": self.options()}

    def options(self) -> list[JsonObject]:
        profiles = dict.fromkeys(sorted({*profile_names(), self.settings.name}), "")
        variants = {PROFILE_DEFAULT: "As the profile says."} | {
            name: each.description for name, each in all_drafters().items()
        }
        variant = str(self.settings.changes.get(VARIANT_KEY, PROFILE_DEFAULT))
        return [
            _select_option("mode", "Mode", "mode", self.mode, MODES),
            _select_option("model", "Model", "model", self._target, self._models),
            _select_option("profile", "Profile", "model_config", self.settings.name, profiles),
            _select_option("variant", "Drafter", "model_config", variant, variants),
        ]


def _select_option(id: str, name: str, category: str, value: str, choices: Mapping[str, str]) -> JsonObject:
    options = [{"value": each, "name": each, "description": what} for each, what in choices.items()]
    return {
        "id": id, "name": name, "type": "select", "category": category, "currentValue": value, "options": options
    }  # fmt: skip


def _checked_choice(value: str, choices: Sequence[str] | Mapping[str, str], what: str) -> str:
    if value not in choices:
        raise UsageError(f"there is no {what} {value!r}; available: {', '.join(choices)}")
    return value


def available_commands() -> Mapping[str, Command]:
    reserved = {EDIT, FIX, *QUESTION_TEMPLATES}
    return {
        name: command
        for name, command in conversation_commands(reserved).items()
        if name in SHARED_COMMANDS or name not in COMMANDS
    }


def parse_slash_command(text: str) -> tuple[str, str] | None:
    """The name and the argument of a command; None for a question, including unknown commands."""
    match = COMMAND_PATTERN.match(text)
    if match is None or match["name"] not in {HELP, EDIT, FIX, *QUESTION_TEMPLATES, *available_commands()}:
        return None
    return match["name"], (match["argument"] or "").strip()


def help_text() -> str:
    commands = _all_commands().items()
    return "\n".join(f"- `{f'/{name} {arguments}'.rstrip()}`: {text}" for name, (arguments, text) in commands)


def commands_update() -> JsonObject:
    commands = [
        {"name": name, "description": what, **({"input": {"hint": arguments}} if arguments else {})}
        for name, (arguments, what) in _all_commands().items()
    ]
    return {"sessionUpdate": "available_commands_update", "availableCommands": commands}


def _all_commands() -> dict[str, tuple[str, str]]:
    shared = {name: (command.arguments, command.help) for name, command in available_commands().items()}
    questions = {name: ("[WHAT]", f"ask: '{text.format('…')}'") for name, text in QUESTION_TEMPLATES.items()}
    edits = {EDIT: (EDIT_ARGUMENTS, EDIT_HELP), FIX: (FIX_ARGUMENTS, FIX_HELP)}
    return {HELP: ("", COMMANDS[HELP].help), **edits, **questions, **shared}
