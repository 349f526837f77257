"""Check TOML tables against dataclasses, and merge several sources of settings into one value.

Knows no key by name: dataclasses define the keys, and sources supply values with their locations. The checks are our
own because importing pydantic takes longer than everything else that a thin client does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache, partial
from textwrap import fill
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

from specchat.errors import ProfileError
from specchat.own_tables import own_tables
from specchat.plugins.own_plugins import missing_variant

Value = TypeVar("Value")
KeyPath = tuple[str | int, ...]  # ("sampling", "top_p"), or ("routes", 2, "kind")
COMMENT_WIDTH = 120
LOCATION = "location"  # a field of a named table, and no key: where the table stands ("cpu.toml:7"); "" for no file
TYPE_NAMES: Mapping[Any, str] = {
    bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes",
}  # fmt: skip


class InvalidValueError(ProfileError):
    """A value that its key does not allow. `keys` caused the error; their locations are added later."""

    def __init__(self, message: str, *keys: KeyPath) -> None:
        super().__init__(message)
        self.keys = keys


@dataclass(frozen=True)
class KeyInfo:
    """What a key may be. What it means stands in a TOML file beside the module of its table, under the table's name."""

    table: type
    name: str
    minimum: float | None = None
    exclusive_minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    plugin_choices: Callable[[], tuple[str, ...]] = tuple  # called only for a value that is not in `choices`

    @property
    def description(self) -> str:
        tables = own_tables(sys.modules[self.table.__module__].__file__ or "")
        return tables.get(self.table.__name__, {}).get(self.name, "")

    @property
    def summary(self) -> str:
        """The first sentence of the description, without its full stop."""
        return self.description.partition(". ")[0].rstrip(".")

    @property
    def comment(self) -> str:
        """The description as comment lines of a TOML file."""
        return fill(self.description, COMMENT_WIDTH, initial_indent="# ", subsequent_indent="# ")

    @property
    def all_choices(self) -> tuple[str, ...]:
        return (*self.choices, *self.plugin_choices())


def key(
    default: Value,
    *,
    minimum: float | None = None,
    exclusive_minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    plugin_choices: Callable[[], tuple[str, ...]] = tuple,
) -> Value:
    info = partial(
        KeyInfo, minimum=minimum, exclusive_minimum=exclusive_minimum, maximum=maximum, choices=choices,
        plugin_choices=plugin_choices,
    )  # fmt: skip
    return field(default=default, metadata={"info": info})


@cache
def key_info(kind: type) -> Mapping[str, KeyInfo]:
    return {each.name: each.metadata.get("info", KeyInfo)(kind, each.name) for each in _key_fields(kind)}


@cache
def _key_fields(kind: type) -> Sequence[Field[Any]]:
    return [each for each in fields(kind) if each.name != LOCATION]


def check_values(table: Any, name: str) -> None:
    """Raise InvalidValueError unless the key of every value in this table allows the value."""
    for each, info in key_info(type(table)).items():
        value = getattr(table, each)
        for item in value if isinstance(value, tuple) else (value,):
            if item is not None:
                _check_value(item, info, (name, each))


def _check_value(value: Any, info: KeyInfo, path: tuple[str, str]) -> None:
    name, low, above, high = ".".join(path), info.minimum, info.exclusive_minimum, info.maximum
    if info.choices and value not in info.choices and value not in info.all_choices:
        if info.plugin_choices is not tuple and (fault := missing_variant(value)):
            raise InvalidValueError(f"{name}: {fault}", path)
        hint, choices = did_you_mean(value, info.all_choices), ", ".join(info.all_choices)
        raise InvalidValueError(f"{name} cannot be {value!r};{hint} known are {choices}", path)
    if above is not None and high is not None and not above < value <= high:
        raise InvalidValueError(f"{name} must be above {above} and at most {high}, not {value}", path)
    if low is not None and high is not None and not low <= value <= high:
        raise InvalidValueError(f"{name} must lie between {low} and {high}, not {value}", path)


@dataclass(frozen=True)
class SettingsSource:
    """Settings from one place: tables in the form of TOML, and the location of each key ("cpu.toml:7").

    With `resolve_for`, the settings depend on the result of all other sources; it may return None.
    """

    kind: str
    tables: Mapping[str, Any]
    location_of: Callable[[KeyPath], str]
    resolve_for: Callable[[Any], SettingsSource | None] | None = None


@dataclass(frozen=True)
class Origin:
    """The source of a value and its location there; the default has no location."""

    kind: str = "default"
    location: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.location}".rstrip()


@dataclass(frozen=True)
class MergedSettings(Generic[Value]):
    """The result of several sources: the value, and the origin of every key that a source sets."""

    value: Value
    origins: Mapping[KeyPath, Origin]

    def origin(self, *path: str | int) -> Origin:
        return self.origins.get(path, Origin())


def merge_sources(base: Value, sources: Sequence[SettingsSource]) -> MergedSettings[Value]:
    """Apply the sources to `base`, the weakest first; a ProfileError names the location of the fault.

    A key takes its value from the strongest source that sets it. Lists of tables are joined, the strongest first.
    """
    sources = _resolve_dependent(base, sources)
    values = [
        _SourceValue(source, path, value) for source in sources for path, value in _source_values(source, type(base))
    ]
    changes: dict[str, Any] = {}
    origins: dict[KeyPath, Origin] = {}
    for name, hint in key_types(type(base)).items():
        own = [each for each in values if each.path[0] == name]
        if is_table_list(hint):
            own = [each for source in reversed(sources) for each in own if each.source is source]
            changes[name] = (*(each.value for each in own), *getattr(base, name))
            origins |= {(name, number): each.origin for number, each in enumerate(own)}
            continue
        origins |= {each.path: each.origin for each in own}
        if own:
            changes[name] = _replace_values(getattr(base, name), own) if is_dataclass(hint) else own[-1].value
    return MergedSettings(cast("Value", replace(cast("Any", base), **changes)), origins)


def _resolve_dependent(base: Any, sources: Sequence[SettingsSource]) -> list[SettingsSource]:
    independent = [source for source in sources if source.resolve_for is None]
    if len(independent) == len(sources):
        return independent
    value = merge_sources(base, independent).value
    resolved = (source if source.resolve_for is None else source.resolve_for(value) for source in sources)
    return [source for source in resolved if source is not None]


@dataclass(frozen=True)
class _SourceValue:
    source: SettingsSource
    path: KeyPath
    value: Any

    @property
    def location(self) -> str:
        return self.source.location_of(self.path)

    @property
    def origin(self) -> Origin:
        return Origin(self.source.kind, self.location)


def _source_values(source: SettingsSource, kind: type) -> Iterator[tuple[KeyPath, Any]]:
    for name, value in source.tables.items():
        _check_known(source, name, kind, kind)
        hint = key_types(kind)[name]
        if is_dataclass(hint):
            checked = _typed_table(source, (name,), value, f"[{name}]", cast("type", hint), kind)
            yield from (((name, key), item) for key, item in checked.items())
        elif is_table_list(hint):
            yield from _tables(source, name, value, kind)
        else:
            yield (name,), _check_type(source, (name,), value, hint)


def _tables(source: SettingsSource, name: str, value: Any, kind: type) -> Iterator[tuple[KeyPath, Any]]:
    item: Any = get_args(key_types(kind)[name])[0]
    for number, table in _numbered_tables(source, name, value, has_names=has_names(item)):
        checked = _typed_table(source, (name, number), table, f"[[{name}]]", item, kind)
        location = {LOCATION: source.location_of((name, number))} if has_names(item) else {}
        try:
            yield (name, number), item(**checked, **location)
        except InvalidValueError as error:
            key = error.keys[0][-1] if error.keys else ""
            raise ProfileError(f"{source.location_of((name, number, key))}: {error}") from error


def _numbered_tables(
    source: SettingsSource, name: str, value: Any, *, has_names: bool
) -> Iterator[tuple[int | str, Any]]:
    """The tables of a list, and the number of each. A table `[mcp.git]` with a name is {"name": "git", …}."""
    if has_names and isinstance(value, Mapping):
        for each, table in cast("Mapping[str, Any]", value).items():
            if not isinstance(table, Mapping):
                where = source.location_of((name, each))
                raise ProfileError(f"{where}: {name}.{each} must be a table, [{name}.NAME], not {table!r}")
            yield each, {**cast("Mapping[str, Any]", table), "name": each}
    elif isinstance(value, list | tuple):
        yield from enumerate(cast("Sequence[Any]", value))
    else:
        header = f"tables, [{name}.NAME]" if has_names else f"a list of tables, [[{name}]]"
        raise ProfileError(f"{source.location_of((name,))}: {name} must be {header}, not {value!r}")


def _typed_table(
    source: SettingsSource, path: KeyPath, value: Any, header: str, kind: type, root: type
) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ProfileError(f"{source.location_of(path)}: {path[0]} must be a table, {header}, not {value!r}")
    checked: dict[str, Any] = {}
    for name, item in cast("Mapping[str, Any]", value).items():
        _check_known(source, name, kind, root, path)
        checked[name] = _check_type(source, (*path, name), item, key_types(kind)[name])
    return checked


def _replace_values(table: Any, values: Sequence[_SourceValue]) -> Any:
    """A table with these values; an error names the location of the strongest of its causes."""
    strongest = {each.path: each for each in values}
    try:
        return replace(table, **{str(path[1]): each.value for path, each in strongest.items()})
    except InvalidValueError as error:
        causes = [each for each in values if strongest[each.path] is each and each.path in error.keys]
        raise ProfileError(f"{(causes or list(values))[-1].location}: {error}") from error


def _check_known(source: SettingsSource, name: str, kind: type, root: type, path: KeyPath = ()) -> None:
    known = [*key_types(kind)]
    if name in known:
        return
    table = f" in [{path[0]}]" if path else ""
    tables = {each: hint for each, hint in key_types(root).items() if is_dataclass(hint)}
    right_table = next((each for each, hint in tables.items() if name in key_types(cast("type", hint))), "")
    hint = f" it belongs in [{right_table}];" if right_table else did_you_mean(name, known)
    where = source.location_of((*path, name))
    raise ProfileError(f"{where}: unknown key {name!r}{table};{hint} known are {', '.join(known)}")


def _check_type(source: SettingsSource, path: KeyPath, value: Any, hint: Any) -> Any:
    """The value if its type is right; an int is accepted as a float."""
    if hint is float and type(value) is int:
        return float(value)
    if get_origin(hint) is tuple:
        items = cast("Sequence[Any]", value)
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in items):
            return tuple(items)
        expected = "a list of texts"
    elif type(value) is hint:
        return value
    else:
        expected = TYPE_NAMES.get(hint, "a table")
    name = ".".join(str(each) for each in path if isinstance(each, str))
    raise ProfileError(f"{source.location_of(path)}: {name} must be {expected}, not {value!r}")


@cache
def key_types(kind: type) -> dict[str, Any]:
    """The keys of a table and their types: `{"context": int, "contains": tuple[str, ...]}`."""
    hints = get_type_hints(kind)
    return {each.name: _without_none(hints[each.name]) for each in _key_fields(kind)}


def is_table_list(hint: Any) -> bool:
    """Whether a key holds a list of tables, as `[[routes]]` does."""
    return get_origin(hint) is tuple and is_dataclass(get_args(hint)[0])


def has_names(table: Any) -> bool:
    """Whether tables of a list are written with their name, as `[mcp.git]` is, and not as `[[mcp]]`."""
    return "name" in key_types(table)


def _without_none(hint: Any) -> Any:
    if isinstance(hint, UnionType):
        return next(choice for choice in get_args(hint) if choice is not NoneType)
    return hint


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """` did you mean 'chat'?`, or "" when no known word is similar."""
    near = get_close_matches(str(word), list(known), n=1)
    return f" did you mean {near[0]!r}?" if near else ""
