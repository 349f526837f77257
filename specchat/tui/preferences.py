"""`screen.toml` in the configuration folder: the keys of the TUI, its theme, and the mouse.

    mouse = false              # the terminal keeps the mouse, to select text; F9 or /mouse captures it again
    vi = true                  # vi keys in the prompt of the line mode
    theme = "nord"             # the colours at the start, "auto": those of the terminal; else those chosen last

    [keys]                     # an action and its key, or several keys
    inspect = "f12"
    sessions = ["ctrl+r", "ctrl+s"]

An action is the `id` of its binding. An unknown action or key, and a key with two meanings, are errors before the
screen opens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from textual.binding import Binding, BindingType
from textual.keys import KEY_NAME_REPLACEMENTS, Keys
from textual.theme import BUILTIN_THEMES

from specchat.drawing.themes import DARK_THEME, LIGHT_THEME
from specchat.errors import ProfileError
from specchat.profile.screen_file import read_preferences_toml, read_switch
from specchat.profile.toml_lines import TomlFile
from specchat.profile.validation import did_you_mean

MODIFIERS = frozenset({"ctrl", "shift", "alt", "super", "meta", "hyper"})
NAMED_KEYS = {key.value.rpartition("+")[2] for key in Keys} | set(KEY_NAME_REPLACEMENTS.values())


@dataclass(frozen=True)
class Preferences:
    """The contents of the file. `keys` maps an action to its keys, separated by commas, for Textual's keymap."""

    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    captures_mouse: bool = True
    theme: str = ""  # "": the one that was chosen last; that of the terminal if none was


AUTO_THEME = "auto"
DEFAULT_PREFERENCES = Preferences()


def read_preferences(path: Path, binding_scopes: Sequence[Sequence[BindingType]]) -> Preferences:
    """Read the file; a missing file gives the defaults.

    `binding_scopes` has one list of bindings for each place of the focus. ProfileError names the mistake and its line.
    """
    if not path.is_file():
        return DEFAULT_PREFERENCES
    file = read_preferences_toml(path)
    keys = file.tables.get("keys", {})
    if not isinstance(keys, dict):
        raise ProfileError(f"{file.location_of(('keys',))}: [keys] must be a table of actions and their keys")
    scopes = [list(Binding.make_bindings(scope)) for scope in binding_scopes]
    known = sorted({binding.id for scope in scopes for binding in scope if binding.id})
    chosen = {str(name): _read_keys(file, str(name), value, known) for name, value in keys.items()}
    for scope in scopes:
        _check_scope(file, scope, chosen)
    read_switch(file, "vi", default=False)  # a mistake in what the line mode reads is one here, too
    mouse = read_switch(file, "mouse", default=True)
    return Preferences({name: ",".join(each) for name, each in chosen.items()}, mouse, _read_theme(file))


def theme_names() -> list[str]:
    return [AUTO_THEME, *sorted([*BUILTIN_THEMES, DARK_THEME.name, LIGHT_THEME.name])]


def unknown_theme(name: object) -> str:
    return f"{name!r} is no theme;{did_you_mean(str(name), theme_names())} available: {', '.join(theme_names())}"


def _read_theme(file: TomlFile) -> str:
    name = file.tables.get("theme", "")
    if name not in ("", *theme_names()):
        raise ProfileError(f"{file.location_of(('theme',))}: {unknown_theme(name)}")
    return name


def _read_keys(file: TomlFile, action: str, value: Any, known: Sequence[str]) -> list[str]:
    where = file.location_of(("keys", action))
    if action not in known:
        hint = did_you_mean(action, known) or f" available: {', '.join(known)}"
        raise ProfileError(f"{where}: unknown action {action!r};{hint}")
    keys = [value] if isinstance(value, str) else value
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise ProfileError(f'{where}: {action} needs a key such as "f12", or a list of them')
    for key in keys:
        *modifiers, last = key.split("+")
        if not (set(modifiers) <= MODIFIERS and (len(last) == 1 or last in NAMED_KEYS)):
            raise ProfileError(
                f'{where}: {key!r} is not a key;{did_you_mean(key, sorted(NAMED_KEYS))} try "f12" or "ctrl+s"'
            )
    return keys


def _check_scope(file: TomlFile, scope: Sequence[Binding], chosen: Mapping[str, Sequence[str]]) -> None:
    """A key with two meanings is an error if the file chose one of them; default bindings may shadow each other."""
    meanings: dict[str, str] = {}
    for binding in sorted(scope, key=lambda binding: binding.id not in chosen):
        name = binding.id or binding.description
        for key in chosen.get(binding.id or "", [binding.key]):
            other = meanings.setdefault(key, name)
            if other != name and other in chosen:
                raise ProfileError(
                    f"{file.location_of(('keys', other))}: {key!r} would mean {other} and {name}; choose another"
                )
