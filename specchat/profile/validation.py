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


class BadValueError(ProfileError):
    """A value that no key can hold. Which keys are to blame is known, where somebody said so is not yet."""

    def __init__(self, message: str, *keys: KeyPath) -> None:
        super().__init__(message)
        self.keys = keys


@dataclass(frozen=True)
class About:
    """What a key means, and what it may hold."""

    what: str
    lowest: float | None = None
    above: float | None = None  # as `lowest`, itself left out
    highest: float | None = None
    choices: tuple[str, ...] = ()
    added: Callable[[], tuple[str, ...]] = tuple  # choices of plugins, looked up when none of ours is meant

    @property
    def every_choice(self) -> tuple[str, ...]:
        """Ours, and those of plugins."""
        return (*self.choices, *self.added())


def key(
    default: Value,
    what: str,
    *,
    lowest: float | None = None,
    above: float | None = None,
    highest: float | None = None,
    choices: tuple[str, ...] = (),
    added: Callable[[], tuple[str, ...]] = tuple,
) -> Value:
    """A field of a table."""
    return field(default=default, metadata={"about": About(what, lowest, above, highest, choices, added)})


def about(kind: type) -> dict[str, About]:
    """What is known of the keys of a table."""
    return {each.name: each.metadata.get("about", About("")) for each in fields(kind)}


def check(table: Any, name: str) -> None:
    """BadValueError unless every value of this table lies where its key allows."""
    for each, known in about(type(table)).items():
        value = getattr(table, each)
        for item in value if isinstance(value, tuple) else (value,):
            if item is not None:
                _check_value(item, known, (name, each))


def _check_value(value: Any, known: About, path: tuple[str, str]) -> None:
    place = ".".join(path)
    if known.choices and value not in known.choices and value not in known.every_choice:
        hint, choices = nearest(value, known.every_choice), ", ".join(known.every_choice)
        raise BadValueError(f"{place} cannot be {value!r};{hint} known are {choices}", path)
    if known.above is not None and known.highest is not None and not known.above < value <= known.highest:
        raise BadValueError(f"{place} must be above {known.above} and at most {known.highest}, not {value}", path)
    if known.lowest is not None and known.highest is not None and not known.lowest <= value <= known.highest:
        raise BadValueError(f"{place} must lie between {known.lowest} and {known.highest}, not {value}", path)


@dataclass(frozen=True)
class Source:
    """What somebody wants: tables as TOML has them, and where each key stands ("cpu.toml:7").

    With `fitting`, what it wants depends on what all others settle on, and may be nothing.
    """

    kind: str
    tables: Mapping[str, Any]
    at: Callable[[KeyPath], str]
    fitting: Callable[[Any], Source | None] | None = None


@dataclass(frozen=True)
class Origin:
    """Who said a value, and where; a default was said by nobody."""

    kind: str = "default"
    where: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.where}".rstrip()


@dataclass(frozen=True)
class Settled(Generic[Value]):
    """What comes of several sources: the value, and the origin of every key that one of them named."""

    value: Value
    origins: Mapping[KeyPath, Origin]

    def origin(self, *path: str | int) -> Origin:
        """Where a value comes from."""
        return self.origins.get(path, Origin())


def settle(base: Value, sources: Sequence[Source]) -> Settled[Value]:
    """The sources on top of `base`, the weakest first; ProfileError names the place of what is wrong.

    A key is taken from the strongest source that names it. Lists of tables add up, the strongest first.
    """
    sources = _fitted(base, sources)
    said = [_Said(source, path, value) for source in sources for path, value in _said(source, type(base))]
    changes: dict[str, Any] = {}
    for name, hint in hints(type(base)).items():
        mine = [each for each in said if each.path[0] == name]
        if not mine:
            continue
        if is_dataclass(hint):
            changes[name] = _part(getattr(base, name), mine)
        elif is_table_list(hint):
            changes[name] = (*(each.value for each in _strongest_first(mine)), *getattr(base, name))
        else:
            changes[name] = mine[-1].value
    return Settled(cast("Value", replace(cast("Any", base), **changes)), _origins(said, type(base)))


def _fitted(base: Any, sources: Sequence[Source]) -> list[Source]:
    """Those that wait for the others, as they are when the others are settled."""
    sure = [source for source in sources if source.fitting is None]
    if len(sure) == len(sources):
        return sure
    value = settle(base, sure).value
    found = (source if source.fitting is None else source.fitting(value) for source in sources)
    return [source for source in found if source is not None]


@dataclass(frozen=True)
class _Said:
    """One value of a source, typed."""

    source: Source
    path: KeyPath
    value: Any

    @property
    def origin(self) -> Origin:
        return Origin(self.source.kind, self.source.at(self.path))


def _said(source: Source, kind: type) -> Iterator[tuple[KeyPath, Any]]:
    """Every value of a source with its path, in order; each has the type that its key wants."""
    for name, value in source.tables.items():
        _check_known(source, name, kind, kind)
        hint = hints(kind)[name]
        if is_dataclass(hint):
            for inner in _table(source, (name,), value, f"[{name}]"):
                _check_known(source, inner, cast("type", hint), kind, (name,))
                yield (name, inner), _typed(source, (name, inner), value[inner], hints(cast("type", hint))[inner])
        elif is_table_list(hint):
            yield from _tables(source, name, value, kind)
        else:
            yield (name,), _typed(source, (name,), value, hint)


def _tables(source: Source, name: str, value: Any, kind: type) -> Iterator[tuple[KeyPath, Any]]:
    if not isinstance(value, list | tuple):
        raise ProfileError(f"{source.at((name,))}: {name} must be a list of tables, [[{name}]], not {value!r}")
    item: Any = get_args(hints(kind)[name])[0]
    for number, table in enumerate(cast("Sequence[Any]", value)):
        values: dict[str, Any] = {}
        for inner in _table(source, (name, number), table, f"[[{name}]]"):
            _check_known(source, inner, item, kind, (name, number))
            values[inner] = _typed(source, (name, number, inner), table[inner], hints(item)[inner])
        try:
            yield (name, number), item(**values)
        except BadValueError as fault:
            inner = fault.keys[0][-1] if fault.keys else ""
            raise ProfileError(f"{source.at((name, number, inner))}: {fault}") from fault


def _table(source: Source, path: KeyPath, value: Any, header: str) -> Iterable[str]:
    if not isinstance(value, Mapping):
        raise ProfileError(f"{source.at(path)}: {path[0]} must be a table, {header}, not {value!r}")
    return cast("Mapping[str, Any]", value).keys()


def _part(part: Any, said: Sequence[_Said]) -> Any:
    """A table with what was said of it; what is wrong is told where the strongest of its causes stands."""
    chosen = {each.path: each for each in said}
    try:
        return replace(part, **{str(path[1]): each.value for path, each in chosen.items()})
    except BadValueError as fault:
        causes = [each for each in said if chosen[each.path] is each and each.path in fault.keys]
        blamed = (causes or list(said))[-1]
        raise ProfileError(f"{blamed.source.at(blamed.path)}: {fault}") from fault


def _strongest_first(said: Sequence[_Said]) -> list[_Said]:
    """Sources turned round, the entries of each in their order."""
    sources = list(dict.fromkeys(id(each.source) for each in said))
    return sorted(said, key=lambda each: -sources.index(id(each.source)))


def _origins(said: Sequence[_Said], kind: type) -> dict[KeyPath, Origin]:
    origins: dict[KeyPath, Origin] = {}
    for name, hint in hints(kind).items():
        mine = [each for each in said if each.path[0] == name]
        if is_table_list(hint):
            origins |= {(name, number): each.origin for number, each in enumerate(_strongest_first(mine))}
        else:
            origins |= {each.path: each.origin for each in mine}
    return origins


def _check_known(source: Source, name: str, kind: type, whole: type, path: KeyPath = ()) -> None:
    known = [*hints(kind)]
    if name in known:
        return
    place = f" in [{path[0]}]" if path else ""
    home = next((table for table, hint in hints(whole).items() if is_dataclass(hint) and name in hints(hint)), "")  # type: ignore[arg-type]
    hint = f" it belongs in [{home}];" if home else nearest(name, known)
    raise ProfileError(f"{source.at((*path, name))}: unknown key {name!r}{place};{hint} known are {', '.join(known)}")


def _typed(source: Source, path: KeyPath, value: Any, hint: Any) -> Any:
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
    raise ProfileError(f"{source.at(path)}: {name} must be {wanted}, not {value!r}")


@cache
def hints(kind: type) -> dict[str, Any]:
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


def nearest(word: object, known: Iterable[str]) -> str:
    """` did you mean 'chat'?`, or nothing when no known word is near."""
    near = get_close_matches(str(word), list(known), n=1)
    return f" did you mean {near[0]!r}?" if near else ""
