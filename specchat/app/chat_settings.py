"""The profile keys that a user may change during a chat: a command for each, `/settings` for all, and `/model`.

A change holds from the next question on, is stored with the conversation, and goes along to new ones. `default` gives a
key back to the options and the profile, and so does the choice of a profile. Values are checked as those of files are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specchat.app.chat_state import ChatState, CommandResult
from specchat.chat.router import check_available
from specchat.errors import ModelError, ProfileError, UsageError
from specchat.history.history_reader import StoredTurn
from specchat.hub.local_models import LocatedModel, locate_model
from specchat.hub.machine import Device, detect_machine
from specchat.hub.memory_plan import fitting_format, weight_bytes
from specchat.hub.recommend import format_gib
from specchat.hub.runnable_models import FITTING_TOKENS, STORED_FORMAT, LocalChoice, local_choices
from specchat.own_tables import own_tables
from specchat.profile.drafter_names import all_drafters
from specchat.profile.keys import Profile
from specchat.profile.validation import key_info, key_types

DEFAULT, VARIANT = "default", "variant"
LOCAL_MODEL = {  # the keys of a model of this disk, beside those that choose it
    "models.draft": "auto", "models.heads": ["auto"], "models.backend": "builtin", "models.url": "",
    "models.api_key_file": "",
}  # fmt: skip
MAX_SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class ChatSetting:
    """A command and the key that it sets."""

    name: str
    key: str
    arguments: str = "[NUMBER|default]"

    @property
    def help(self) -> str:
        table, _, name = self.key.partition(".")
        return key_info(key_types(Profile)[table])[name].summary

    def parse(self, text: str) -> Any:
        """The value as the key has it; UsageError for a text of another kind."""
        table, _, name = self.key.partition(".")
        kind: Callable[[str], Any] = key_types(key_types(Profile)[table])[name]
        try:
            return kind(text)
        except ValueError:
            expected = "a whole number" if kind is int else "a number"
            raise UsageError(f"/{self.name} needs {expected}, or '{DEFAULT}', not {text!r}") from None


COMMAND_TABLES: Mapping[str, Mapping[str, Any]] = own_tables(__file__, "commands.toml")
CHAT_SETTINGS: Mapping[str, ChatSetting] = {
    name: ChatSetting(name, **entry) for name, entry in COMMAND_TABLES["commands"].items() if "key" in entry
}


def run_setting(setting: ChatSetting, chat: ChatState, argument: str) -> CommandResult:
    """Show, change or give back one key."""
    conversation = chat.conversation
    if not argument:
        value, what = conversation.settings.values[setting.key], setting.arguments.strip("[]").partition("|")[0]
        ways = f"/{setting.name} {what} changes it, /{setting.name} {DEFAULT} gives it back to the profile"
        return CommandResult(f"{setting.name}: {_shown(value)}; {ways}")
    is_default = argument == DEFAULT
    value = None if is_default else setting.parse(argument)
    if setting.name == VARIANT and not is_default:
        _check_drafter(chat, argument)
    conversation.change({setting.key: value})
    shown = _shown(conversation.settings.values[setting.key])
    return CommandResult(f"{setting.name}: {shown}{', as the profile says' if is_default else ''}")


def show_settings(chat: ChatState, _argument: str) -> CommandResult:
    values = chat.conversation.settings.values
    width = max(map(len, CHAT_SETTINGS)) + 3
    lines = [f"{f'/{name}':{width}}{_shown(values.get(setting.key))}" for name, setting in CHAT_SETTINGS.items()]
    return CommandResult("\n".join([f"{'/model':{width}}{chat.conversation.model}", *lines]))


def _check_drafter(chat: ChatState, name: str) -> None:
    """ProfileError for a drafter that is unknown, or that cannot run with the loaded models."""
    listed = chat.conversation.call("list_variants")
    if name not in all_drafters() or (listed["is_loaded"] and name not in listed["variants"]):
        check_available(name, frozenset(listed["variants"]))


def switch_model(chat: ChatState, name: str) -> CommandResult:
    """Continue with another model of this disk, which reads the conversation again; refused where it does not fit."""
    conversation = chat.conversation
    if not name:
        return CommandResult("\n".join(_model_lines(conversation.model)))
    if name == DEFAULT:
        conversation.change(dict.fromkeys(("models.target", "models.weights", *LOCAL_MODEL)))
        return CommandResult(f"model {conversation.model}, as the profile says")
    located = locate_model(name)
    if located.folder is None:
        raise ModelError(f"{located.name} is not on this disk; 'specchat models pull {located.name}' downloads it")
    _check_window(located, conversation.turns(), conversation.model)
    held_bytes = sum(int(size) for size in conversation.call("stats")["memory_bytes"].values())
    weights = _fitting_weights(located, held_bytes, conversation.model)
    conversation.change({**LOCAL_MODEL, "models.target": located.name, "models.weights": weights})
    reads = "; it reads the conversation again with the next question" if conversation.turns() else ""
    return CommandResult(f"model {located.name}{f' with {weights} weights' if weights else ''}{reads}")


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "not set"
    text = f"{value:g}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[: MAX_SHOWN_CHARACTERS - 3]}..."


def _model_lines(current: str) -> Iterator[str]:
    choices = list(local_choices())
    width = max((len(each.name) for each in choices), default=0)
    for each in choices:
        yield f"{'*' if each.name == current else ' '} {each.name:{width}}  {choice_text(each)}"
    yield "/model NAME continues with another one; 'specchat models pull NAME' downloads more"


def choice_text(choice: LocalChoice) -> str:
    """For example: 257 MiB, bf16, fits, drafts with eagle3."""
    return ", ".join(filter(None, [choice.size, choice.quantization, choice.fit, choice.drafters]))


def _check_window(located: LocatedModel, turns: Sequence[StoredTurn], current: str) -> None:
    totals = turns[-1].totals if turns else {}
    tokens = int(totals.get("prompt_tokens", 0)) + int(totals.get("completion_tokens", 0))
    window = located.architecture.max_position_embeddings or tokens
    if tokens > window:
        raise ProfileError(
            f"{located.name} reads at most {window:,} tokens and this conversation has {tokens:,}; the model stays "
            f"{current}; /compact shortens the conversation"
        )


def _fitting_weights(located: LocatedModel, held_bytes: int, current: str) -> str | None:
    """The format with which it fits when the models of the engine process have gone; None for that of the profile."""
    device: Device = detect_machine().best_device
    free_bytes = device.free_bytes + held_bytes
    fits = fitting_format(located.architecture, free_bytes, FITTING_TOKENS, kind=device.kind)
    if fits is None:
        needed = format_gib(weight_bytes(located.architecture, "nf4-double"))
        raise ModelError(
            f"{located.name} does not fit: its weights alone take {needed} in 4 bits, and {format_gib(free_bytes)} are "
            f"free; the model stays {current}"
        )
    return None if fits == STORED_FORMAT else fits
