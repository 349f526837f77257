"""Options for token counts and GPU sizes, and the labels for what fits."""

import click

from specchat.hub.recommend import TIGHT_MEMORY_SHARE

MAX_GPU_GB = 10_000


class TokenCount(click.ParamType):
    """A number of tokens: 8192, or 8k."""

    name = "tokens"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse; a k stands for 1024 tokens."""
        if isinstance(value, int):
            return value
        digits, times = (value[:-1], 1024) if value[-1:] in ("k", "K") else (value, 1)
        if not digits.isdigit() or not 0 < int(digits) * times <= 2**24:
            self.fail(f"{value!r} is no number of tokens; give one such as 8192 or 32k", param, ctx)
        return int(digits) * times


class Gigabytes(click.ParamType):
    name = "gb"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            size = float(value)
        except ValueError:
            size = 0.0
        if not 0.5 <= size <= MAX_GPU_GB:
            self.fail(f"{value!r} is no GPU memory; give GB, such as 24", param, ctx)
        return size


def fit_label(needed_bytes: float, available_bytes: float) -> str:
    """Whether the bytes fit: "fits", "tight" or "no"."""
    if needed_bytes > available_bytes:
        return "no"
    return "tight" if needed_bytes > TIGHT_MEMORY_SHARE * available_bytes else "fits"
