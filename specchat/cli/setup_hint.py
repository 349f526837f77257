"""The one line that offers `specchat setup` to a new person, once: the embedded model answers meanwhile."""

from __future__ import annotations

from pathlib import Path

from specchat.profile.profile_files import configuration_folder, user_config_file

SETUP_HINT = "the small embedded model answers; 'specchat setup' finds a better one for this machine"
HINT_SHOWN_FILE = "setup-offered"


def setup_hint(history_folder: Path) -> str:
    """The line, the first time; "" when it was said before, or when somebody has chosen already.

    `folder` is where the history lives. A disk that refuses means that nothing is offered: better never than always.
    """
    own = configuration_folder() / "profiles"
    if user_config_file().is_file() or (own.is_dir() and any(own.glob("*.toml"))):
        return ""
    try:
        history_folder.mkdir(parents=True, exist_ok=True)
        (history_folder / HINT_SHOWN_FILE).touch(exist_ok=False)
    except OSError:
        return ""
    return SETUP_HINT
