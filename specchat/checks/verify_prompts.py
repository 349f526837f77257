"""What `specchat verify` decodes, as tokens: built-in prompts, those of a file, or those of a stored conversation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path

from specchat.chat.request import Request
from specchat.checks.builtin_prompts import BUILTIN_REQUESTS
from specchat.checks.prompt_files import read_prompts
from specchat.checks.tokenized_prompts import tokenize_prompts
from specchat.errors import InputError
from specchat.history.history_reader import HistoryReader
from specchat.host.spawn import history_path
from specchat.loading.load_engine import Engine


def requests_of(prompts_path: Path | None) -> Iterator[Request]:
    """The prompts of a file or folder, or the built-in ones, one of each kind in turn."""
    if prompts_path:
        return read_prompts(prompts_path)
    by_turns = zip(*(requests[:3] for requests in BUILTIN_REQUESTS.values()), strict=True)
    return chain.from_iterable(by_turns)


def tokenized_prompts(requests: Iterator[Request], engine: Engine, count: int, limit: int) -> list[list[int]]:
    if prompts := tokenize_prompts(engine, requests, count, limit):
        return [prompt.token_ids for prompt in prompts]
    raise InputError("none of the prompts fits the context window of this model together with its answer")


def stored_prompts(session_id: str, engine: Engine) -> Iterator[list[int]]:
    path = history_path()
    reader = HistoryReader(path) if path.is_file() else None
    thread = reader.thread(session_id) if reader else None
    if reader is None or thread is None:
        raise InputError(f"{session_id}: no such conversation, or several begin with it; see 'specchat sessions list'")
    with closing(reader):
        turns = [list(turn.answer.prompt_ids) for turn in reader.turns(thread.tip) if turn.answer.prompt_ids]
    target = engine.models.target
    fitting = [ids for ids in turns if max(ids) < target.vocab_size and len(ids) < target.context_window]
    if not fitting:
        raise InputError(f"{session_id}: none of its {len(turns)} turns can be replayed by this model; name its own")
    yield from fitting
