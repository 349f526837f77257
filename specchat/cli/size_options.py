"""Options for token counts and GPU sizes."""

import click

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
