"""The environment of the engine process: what it takes over from the client that starts it, and why.

Everything else stays out: the engine serves every terminal and editor of a user. Knows no process and no socket.
"""

import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from specchat.host.address import TRANSPORT_VARIABLE
from specchat.paths import (
    CACHE_VARIABLE,
    CONFIG_VARIABLE,
    HOME_VARIABLE,
    MODELS_VARIABLE,
    RUNTIME_VARIABLE,
    XDG_RUNTIME_VARIABLE,
    home_folder,
)
from specchat.plugins.discovery import PLUGINS_VARIABLE

FOLDER_VARIABLES: Mapping[str, str] = {  # a relative one belongs to the client's folder
    HOME_VARIABLE: "the root of all its files",
    RUNTIME_VARIABLE: "the folder of its socket, lock, log and history",
    CONFIG_VARIABLE: "the folder of the profiles",
    CACHE_VARIABLE: "measurements, compiled kernels and what was made from GGUF files",
    MODELS_VARIABLE: "downloaded models",
    "OLLAMA_MODELS": "models of Ollama",
    "HF_HOME": "the hub's cache and token",
    "HF_HUB_CACHE": "models of the hub",
    "XDG_CACHE_HOME": "the default of HF_HOME and of the cache lies in it",
    "XDG_CONFIG_HOME": "the default of the folder of the profiles lies in it",
    "XDG_DATA_HOME": "the default of the history and the downloaded models lies in it",
    XDG_RUNTIME_VARIABLE: "the default of the folder of its socket lies in it",
    "TMPDIR": "temporary files",
}
VALUE_VARIABLES: Mapping[str, str] = {
    TRANSPORT_VARIABLE: "how clients reach it",
    "SYSTEMROOT": "libraries of Windows",
    "USERPROFILE": "the home folder on Windows",
    "TEMP": "temporary files on Windows",
    PLUGINS_VARIABLE: "the plugins that are loaded",
    "HF_TOKEN": "models that need a login",
    "HF_ENDPOINT": "a mirror of the hub",
    "HF_HUB_OFFLINE": "no downloads",
    "HTTP_PROXY": "downloads", "HTTPS_PROXY": "downloads", "ALL_PROXY": "downloads", "NO_PROXY": "downloads",
    "http_proxy": "downloads", "https_proxy": "downloads", "all_proxy": "downloads", "no_proxy": "downloads",
    "CUDA_VISIBLE_DEVICES": "the GPUs that it may use",
    "LD_LIBRARY_PATH": "where some systems keep the GPU's libraries",
    "OMP_NUM_THREADS": "the threads of a pass",
    "CXX": "the compiler of its native kernels",
    "SPECCHAT_KERNELS": "whether it uses them",
}  # fmt: skip


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
