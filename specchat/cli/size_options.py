"""How commands say bytes, ask for lengths, and mark what fits."""

from __future__ import annotations

import click

from specchat.hub.recommend import TIGHT_MEMORY_SHARE

MAX_GPU_GB = 10_000  # GB
FIT_COLOURS = {"fits": "green", "tight": "yellow", "no": "red"}


class TokenCount(click.ParamType):
    """A length of text: 8192, or 8k."""

    name = "tokens"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Its number of tokens; a k is 1024 of them."""
        if isinstance(value, int):
            return value
        digits, times = (value[:-1], 1024) if value[-1:] in ("k", "K") else (value, 1)
        if not digits.isdigit() or not 0 < int(digits) * times <= 2**24:
            self.fail(f"{value!r} is no length; give a number of tokens such as 8192 or 32k", param, ctx)
        return int(digits) * times


class Gigabytes(click.ParamType):
    """The size of a card, as it is sold."""

    name = "gb"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Its number."""
        try:
            size = float(value)
        except ValueError:
            size = 0.0
        if not 0.5 <= size <= MAX_GPU_GB:
            self.fail(f"{value!r} is no size of a card; give its GB, such as 24", param, ctx)
        return size


def fit_label(needed_bytes: float, available_bytes: float) -> str:
    """Whether so many bytes fit: "fits", "tight" or "no"."""
    return (
        "no"
        if needed_bytes > available_bytes
        else "tight"
        if needed_bytes > TIGHT_MEMORY_SHARE * available_bytes
        else "fits"
    )


def colour_fit_label(label: str) -> str:
    """A mark in its colour; click leaves the colour out where nobody sees it."""
    return click.style(label, fg=FIT_COLOURS[label])


def format_token_count(tokens: int) -> str:
    """A length as people say it: "8k", "7936"."""
    return f"{tokens // 1024}k" if tokens % 1024 == 0 else str(tokens)
