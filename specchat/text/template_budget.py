"""What a chat template may use: a budget of units, for a step, an element or a character each.

Memory and time of a rendering are bounded by it together, because every operation is charged before it runs where its
result may be large, and afterwards where it is not larger than what it reads. No clock is read, so a template is
refused on every machine or on none. Knows values, and neither Jinja nor a conversation.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

STEP = 64  # units of an operation and of an item of a loop
CONTAINER = CALL = 4 * STEP  # of an object inside another one, and of a call
ELEMENT = 16  # of a place in a list
BUDGET = 2**26  # beside what a conversation brings: 64 million characters, or 1 million steps in about two seconds
MAX_INTEGER_BITS = 4096
ITERABLES = (list, tuple, set, frozenset, type({}.keys()), type({}.values()), type({}.items()))


class TemplateLimitError(Exception):
    """A template would use more than its budget."""


class _Budget:
    __slots__ = ("units",)

    def __init__(self, units: int) -> None:
        self.units = units


_BUDGET: ContextVar[_Budget] = ContextVar("template budget")


@contextmanager
def template_budget(characters: int = 0) -> Generator[None]:
    """Templates may be compiled and rendered inside; a conversation of so many characters is allowed for."""
    token = _BUDGET.set(_Budget(BUDGET + 64 * characters))
    try:
        yield
    finally:
        _BUDGET.reset(token)


def spend(units: int) -> None:
    """Take units of the budget; TemplateLimitError when it does not have them."""
    budget = _BUDGET.get()
    budget.units -= units
    if budget.units < 0:
        raise TemplateLimitError("it would take too much memory or time")


def spend_on_reading(*values: object) -> None:
    """Take what it costs to read values with all that is in them, however often a value is in them."""
    units, left = 0, _BUDGET.get().units
    open_values = list(values)
    while open_values and units <= left:
        value = open_values.pop()
        if isinstance(value, str):
            units += len(value)
            continue
        units += CONTAINER + size(value)
        if isinstance(value, Mapping):
            open_values += value.keys()
            open_values += value.values()
        elif isinstance(value, ITERABLES):
            open_values += value
        elif type(value).__name__ == "Namespace":  # Jinja's, which prints what it holds
            open_values += value._Namespace__attrs.values()  # noqa: SLF001 # pyright: ignore[reportAttributeAccessIssue]
    spend(units)


def size(value: object) -> int:
    """The units of a value without those of its elements."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, (Mapping, *ITERABLES)):
        return ELEMENT * len(value)
    return value.bit_length() // 8 if isinstance(value, int) else 0


def measured(value: Any) -> Any:
    """Charge a value that was made; an iterator is charged as it is read, a nested tuple for the hash of all of it."""
    if isinstance(value, str):
        spend(STEP + len(value))
    elif isinstance(value, tuple):
        spend_on_reading(value)
    elif isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
        raise TemplateLimitError("it computes with a number that is too large")
    elif isinstance(value, Iterator):
        return counted(value)
    else:
        spend(STEP + size(value))
    return value


def counted(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        spend(STEP)
        yield item


def elements(value: Any) -> Sequence[Any]:
    """The elements of a value that an operation is about to put into a list."""
    if isinstance(value, (str, Mapping, *ITERABLES)):
        spend(ELEMENT * len(value))
    return list(value)


def spend_on_pairs(*values: object) -> None:
    """Take what it costs to read the arguments of an operation, and to put each beside every part of the others: a
    padding, a replacement and a search make and compare no more than that.
    """
    spend_on_reading(*values)
    sizes = [max(1, abs(int(each)) if isinstance(each, int | float) else size(each)) for each in values]
    spend((sum(sizes) ** 2 - sum(each * each for each in sizes)) // 2)


def spend_on_pieces(text: str, separator: object = None, *_count: object) -> None:
    """A text is split, at white space without a separator."""
    spend_on_pairs(text, separator)
    spend(ELEMENT * (text.count(separator) + 1 if isinstance(separator, str) and separator else len(text) // 2))


def spend_on_repetition(value: object, count: object) -> None:
    if isinstance(value, int) and isinstance(count, int):
        _check_bits(value.bit_length() + count.bit_length())
    elif isinstance(count, int):
        spend(size(value) * max(count, 0))
    elif isinstance(value, int):
        spend(size(count) * max(value, 0))


def check_power(base: object, exponent: object) -> None:
    if isinstance(base, int) and isinstance(exponent, int):
        _check_bits(base.bit_length() * exponent)


def _check_bits(bits: int) -> None:
    if bits > MAX_INTEGER_BITS:
        raise TemplateLimitError("it computes with a number that is too large")
