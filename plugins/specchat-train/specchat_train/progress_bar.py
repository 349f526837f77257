"""Progress bars on stderr."""

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from specchat.terminal import raw_stream

Item = TypeVar("Item")


def with_progress_bar(label: str, items: Sequence[Item], *, is_shown: bool = True) -> Iterator[Item]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(file=raw_stream(sys.stderr))
    with Progress(*columns, console=console, refresh_per_second=2, transient=True, disable=not is_shown) as bar:
        task = bar.add_task(label, total=len(items))
        for item in items:
            yield item
            bar.advance(task)
