"""Tables against dataclasses: which keys there are, what they may hold, and whose word counts.

Knows no key by name: dataclasses say what they hold, sources say what somebody wants and where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

from specchat.errors import ProfileError

Value = TypeVar("Value")
KeyPath = tuple[str | int, ...]  # ("sampling", "top_p"), or ("routes", 2, "kind")
TYPE_NAMES: Mapping[Any, str] = {
    bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes",
}  # fmt: skip


class InvalidValueError(ProfileError):
    """A value that no key can hold. Which keys are to blame is known, where somebody said so is not yet."""

    def __init__(self, message: str, *keys: KeyPath) -> None:
        super().__init__(message)
        self.keys = keys


@dataclass(frozen=True)
class KeyInfo:
    """What a key means, and what it may hold."""

    description: str
    minimum: float | None = None
    exclusive_minimum: float | None = None  # as `lowest`, itself left out
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    plugin_choices: Callable[[], tuple[str, ...]] = tuple  # choices of plugins, looked up when none of ours is meant

    @property
    def all_choices(self) -> tuple[str, ...]:
        """Ours, and those of plugins."""
        return (*self.choices, *self.plugin_choices())


def key(
    default: Value,
    description: str,
    *,
    minimum: float | None = None,
    exclusive_minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    plugin_choices: Callable[[], tuple[str, ...]] = tuple,
) -> Value:
    """A field of a table."""
    return field(
        default=default,
        metadata={"about": KeyInfo(description, minimum, exclusive_minimum, maximum, choices, plugin_choices)},
    )


def key_info(kind: type) -> dict[str, KeyInfo]:
    """What is known of the keys of a table."""
    return {each.name: each.metadata.get("about", KeyInfo("")) for each in fields(kind)}


def check_values(table: Any, name: str) -> None:
    """BadValueError unless every value of this table lies where its key allows."""
    for each, known in key_info(type(table)).items():
        value = getattr(table, each)
        for item in value if isinstance(value, tuple) else (value,):
            if item is not None:
                _check_value(item, known, (name, each))


def _check_value(value: Any, known: KeyInfo, path: tuple[str, str]) -> None:
    place = ".".join(path)
    if known.choices and value not in known.choices and value not in known.all_choices:
        hint, choices = did_you_mean(value, known.all_choices), ", ".join(known.all_choices)
        raise InvalidValueError(f"{place} cannot be {value!r};{hint} known are {choices}", path)
    if (
        known.exclusive_minimum is not None
        and known.maximum is not None
        and not known.exclusive_minimum < value <= known.maximum
    ):
        raise InvalidValueError(
            f"{place} must be above {known.exclusive_minimum} and at most {known.maximum}, not {value}", path
        )
    if known.minimum is not None and known.maximum is not None and not known.minimum <= value <= known.maximum:
        raise InvalidValueError(f"{place} must lie between {known.minimum} and {known.maximum}, not {value}", path)


@dataclass(frozen=True)
class SettingsSource:
    """What somebody wants: tables as TOML has them, and where each key stands ("cpu.toml:7").

    With `fitting`, what it wants depends on what all others settle on, and may be nothing.
    """

    kind: str
    tables: Mapping[str, Any]
    location_of: Callable[[KeyPath], str]
    resolve_for: Callable[[Any], SettingsSource | None] | None = None


@dataclass(frozen=True)
class Origin:
    """Who said a value, and where; a default was said by nobody."""

    kind: str = "default"
    location: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.location}".rstrip()


@dataclass(frozen=True)
class MergedSettings(Generic[Value]):
    """What comes of several sources: the value, and the origin of every key that one of them named."""

    value: Value
    origins: Mapping[KeyPath, Origin]

    def origin(self, *path: str | int) -> Origin:
        """Where a value comes from."""
        return self.origins.get(path, Origin())


def merge_sources(base: Value, sources: Sequence[SettingsSource]) -> MergedSettings[Value]:
    """The sources on top of `base`, the weakest first; ProfileError names the place of what is wrong.

    A key is taken from the strongest source that names it. Lists of tables add up, the strongest first.
    """
    sources = _resolve_dependent(base, sources)
    said = [
        _SourceValue(source, path, value) for source in sources for path, value in _source_values(source, type(base))
    ]
    changes: dict[str, Any] = {}
    for name, hint in key_types(type(base)).items():
        mine = [each for each in said if each.path[0] == name]
        if not mine:
            continue
        if is_dataclass(hint):
            changes[name] = _replace_table(getattr(base, name), mine)
        elif is_table_list(hint):
            changes[name] = (*(each.value for each in _strongest_first(mine)), *getattr(base, name))
        else:
            changes[name] = mine[-1].value
    return MergedSettings(cast("Value", replace(cast("Any", base), **changes)), _origins(said, type(base)))


def _resolve_dependent(base: Any, sources: Sequence[SettingsSource]) -> list[SettingsSource]:
    """Those that wait for the others, as they are when the others are settled."""
    sure = [source for source in sources if source.resolve_for is None]
    if len(sure) == len(sources):
        return sure
    value = merge_sources(base, sure).value
    found = (source if source.resolve_for is None else source.resolve_for(value) for source in sources)
    return [source for source in found if source is not None]


@dataclass(frozen=True)
class _SourceValue:
    """One value of a source, typed."""

    source: SettingsSource
    path: KeyPath
    value: Any

    @property
    def origin(self) -> Origin:
        return Origin(self.source.kind, self.source.location_of(self.path))


def _source_values(source: SettingsSource, kind: type) -> Iterator[tuple[KeyPath, Any]]:
    """Every value of a source with its path, in order; each has the type that its key wants."""
    for name, value in source.tables.items():
        _check_known(source, name, kind, kind)
        hint = key_types(kind)[name]
        if is_dataclass(hint):
            for inner in _table(source, (name,), value, f"[{name}]"):
                _check_known(source, inner, cast("type", hint), kind, (name,))
                yield (
                    (name, inner),
                    _check_type(source, (name, inner), value[inner], key_types(cast("type", hint))[inner]),
                )
        elif is_table_list(hint):
            yield from _tables(source, name, value, kind)
        else:
            yield (name,), _check_type(source, (name,), value, hint)


def _tables(source: SettingsSource, name: str, value: Any, kind: type) -> Iterator[tuple[KeyPath, Any]]:
    if not isinstance(value, list | tuple):
        raise ProfileError(f"{source.location_of((name,))}: {name} must be a list of tables, [[{name}]], not {value!r}")
    item: Any = get_args(key_types(kind)[name])[0]
    for number, table in enumerate(cast("Sequence[Any]", value)):
        values: dict[str, Any] = {}
        for inner in _table(source, (name, number), table, f"[[{name}]]"):
            _check_known(source, inner, item, kind, (name, number))
            values[inner] = _check_type(source, (name, number, inner), table[inner], key_types(item)[inner])
        try:
            yield (name, number), item(**values)
        except InvalidValueError as fault:
            inner = fault.keys[0][-1] if fault.keys else ""
            raise ProfileError(f"{source.location_of((name, number, inner))}: {fault}") from fault


def _table(source: SettingsSource, path: KeyPath, value: Any, header: str) -> Iterable[str]:
    if not isinstance(value, Mapping):
        raise ProfileError(f"{source.location_of(path)}: {path[0]} must be a table, {header}, not {value!r}")
    return cast("Mapping[str, Any]", value).keys()


def _replace_table(part: Any, said: Sequence[_SourceValue]) -> Any:
    """A table with what was said of it; what is wrong is told where the strongest of its causes stands."""
    chosen = {each.path: each for each in said}
    try:
        return replace(part, **{str(path[1]): each.value for path, each in chosen.items()})
    except InvalidValueError as fault:
        causes = [each for each in said if chosen[each.path] is each and each.path in fault.keys]
        blamed = (causes or list(said))[-1]
        raise ProfileError(f"{blamed.source.location_of(blamed.path)}: {fault}") from fault


def _strongest_first(said: Sequence[_SourceValue]) -> list[_SourceValue]:
    """Sources turned round, the entries of each in their order."""
    sources = list(dict.fromkeys(id(each.source) for each in said))
    return sorted(said, key=lambda each: -sources.index(id(each.source)))


def _origins(said: Sequence[_SourceValue], kind: type) -> dict[KeyPath, Origin]:
    origins: dict[KeyPath, Origin] = {}
    for name, hint in key_types(kind).items():
        mine = [each for each in said if each.path[0] == name]
        if is_table_list(hint):
            origins |= {(name, number): each.origin for number, each in enumerate(_strongest_first(mine))}
        else:
            origins |= {each.path: each.origin for each in mine}
    return origins


def _check_known(source: SettingsSource, name: str, kind: type, whole: type, path: KeyPath = ()) -> None:
    known = [*key_types(kind)]
    if name in known:
        return
    place = f" in [{path[0]}]" if path else ""
    home = next(
        (table for table, hint in key_types(whole).items() if is_dataclass(hint) and name in key_types(hint)), ""
    )  # type: ignore[arg-type]
    hint = f" it belongs in [{home}];" if home else did_you_mean(name, known)
    raise ProfileError(
        f"{source.location_of((*path, name))}: unknown key {name!r}{place};{hint} known are {', '.join(known)}"
    )


def _check_type(source: SettingsSource, path: KeyPath, value: Any, hint: Any) -> Any:
    """The value if it has the type of its key; a whole number will do for a number."""
    if hint is float and type(value) is int:
        return float(value)
    if get_origin(hint) is tuple:
        items = cast("Sequence[Any]", value)
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in items):
            return tuple(items)
        wanted = "a list of texts"
    elif type(value) is hint:
        return value
    else:
        wanted = TYPE_NAMES.get(hint, "a table")
    name = ".".join(str(each) for each in path if isinstance(each, str))
    raise ProfileError(f"{source.location_of(path)}: {name} must be {wanted}, not {value!r}")


@cache
def key_types(kind: type) -> dict[str, Any]:
    """The keys of a table and what they hold: `{"context": int, "words": tuple[str, ...]}`."""
    found = get_type_hints(kind)
    return {each.name: _without_none(found[each.name]) for each in fields(kind)}


def is_table_list(hint: Any) -> bool:
    """Does a key hold tables, as `[[routes]]` does?"""
    return get_origin(hint) is tuple and is_dataclass(get_args(hint)[0])


def _without_none(hint: Any) -> Any:
    if isinstance(hint, UnionType):
        return next(choice for choice in get_args(hint) if choice is not NoneType)
    return hint


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """` did you mean 'chat'?`, or nothing when no known word is near."""
    near = get_close_matches(str(word), list(known), n=1)
    return f" did you mean {near[0]!r}?" if near else ""
