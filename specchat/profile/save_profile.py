"""Save a profile that a command made among the user's profiles, after validating it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from specchat.errors import InputError, ProfileError
from specchat.paths import configuration_folder
from specchat.profile.profile_files import load_profile

PROFILE_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


def save_profile(name: str, text: str, *, overwrites: bool = False) -> Path:
    """Write the profile. ProfileError when it is not valid or exists already."""
    if not PROFILE_NAME.fullmatch(name) or name.endswith(".toml"):
        raise ProfileError(f"{name!r}: not a name of letters, digits, dots and dashes")
    path = configuration_folder() / "profiles" / f"{name}.toml"
    if path.exists() and not overwrites:
        raise ProfileError(f"{path} already exists; choose another name, remove it, or use --force if there is one")
    partial = path.with_name(f"{name}.{os.getpid()}.toml")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        try:
            load_profile(str(partial))
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    return path
