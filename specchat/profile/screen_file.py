"""`screen.toml` in the configuration folder: where it is, its switches, and the names of its tables.

The TUI reads its keys (`tui/preferences.py`); the line mode needs only whether the user wants vi keys.
"""

from pathlib import Path

from specchat.errors import ProfileError
from specchat.paths import configuration_folder
from specchat.profile.toml_lines import TomlFile, read_toml
from specchat.profile.validation import did_you_mean

NAMES = ("mouse", "vi", "theme", "keys")


def preferences_file() -> Path:
    return configuration_folder() / "screen.toml"


def read_preferences_toml(path: Path) -> TomlFile:
    """Read the file; ProfileError for a name that it cannot have."""
    file = read_toml(path, NAMES)
    for name in file.tables:
        if name not in NAMES:
            raise ProfileError(f"{file.location_of((name,))}: unknown key {name!r};{did_you_mean(name, NAMES)}")
    return file


def read_switch(file: TomlFile, name: str, *, default: bool) -> bool:
    value = file.tables.get(name, default)
    if not isinstance(value, bool):
        raise ProfileError(f"{file.location_of((name,))}: {name} must be true or false, not {value!r}")
    return value


def wants_vi_keys() -> bool:
    path = preferences_file()
    return path.is_file() and read_switch(read_preferences_toml(path), "vi", default=False)
