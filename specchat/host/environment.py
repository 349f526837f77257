"""The environment of the engine process: what it takes over from the client that starts it, and why.

Everything else stays out: the engine serves every terminal and editor of a user. Knows no process and no socket.
"""

import json
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from specchat.paths import home_folder

# The names and why: "folders", of which a relative one belongs to the client's folder, and other "values".
VARIABLES: Mapping[str, Mapping[str, str]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
FOLDER_VARIABLES, VALUE_VARIABLES = VARIABLES["folders"], VARIABLES["values"]


def inherited_variables() -> dict[str, str]:
    """The variables of this process that an engine takes over."""
    environment = os.environ
    folders = {name: str(Path(environment[name]).absolute()) for name in FOLDER_VARIABLES if environment.get(name)}
    return folders | {name: environment[name] for name in VALUE_VARIABLES if name in environment}


def host_environment() -> dict[str, str]:
    """The whole environment of an engine that this process starts. It formats no dates, so its locale is fixed."""
    path = os.environ.get("PATH") or os.defpath
    return {"HOME": str(home_folder()), "PATH": path, "LANG": "C.UTF-8", **inherited_variables()}


def variable_digests() -> dict[str, str]:
    """A digest of each inherited variable: comparable, and without its value, which may be a token."""
    values = inherited_variables().items()
    return {name: blake2b(value.encode(errors="surrogateescape"), digest_size=8).hexdigest() for name, value in values}


def differing_variables(digests: Mapping[str, str]) -> list[str]:
    """The variables that differ between this process and the one with these digests."""
    mine = variable_digests()
    return sorted(name for name in mine.keys() | digests.keys() if mine.get(name) != digests.get(name))
