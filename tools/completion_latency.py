"""How long ghost text takes: completions in files while the user types, by the models of a profile.

python -m tools.completion_latency --lines 6 FILE...

In each file it types lines, starting in the middle: after each word it requests a completion of at most 30 tokens from
the engine process, with the time limit of the language server. A request is warm when only what was typed since the
last one is new; the first requests in a file process the text before the cursor and are counted separately. A
completion may end before its limit of tokens, at the end of its block. It needs the plugin specchat-editors.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from threading import Event as Flag

from specchat.chat.events import Finished, Totals
from specchat.chat.fim_request import FimRequest
from specchat.errors import InputError
from specchat.host.client import Conversation, SessionRequest
from specchat.profile.settings import read_settings
from specchat_editors.lsp.inline_completion import ENGINE_TIMEOUT_SECONDS

WORD_END = re.compile(r"\w+|[^\w\s]")
MAX_PREFIX_CHARACTERS, MAX_SUFFIX_CHARACTERS = 6_000, 4_000
LOADING_PAUSE_SECONDS = 0.2
MAX_TYPED_TOKENS = 8  # new prompt tokens of a warm request


@dataclass(frozen=True)
class Cursor:
    prefix: str
    suffix: str


@dataclass(frozen=True)
class Measured:
    seconds: float
    tokens: int
    prompt_tokens: int
    cached_tokens: int

    @property
    def is_warm(self) -> bool:
        """Whether the text before the cursor was processed already; a request that ended before that has no totals."""
        return self.prompt_tokens > 0 and self.prompt_tokens - self.cached_tokens <= MAX_TYPED_TOKENS


def cursors(text: str, line_count: int) -> Iterator[Cursor]:
    """The cursor after each word of some lines in the middle of a text; the rest of its line is not typed yet."""
    lines = text.splitlines(keepends=True)
    start = len(lines) // 2
    if len(lines) < 2 * line_count:
        raise InputError(f"a file needs {2 * line_count} lines to type {line_count} of them, not {len(lines)}")
    first_character = sum(map(len, lines[: max(0, start)]))
    cut = text.rfind("\n", 0, max(0, first_character - MAX_PREFIX_CHARACTERS)) + 1
    for index in range(start, start + line_count):
        above = "".join(lines[:index])[cut:]
        below = "\n" + "".join(lines[index + 1 :])[:MAX_SUFFIX_CHARACTERS]
        for word in WORD_END.finditer(lines[index]):
            yield Cursor(above + lines[index][: word.end()], below)


def measure(conversation: Conversation, cursor: Cursor, max_tokens: int) -> Measured:
    """One completion, with its time from the request to the response."""
    request = FimRequest(cursor.prefix, cursor.suffix, max_tokens, timeout_seconds=ENGINE_TIMEOUT_SECONDS)
    started_at = time.perf_counter()
    totals = _loaded(conversation, request)
    return Measured(
        time.perf_counter() - started_at, totals.completion_tokens, totals.prompt_tokens, totals.cached_tokens
    )


def row(name: str, measured: Sequence[Measured]) -> str:
    """A row of the table."""
    seconds = sorted(each.seconds for each in measured)
    cuts = quantiles(seconds, n=20, method="inclusive") if len(seconds) > 1 else seconds * 19
    tokens = sum(each.tokens for each in measured) / len(measured)
    new = sum(each.prompt_tokens - each.cached_tokens for each in measured) / len(measured)
    return (
        f"| {name} | {len(measured)} | {new:.0f} | {tokens:.1f} | {1000 * cuts[9]:.0f} ms | {1000 * cuts[18]:.0f} ms |"
    )


def _loaded(conversation: Conversation, request: FimRequest) -> Totals:
    """What the completion cost; waits for the model to load."""
    while True:
        *_, end = conversation.fill(request, Flag())
        assert isinstance(end, Finished)
        if end.finish_reason != "model_loading":
            return end.totals
        time.sleep(LOADING_PAUSE_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--profile", default="code")
    parser.add_argument("--lines", type=int, default=6, help="lines to type in each file")
    parser.add_argument("--tokens", type=int, default=30, help="the limit of a completion")
    given = parser.parse_args()
    with Conversation(SessionRequest(settings=read_settings(given.profile), kind="completion")) as conversation:
        _loaded(conversation, FimRequest("x = ", max_tokens=1))
        measured = [
            measure(conversation, cursor, given.tokens)
            for path in given.files
            for cursor in cursors(path.read_text(), given.lines)
        ]
    warm = [each for each in measured if each.is_warm]
    print("| completions | count | new prompt tokens | tokens | median | p95 |\n|---|---|---|---|---|---|")
    for name, rows in (("at first in a file", [each for each in measured if not each.is_warm]), ("warm", warm)):
        if rows:
            print(row(name, rows))
    full = [each for each in warm if each.tokens >= given.tokens]
    if full:
        print(row(f"warm, with all {given.tokens} tokens", full))


if __name__ == "__main__":
    main()
