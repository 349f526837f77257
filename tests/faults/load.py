"""Several clients of one engine process: eight of all kinds for a while, or a short question behind long answers."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from threading import Event as Flag
from threading import Thread

from specchat.chat.events import Event, Failed, Finished, StepDone, TextDelta
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import EDIT_TASK, Attachment, Request
from specchat.errors import SpecchatError
from specchat.host.client import Conversation, SessionRequest
from specchat.profile.settings import read_settings

CLIENTS = {"chat": 3, "edit": 2, "completion": 3}
TYPING_SECONDS = (0.3, 1.5)  # the pause of an editor's user before the next completion
QUESTIONS = (
    "why is the sky blue?", "what is 3 + 4?", "repeat after me: one two one two one two", "tell me about rivers",
    "write a function that adds two numbers",
)  # fmt: skip
SOURCE = "".join(f"def value_{n}(first, second):\n    return first * {n} + second\n\n\n" for n in range(12))
PREFIX = SOURCE + "def add(first, second):\n    return "
LONG_ANSWERS = 4  # at once, before a short question
LONG_ANSWER = Request("Write a long story about a river.", max_tokens=400)
SHORT_QUESTION = Request("what is 3 + 4?", max_tokens=8)
LONGEST_SILENCE_SECONDS = 60.0  # longer, and a client counts as starved


@dataclass
class Client:
    """What one client has seen: how long each request took, and the longest time without any step of it."""

    kind: str
    seconds: list[float] = field(default_factory=list)
    longest_silence: float = 0.0
    failures: list[str] = field(default_factory=list)

    @property
    def is_starved(self) -> bool:
        return not self.seconds or self.longest_silence > LONGEST_SILENCE_SECONDS


@dataclass(frozen=True)
class LoadResult:
    clients: tuple[Client, ...]
    processors: float  # which the engine process had on average, 2 of them at most on a machine with two

    def seconds_of(self, kind: str) -> list[float]:
        return sorted(seconds for each in self.clients if each.kind == kind for seconds in each.seconds)

    def count(self, kind: str) -> int:
        return len(self.seconds_of(kind))

    def quantile(self, kind: str, share: float) -> float:
        seconds = self.seconds_of(kind)
        return seconds[min(int(share * len(seconds)), len(seconds) - 1)] if seconds else float("nan")

    @property
    def failures(self) -> list[str]:
        return [failure for each in self.clients for failure in each.failures]

    @property
    def starved(self) -> list[Client]:
        return [each for each in self.clients if each.is_starved]


def run_load(seconds: float, seed: int, overrides: dict[str, object]) -> LoadResult:
    """Load the models, and let all clients work for so long; each makes one request, and ends its last one."""
    with Conversation(SessionRequest(settings=read_settings("chat", overrides))) as first:
        for _event in first.ask(Request("what is 3 + 4?", max_tokens=4)):
            pass
        host = int(first.call("hello")["pid"])
    started_at, used_seconds = time.monotonic(), processor_seconds(host)
    clients = [Client(kind) for kind, count in CLIENTS.items() for _ in range(count)]
    deadline = time.monotonic() + seconds
    threads = [
        Thread(target=_work, args=(client, deadline, random.Random(seed + number), overrides), daemon=True)
        for number, client in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    for client, thread in zip(clients, threads, strict=True):
        thread.join(max(deadline - time.monotonic(), 0) + 2 * LONGEST_SILENCE_SECONDS)
        if thread.is_alive():
            client.failures.append(f"a {client.kind} did not end")
    processors = (processor_seconds(host) - used_seconds) / (time.monotonic() - started_at)
    return LoadResult(tuple(clients), processors)


def processor_seconds(process_id: int) -> float:
    """What a process has computed so far; 0 where the system does not tell."""
    file = Path(f"/proc/{process_id}/stat")
    if not file.exists():
        return 0.0
    user, system = file.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _work(client: Client, deadline: float, dice: random.Random, overrides: dict[str, object]) -> None:
    one_request: Callable[[Client, Conversation, random.Random], None]
    one_request = {"chat": _chat, "edit": _edit, "completion": _complete}[client.kind]
    try:
        with Conversation(SessionRequest(kind=client.kind, settings=read_settings("chat", overrides))) as talk:
            while not client.seconds or time.monotonic() < deadline:
                started_at = time.monotonic()
                one_request(client, talk, dice)
                client.seconds.append(time.monotonic() - started_at)
                time.sleep(min(dice.uniform(*TYPING_SECONDS), max(deadline - time.monotonic(), 0)))
    except SpecchatError as error:
        client.failures.append(f"{client.kind}: {error}")


def _chat(client: Client, talk: Conversation, dice: random.Random) -> None:
    _listen(client, talk, Request(dice.choice(QUESTIONS), max_tokens=48))
    if len(client.seconds) % 4 == 3:
        talk.rewind(4)  # the conversation stays within the context window


def _edit(client: Client, talk: Conversation, dice: random.Random) -> None:
    file = Attachment("values.py", SOURCE)
    instruction = f"rename value_{dice.randrange(12)} to total"
    _listen(client, talk, Request(instruction, (file,), 400, task=EDIT_TASK, file_to_rewrite=file.name))
    talk.rewind()


def _complete(client: Client, talk: Conversation, dice: random.Random) -> None:
    gap = FimRequest(PREFIX + dice.choice(["", "first ", "first + "]), max_tokens=16, max_lines=1)
    *_, end = talk.fill(gap, Flag())
    assert isinstance(end, Finished)
    if end.finish_reason in ("model_loading", "cancelled"):
        client.failures.append(f"completion: {end.finish_reason} {end.explanation}")


def _listen(client: Client, talk: Conversation, request: Request) -> None:
    end: Event | None = None
    heard_at = time.monotonic()
    for event in talk.ask(request):
        if isinstance(event, StepDone | Finished | Failed):
            now = time.monotonic()
            client.longest_silence, heard_at = max(client.longest_silence, now - heard_at), now
        end = event
    if not isinstance(end, Finished):
        client.failures.append(f"{client.kind}: {end}")


@dataclass
class LongAnswers:
    """What the clients with long answers have got so far: the seconds that each of their steps was computed."""

    step_seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    have_enough: Flag = field(default_factory=Flag)

    def ask(self, overrides: dict[str, object]) -> None:
        """One long answer after the other, until the last short question is answered."""
        client = Client("chat")
        with Conversation(SessionRequest(settings=read_settings("chat", overrides))) as talk:
            while not self.have_enough.is_set() and not client.failures:
                for event in talk.ask(LONG_ANSWER, self.have_enough):
                    if isinstance(event, StepDone):
                        self.step_seconds.append(event.seconds)
                    elif isinstance(event, Failed):
                        client.failures.append(event.message)
                talk.rewind()
        self.failures += client.failures


@dataclass(frozen=True)
class FirstText:
    """Of a short question: the time to its first text, and the steps of other answers before it."""

    seconds: float
    other_steps: int


@dataclass(frozen=True)
class FirstTexts:
    """Those of several short questions, one after the other, each behind long answers."""

    questions: tuple[FirstText, ...]
    step_seconds: float  # of the other answers, the median
    failures: tuple[str, ...]

    def quantile(self, share: float) -> FirstText:
        by_time = sorted(self.questions, key=lambda each: each.seconds)
        return by_time[min(int(share * len(by_time)), len(by_time) - 1)]


def run_behind(count: int, overrides: dict[str, object]) -> FirstTexts:
    """Ask so many short questions while others get long answers, each in a conversation of its own."""
    others = LongAnswers()
    threads = [Thread(target=others.ask, args=(overrides,), daemon=True) for _ in range(LONG_ANSWERS)]
    questions = list[FirstText]()
    with Conversation(SessionRequest(settings=read_settings("chat", overrides))) as first:
        list(first.ask(SHORT_QUESTION))  # the models are loaded
    for thread in threads:
        thread.start()
    try:
        for _ in range(count):
            steps = len(others.step_seconds)
            while len(others.step_seconds) < steps + 4 * LONG_ANSWERS:
                time.sleep(0.01)
            questions.append(_first_text(others, overrides))
    finally:
        others.have_enough.set()
        for thread in threads:
            thread.join(LONGEST_SILENCE_SECONDS)
    return FirstTexts(tuple(questions), median(others.step_seconds), tuple(others.failures))


def _first_text(others: LongAnswers, overrides: dict[str, object]) -> FirstText:
    with Conversation(SessionRequest(settings=read_settings("chat", overrides))) as talk:
        steps, asked_at, found = len(others.step_seconds), time.monotonic(), None
        for event in talk.ask(SHORT_QUESTION):
            if found is None and isinstance(event, TextDelta):
                found = FirstText(time.monotonic() - asked_at, len(others.step_seconds) - steps)
    assert found is not None, "a short question without a text"
    return found
