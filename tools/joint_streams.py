"""Streams of one engine process side by side: their tokens per second together, against one stream.

    python -m tools.joint_streams --streams 1,2,4 --rounds 5

All clients talk to one host, each with a question of its own that gets as many tokens as it is asked for. In each round
every number of streams has its turn, so that other load meets them alike; the ratio is that of the medians. The texts
must be those of each question alone: the exit code is 1 when one is not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from threading import Barrier, Thread

import click

from specchat.chat.events import Failed, StepDone
from specchat.chat.request import Request
from specchat.host.client import Conversation, SessionRequest
from specchat.profile.settings import read_settings
from specchat_bench.columns import markdown_table
from tests.faults.load import processor_seconds
from tools.instrument import run_instrument

QUESTIONS = (
    "Write a long story about a river.", "Write a Python class for a bank account with tests.",
    "Explain how a bicycle stays upright.", "Write a function that merges two sorted lists, and explain each line.",
    "Describe a walk through a harbour town.", "Write a parser for numbers and sums in Python.",
    "Explain what a hash table is.", "Write a letter to a friend about the sea.",
)  # fmt: skip


@dataclass
class Stream:
    """A client with its question: the tokens of its last answer, and when they came."""

    talk: Conversation
    request: Request
    tokens: list[int] = field(default_factory=list[int])
    began_at: float = 0.0  # its first step
    ended_at: float = 0.0
    failure: str = ""

    def ask(self, begin: Callable[[], object]) -> None:
        """Ask, and forget the answer; the next one is the same."""
        self.tokens, self.began_at = [], 0.0
        begin()
        for event in self.talk.ask(self.request):
            if isinstance(event, StepDone):
                self.ended_at = time.perf_counter()
                self.began_at = self.began_at or self.ended_at
                self.tokens += [token.token_id for token in event.committed_tokens]
            elif isinstance(event, Failed):
                self.failure = event.message
        self.talk.rewind()


@dataclass
class Measured:
    """The rounds of one number of streams."""

    count: int
    tokens_per_second: list[float] = field(default_factory=list[float])
    tokens_per_processor_second: list[float] = field(default_factory=list[float])

    def add(self, streams: list[Stream], processor_seconds: float) -> None:
        """From the first step of the first stream to the last of the last one, without the prompts.

        The processor's seconds are those of the engine process, prompts included, which other load changes less.
        """
        seconds = max(each.ended_at for each in streams) - min(each.began_at for each in streams)
        tokens = sum(len(each.tokens) for each in streams)
        self.tokens_per_second.append(tokens / seconds)
        self.tokens_per_processor_second.append(tokens / processor_seconds)


@dataclass(frozen=True)
class Kind:
    """A drafter and a temperature."""

    drafter: str
    temperature: float

    def streams(self, count: int, tokens: int) -> list[Stream]:
        overrides = {
            "speculation.variant": self.drafter, "sampling.temperature": self.temperature, "sampling.seed": 11,
            "limits.repeats": 0,
        }  # fmt: skip
        session = SessionRequest(settings=read_settings("chat", overrides), is_stored=False)
        return [Stream(Conversation(session), Request(each, max_tokens=tokens)) for each in QUESTIONS[:count]]


def run_together(streams: list[Stream]) -> None:
    begin = Barrier(len(streams)).wait
    threads = [Thread(target=each.ask, args=(begin,), daemon=True) for each in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measure(kind: Kind, counts: list[int], rounds: int, tokens: int) -> tuple[list[Measured], list[str]]:
    """The rounds of each number of streams, and what was wrong with their texts."""
    streams, faults = kind.streams(max(counts), tokens), list[str]()
    alone, host = list[list[int]](), int(streams[0].talk.call("hello")["pid"])
    for each in streams:
        run_together([each])
        alone.append(each.tokens)
    measured = [Measured(count) for count in counts]
    for _round in range(rounds):
        for row in measured:
            together, used = streams[: row.count], processor_seconds(host)
            run_together(together)
            row.add(together, processor_seconds(host) - used)
            for number, (stream, text) in enumerate(zip(together, alone, strict=False)):
                if stream.failure or stream.tokens != text:
                    faults.append(f"{kind}, {row.count} streams: text {number} differs {stream.failure}")
    for each in streams:
        each.talk.close()
    return measured, faults


@click.command("joint_streams")
@click.option("--streams", default="1,2,4", show_default=True, help="Numbers of streams, separated by commas.")
@click.option("--rounds", default=5, show_default=True, help="Repetitions; all numbers of streams take turns.")
@click.option("--tokens", default=96, show_default=True, help="Tokens of each answer.")
@click.option("--drafters", default="plain,auto", show_default=True, help="Drafters, separated by commas.")
@click.option("--temperatures", default="0,0.2", show_default=True, help="Temperatures, separated by commas.")
def joint_streams(streams: str, rounds: int, tokens: int, drafters: str, temperatures: str) -> int:
    """Measure streams of one engine process side by side, against one stream."""
    counts, table, faults = [int(each) for each in streams.split(",")], list[list[str]](), list[str]()
    for kind in [Kind(name, float(each)) for name in drafters.split(",") for each in temperatures.split(",")]:
        measured, found = measure(kind, counts, rounds, tokens)
        faults += found
        one, per_processor = median(measured[0].tokens_per_second), median(measured[0].tokens_per_processor_second)
        for row in measured:
            speeds = row.tokens_per_second
            table.append([
                kind.drafter, f"{kind.temperature:g}", str(row.count), f"{median(speeds):.1f}",
                f"{min(speeds):.1f} to {max(speeds):.1f}", f"{median(speeds) / one:.2f}",
                f"{median(row.tokens_per_processor_second) / per_processor:.2f}",
            ])  # fmt: skip
    titles = [
        "drafter",
        "T",
        "streams",
        "tokens/s together",
        "lowest to highest",
        "against one",
        "per processor second",
    ]
    print(markdown_table(titles, table))
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(run_instrument(joint_streams))
