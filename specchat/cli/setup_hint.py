"""The line that mentions `specchat setup` to a new user, once."""

from __future__ import annotations

from pathlib import Path

from specchat.paths import configuration_folder
from specchat.profile.profile_files import user_config_file

SETUP_HINT = "a small model answers; 'specchat setup' finds a better one for this machine"
HINT_SHOWN_FILE = "setup-offered"


def setup_hint(history_folder: Path) -> str:
    """The line, the first time; "" afterwards, and where the user has a config file or profile.

    `history_folder` stores that the line was shown. If that fails, the line is not shown: better never than always.
    """
    profiles = configuration_folder() / "profiles"
    if user_config_file().is_file() or (profiles.is_dir() and any(profiles.glob("*.toml"))):
        return ""
    try:
        history_folder.mkdir(parents=True, exist_ok=True)
        (history_folder / HINT_SHOWN_FILE).touch(exist_ok=False)
    except OSError:
        return ""
    return SETUP_HINT
