"""The folders of all files that specchat keeps, and how files are read and written there.

    SPECCHAT_CONFIG, SPECCHAT_CACHE, SPECCHAT_MODELS, SPECCHAT_RUNTIME   one folder each
    SPECCHAT_HOME                                                        the root of all of them
    XDG_CONFIG_HOME, XDG_CACHE_HOME, XDG_DATA_HOME, XDG_RUNTIME_DIR      the system's own variables
    the home folder from the user database                               else; on Windows, what `platformdirs` says

The first one that is set decides. HOME has no effect, because the engine process does not inherit it; `platformdirs`
follows it on Linux and macOS, so there the folders, which are the same, are named here. Imports nothing heavy.
"""

import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from secrets import token_hex
from typing import Any

HOME_VARIABLE = "SPECCHAT_HOME"
CONFIG_VARIABLE = "SPECCHAT_CONFIG"
CACHE_VARIABLE = "SPECCHAT_CACHE"
MODELS_VARIABLE = "SPECCHAT_MODELS"
RUNTIME_VARIABLE = "SPECCHAT_RUNTIME"
KV_FILE_ENDING = ".kv"
HUB_PREFIX = "hf:"
XDG_RUNTIME_VARIABLE = "XDG_RUNTIME_DIR"
STARTER_DRAFTERS = Path(__file__).parent / "starter_heads"  # heads and a draft model that are trained for the starter


@dataclass(frozen=True)
class _StateKind:
    """A kind of state: its name in SPECCHAT_HOME, the variable of the system, and where it lies in the home folder."""

    name: str
    system_variable: str
    home_path: str
    darwin_home_path: str


_CONFIG = _StateKind("config", "XDG_CONFIG_HOME", ".config", "Library/Application Support")
_CACHE = _StateKind("cache", "XDG_CACHE_HOME", ".cache", "Library/Caches")
_DATA = _StateKind("data", "XDG_DATA_HOME", ".local/share", "Library/Application Support")


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one when there is no such file, or something else in it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def write_atomically(path: Path, content: str | bytes, mode: int = 0o666) -> None:
    """Write a file, and its folder if it is missing; a reader sees the old content or the new one.

    It has this mode, less the umask, from its first byte on.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        partial.touch(mode)
        with partial.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def remembered_file(kind: str, identity: object, folder: Path | None = None) -> Path:
    """Where the cache has what was found out about this; its name is a hash. `folder` replaces the user's cache."""
    digest = sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return (folder or cache_folder()) / kind / f"{digest[:24]}.json"


def remember(path: Path, content: object) -> None:
    """Write JSON; where the disk refuses, it is found out again."""
    with suppress(OSError):
        write_atomically(path, json.dumps(content))


def isolated_home() -> Path | None:
    """The root of all state that `SPECCHAT_HOME` names; None when it is not set."""
    return folder_of_variable(HOME_VARIABLE)


def folder_of_variable(name: str) -> Path | None:
    """The folder that a variable names; None when it is not set."""
    return Path(value).expanduser().absolute() if (value := os.environ.get(name)) else None


def configuration_folder() -> Path:
    """The folder of profiles and preferences."""
    return folder_of_variable(CONFIG_VARIABLE) or _state_folder(_CONFIG)


def cache_folder() -> Path:
    """The folder of measurements and compiled code."""
    if isolated_home() is None and (runtime := folder_of_variable(RUNTIME_VARIABLE)):
        return folder_of_variable(CACHE_VARIABLE) or runtime
    return folder_of_variable(CACHE_VARIABLE) or _state_folder(_CACHE)


def _state_folder(kind: _StateKind) -> Path:
    if home := isolated_home():
        return home / kind.name
    system = os.environ.get(kind.system_variable, "")
    if Path(system).is_absolute():  # the specification: a relative path is ignored
        return Path(system) / "specchat"
    return _usual_folder(kind)


def _usual_folder(kind: _StateKind) -> Path:
    if sys.platform == "win32":
        from platformdirs.windows import Windows

        folders = Windows("specchat", appauthor=False)
        return {_CONFIG: folders.user_config_path, _CACHE: folders.user_cache_path}.get(kind, folders.user_data_path)
    return home_folder() / (kind.darwin_home_path if sys.platform == "darwin" else kind.home_path) / "specchat"


def home_folder() -> Path:
    """The home folder from the user database; the environment has no effect."""
    try:
        pwd: Any = import_module("pwd")
    except ImportError:  # Windows
        return Path.home()
    try:
        return Path(pwd.getpwuid(user_id()).pw_dir)
    except KeyError:  # a container user without an entry
        return Path("/")


def user_id() -> int | None:
    """The user of this process; None on Windows, where the folders of a user are closed to others by their place."""
    return os.getuid() if hasattr(os, "getuid") else None


def belongs_to_user(status: os.stat_result) -> bool:
    return user_id() in (None, status.st_uid)


def data_folder() -> Path:
    """The folder of the history and of downloaded models."""
    return _state_folder(_DATA)


def kv_folder() -> Path:
    """The folder of KV caches, with which conversations continue."""
    return cache_folder() / "kv"


def kept_weights_folder() -> Path:
    """The folder of weights that were quantized once."""
    return cache_folder() / "weights"


def kept_weights_prefix(source: Path) -> str:
    """What the folders of such weights of a model, which is in the folder `source`, are called before its form."""
    return f"{sha256(str(source.absolute()).encode()).hexdigest()[:16]}."


def kept_weights_of(source: Path) -> tuple[Path, ...]:
    """These folders."""
    return tuple(kept_weights_folder().glob(f"{kept_weights_prefix(source)}*"))


def remove_kv_files(conversation: str) -> None:
    """Remove what is left of a conversation that the user deletes."""
    for path in kv_folder().glob(f"{conversation}.*{KV_FILE_ENDING}"):
        remove_kv_file(path)


def remove_kv_file(path: Path) -> None:
    """Remove a file, a link or a pipe. A folder in its place is not ours, and moves aside; what cannot be, stays."""
    with suppress(OSError):
        is_folder = path.is_dir() and not path.is_symlink()
        path.rename(f"{path}.{token_hex(8)}") if is_folder else path.unlink(missing_ok=True)


def models_folder() -> Path:
    """The folder of models that do not come from a hub, which has its own cache."""
    if folder := folder_of_variable(MODELS_VARIABLE):
        return folder
    runtime = None if isolated_home() else folder_of_variable(RUNTIME_VARIABLE)
    return (runtime or data_folder()) / "models"


def state_folders() -> tuple[Path, ...]:
    """All folders that an engine reads and writes, except that of its socket."""
    return configuration_folder(), cache_folder(), models_folder(), data_folder()


def usual_state_folders() -> tuple[Path, ...]:
    """The same where no variable is set."""
    data = _usual_folder(_DATA)
    return _usual_folder(_CONFIG), _usual_folder(_CACHE), data / "models", data


def hub_id(source: str) -> str:
    """`org/name` of a source that may say `hf:` before it, and one GGUF file of it after a colon."""
    return source.removeprefix(HUB_PREFIX).partition(":")[0]


def is_hub_id(source: str) -> bool:
    """Whether a source of a model is written as org/name, and names no path."""
    return hub_id(source).count("/") == 1 and not source.startswith((".", "/", "~", "embedded/"))


def hub_cache_folder() -> Path:
    """The cache folder of huggingface_hub, whose import would take longer than a whole command."""
    if folder := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(folder).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    return Path(home).expanduser() / "hub"


def hub_repo_folder(source: str) -> Path:
    """Where that cache has everything of a hub id."""
    return hub_cache_folder() / f"models--{hub_id(source).replace('/', '--')}"


def hub_snapshot(source: str) -> Path | None:
    """The folder with the files of a hub id in that cache; None for none, and for the name of one GGUF file of it."""
    is_file = ":" in source.removeprefix(HUB_PREFIX)
    return None if is_file else next(iter(hub_snapshots(source)), None)


def hub_snapshots(source: str) -> list[Path]:
    """All its folders in that cache: that of its main branch first, then the newest."""
    folder = hub_repo_folder(source)
    main = folder / "refs" / "main"
    try:
        commit = main.read_text(encoding="utf-8").strip() if main.is_file() else ""
        snapshots = [(path.name == commit, path.stat().st_mtime, path) for path in (folder / "snapshots").iterdir()]
    except OSError:
        return []
    return [path for *_, path in sorted(snapshots, reverse=True)]


def local_model_folder(source: str) -> Path | None:
    """The folder of a model that is a folder, or a hub id on this disk; None for any other source."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    return hub_snapshot(source) if is_hub_id(source) else None


def read_text_config(folder: Path) -> dict[str, Any]:
    """What the config.json of a model says of its language model; empty when there is none."""
    config = read_json_object(folder / "config.json")
    text = config.get("text_config")
    return text if isinstance(text, dict) else config


def starter_folder() -> Path:
    """The folder of the starter model, which the package index has, whether it is there or not."""
    return models_folder() / "starter"


def starter_file() -> Path | None:
    """The GGUF file of the starter model; None when it is not on this disk."""
    return next(starter_folder().glob("*.gguf"), None)
