"""Profiles: what somebody prefers, as one TOML file. Checked once, here, and trusted everywhere else.

    shipped profiles   profiles/ of a source checkout, or the copy inside an installed package
    own profiles       profiles/ in the configuration folder of the user; SPECCHAT_CONFIG names another folder
    any file           given by its path

An own profile hides a shipped one of the same name and may still extend it. Knows no model and imports no torch.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from specchat.errors import ProfileError

VARIANTS = ("auto", "plain", "lookup", "draft")
DTYPES = ("auto", "float32", "bfloat16")
DEVICES = ("auto", "cpu", "cuda")
WIDEST_BUDGET = 128  # guesses; a pass over more rows costs more than it can bring
LARGEST_SEED = 2**63 - 1
LONGEST_CHAIN = 8  # profiles that extend one another
TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes"}


@dataclass(frozen=True)
class Models:
    """Who writes and who guesses: `embedded`, a folder, or a hub id. An empty draft means none."""

    target: str = "embedded"
    draft: str = "embedded"
    dtype: str = "auto"
    device: str = "auto"

    def __post_init__(self) -> None:
        if not self.target.strip():
            raise ProfileError("models.target must not be empty; give 'embedded', a folder, or a hub id like org/name")
        _check_choice("models.dtype", self.dtype, DTYPES)
        _check_choice("models.device", self.device, DEVICES)


@dataclass(frozen=True)
class Limits:
    """How much a session may read and write, in tokens."""

    context: int = 8192
    answer: int = 1024

    def __post_init__(self) -> None:
        _check_range("limits.context", self.context, 16, 2**24)
        _check_range("limits.answer", self.answer, 1, 2**24)
        if self.answer >= self.context:
            raise ProfileError(f"limits.answer ({self.answer}) must be below limits.context ({self.context})")


@dataclass(frozen=True)
class Sampling:
    """How a token is picked. Temperature 0 takes the likeliest; each turn draws a seed of its own unless one is set."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        _check_range("sampling.temperature", self.temperature, 0, 5)
        _check_range("sampling.top_k", self.top_k, 0, 2**24)
        _check_range("sampling.min_p", self.min_p, 0, 1)
        _check_range("sampling.repetition_penalty", self.repetition_penalty, 0.5, 5)
        if not 0 < self.top_p <= 1:
            raise ProfileError(f"sampling.top_p must be above 0 and at most 1, not {self.top_p}")
        if self.seed is not None:
            _check_range("sampling.seed", self.seed, 0, LARGEST_SEED)


@dataclass(frozen=True)
class Speculation:
    """Who guesses, at most how many tokens a step, and whether the text must be bit-equal in every dtype."""

    variant: str = "auto"
    budget: int = 16
    exact: bool = False

    def __post_init__(self) -> None:
        _check_choice("speculation.variant", self.variant, VARIANTS)
        _check_range("speculation.budget", self.budget, 1, WIDEST_BUDGET)


@dataclass(frozen=True)
class Prompt:
    """What the model is told before the first question."""

    system: str = ""


@dataclass(frozen=True)
class Profile:
    """One way to use specchat. Equal profiles mean equal models, limits and sampling."""

    name: str = "default"
    description: str = ""
    models: Models = field(default_factory=Models)
    limits: Limits = field(default_factory=Limits)
    sampling: Sampling = field(default_factory=Sampling)
    speculation: Speculation = field(default_factory=Speculation)
    prompt: Prompt = field(default_factory=Prompt)

    def override(self, values: Mapping[str, object]) -> Profile:
        """A profile with some keys changed, checked as a file would be; a None leaves its key alone.

        >>> Profile().override({"sampling.temperature": 0.7, "models.draft": None}).sampling.temperature
        0.7
        """
        tables: dict[str, Any] = {}
        for key, value in values.items():
            if value is not None:
                table, _, name = key.rpartition(".")
                (tables.setdefault(table, {}) if table else tables)[name] = value
        return _applied(self, tables, "options")


def load_profile(name: str) -> Profile:
    """The profile with this name, or the one in this file."""
    return _load(_find(name, frozenset()))


def profile_names() -> tuple[str, ...]:
    """Every profile that can be asked for by its name."""
    return tuple(sorted({file.stem for folder in _folders() for file in folder.glob("*.toml")}))


def configuration_folder() -> Path:
    """Where the user's own files are."""
    chosen = os.environ.get("SPECCHAT_CONFIG")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_config_path

    return user_config_path("specchat", appauthor=False)


def _folders() -> tuple[Path, ...]:
    package = Path(__file__).parent
    return (configuration_folder() / "profiles", package / "profiles", package.parent / "profiles")


def _find(name: str, seen: frozenset[Path]) -> Path:
    """The file of a profile, past the files that are extending it right now."""
    if name.endswith(".toml") or "/" in name or os.sep in name:
        return Path(name).expanduser().resolve()
    for folder in _folders():
        path = (folder / f"{name}.toml").resolve()
        if path.is_file() and path not in seen:
            return path
    known = profile_names()
    raise ProfileError(f"unknown profile {name!r};{_nearest(name, known)} known are {', '.join(known) or 'none'}")


def _load(path: Path) -> Profile:
    """Read a profile and all that it extends, the farthest first."""
    profile, chain = Profile(), list(_chain(path))
    for link in reversed(chain):
        profile = _applied(profile, link.tables, str(link.path))
    own_name = chain[0].tables.get("name", path.stem)
    return replace(profile, name=own_name, description=chain[0].tables.get("description", ""))


@dataclass(frozen=True)
class _Link:
    """One file of a chain of profiles: where it is, and what it says."""

    path: Path
    tables: dict[str, Any]


def _chain(path: Path) -> Iterator[_Link]:
    """A profile, what it extends, what that extends..."""
    seen: frozenset[Path] = frozenset()
    while True:
        tables = _read(path)
        parent = tables.pop("extends", None)
        yield _Link(path, tables)
        if parent is None:
            return
        if not isinstance(parent, str):
            raise ProfileError(f"{path}: extends must be the name or the path of one profile, not {parent!r}")
        seen |= {path}
        if len(seen) > LONGEST_CHAIN:
            raise ProfileError(f"{path}: more than {LONGEST_CHAIN} profiles extend one another")
        path = _parent(path, parent, seen)


def _parent(path: Path, name: str, seen: frozenset[Path]) -> Path:
    beside = (path.parent / Path(name).expanduser()).resolve()
    try:
        found = beside if name.endswith(".toml") else _find(name, seen)
    except ProfileError as error:
        raise ProfileError(f"{path}: extends an {error}") from error
    if found in seen:
        raise ProfileError(f"{path}: extends {name!r}, which leads back to {found.name}")
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{path}: not valid TOML: {error}") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path}: not a text in UTF-8") from error
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error


def _applied(profile: Profile, tables: Mapping[str, Any], where: str) -> Profile:
    """The profile with the keys of a file on top."""
    changes: dict[str, Any] = {}
    for key, value in tables.items():
        _check_known(key, Profile, "", where)
        part = getattr(profile, key)
        changes[key] = _with_keys(part, value, key, where) if is_dataclass(part) else _typed(value, Profile, key, where)
    return replace(profile, **changes)


def _with_keys(part: Any, values: object, table: str, where: str) -> Any:
    if not isinstance(values, dict):
        raise ProfileError(f"{where}: {table} must be a table, [{table}], not {values!r}")
    for key in values:
        _check_known(key, type(part), table, where)
    try:
        return replace(
            part, **{key: _typed(value, type(part), key, f"{where}: {table}.") for key, value in values.items()}
        )
    except ProfileError as error:
        message = str(error)
        raise ProfileError(message if message.startswith(where) else f"{where}: {message}") from error


def _check_known(key: str, kind: type, table: str, where: str) -> None:
    known = [*_types(kind)]
    if key not in known:
        place = f" in [{table}]" if table else ""
        raise ProfileError(f"{where}: unknown key {key!r}{place};{_nearest(key, known)} known are {', '.join(known)}")


def _typed(value: object, kind: type, key: str, where: str) -> object:
    """The value if it has the type of its key; a whole number will do for a number."""
    wanted = _types(kind)[key]
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        separator = "" if where.endswith(".") else ": "
        raise ProfileError(f"{where}{separator}{key} must be {TYPE_NAMES.get(wanted, 'a table')}, not {value!r}")
    return value


@cache
def _types(kind: type) -> dict[str, type]:
    """The keys of a table and what they hold: `{"context": int, "answer": int}`."""
    hints = get_type_hints(kind)
    return {each.name: _without_none(hints[each.name]) for each in fields(kind)}


def _without_none(hint: Any) -> type:
    if isinstance(hint, UnionType):
        return next(choice for choice in get_args(hint) if choice is not NoneType)
    return hint


def _check_range(key: str, value: float, lowest: float, highest: float) -> None:
    if not lowest <= value <= highest:
        raise ProfileError(f"{key} must lie between {lowest} and {highest}, not {value}")


def _check_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ProfileError(f"{key} cannot be {value!r};{_nearest(value, choices)} known are {', '.join(choices)}")


def _nearest(word: str, known: tuple[str, ...] | list[str]) -> str:
    """` did you mean 'chat'?`, or nothing when no known word is near."""
    near = get_close_matches(word, known, n=1)
    return f" did you mean {near[0]!r}?" if near else ""
