"""A fake engine without a model: the question determines the answer.

"count 5"        five words, one per step, the last one with the seed
"guess 5"        five steps: an accepted token of lookup, a rejected one of draft, and "so " from the target
"slowly 5"       as "count", with a pause after each step
"think 5"        five words of thinking, one per step, and then "so it is"
"call f {"x": 1} & g {}"
                 some text, and then these calls of tools, each in three pieces
"recall"         the earlier turns, each question and its answer
"settings a.b"   the values of these keys of the profile, as JSON
"big 3000000"    this many characters, quickly
"read"           a prefill that lasts until it is cancelled
"crash" "fail"   an unexpected exception, an error of specchat
"stuck"          a step that never ends
"int64 5"        this many steps, the last one with a number that JSON does not know; "memory 5": one without memory
"agent\\n..."      answers that the next lines script, one each: "call read {...}" calls a tool, "repeat read {..." ends
                 with `repetition` in a call, all else is said; "notice TEXT | ..." has a notice before it
"exit" "load"    the end of the engine thread, in a step and between two steps

A request that forces a tool gets a call of it, and one with results and without a question gets the results as text.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag
from typing import Any

from specchat.chat.events import (
    NO_OUTPUT_YET,
    REPETITION,
    TOOL_CALLS,
    CommittedToken,
    Event,
    Finished,
    LikelyToken,
    LoadingProgress,
    Notice,
    PrefillProgress,
    PromptTokens,
    Routed,
    StepDone,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Totals,
)
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import Request
from specchat.chat.tools import ANY_TOOL, CALL_OR_ANSWER, NO_TOOL, SOME_TOOL
from specchat.chat.transcript import Question, TextOwner, Turn
from specchat.errors import ContextError, ModelError
from specchat.host.engine_interface import EngineMemory
from specchat.host.engine_loader import LOADING, EngineLoader
from specchat.paths import KV_FILE_ENDING, configuration_folder, kv_folder
from specchat.profile.keys import Profile
from specchat.text.detokenize import StopStrings

PAUSE_SECONDS = 0.005


class NoMemory(dict[str, int]):
    """A mapping that nobody can copy for lack of memory."""

    def __init__(self, *values: Any) -> None:
        if values:
            raise MemoryError
        super().__init__()


class FakeAnswer:
    def __init__(self, engine: FakeEngine, question: Question, cancelled: Flag) -> None:
        self.engine, self.question, self.cancelled, self.turns = engine, question, cancelled, question.turns
        self.fails_in_set_load = False
        self.repeats = False

    def set_load(self, waiting_requests: int, *, is_urgent: bool = False) -> None:
        if self.fails_in_set_load:
            raise RuntimeError("set_load")

    def events(self) -> Iterator[Event]:
        request, cancelled, owner = self.question.request, self.cancelled, self.question.owner
        seeds = (request.seed, self.question.profile.sampling.seed)
        seed = next((each for each in seeds if each is not None), secrets.randbits(31))
        variant = request.variant or self.question.profile.speculation.variant
        yield Routed("lookup" if variant == "auto" else variant, 4, "because it is a fake", seed)
        turn = Turn(
            request.text, seed=seed, prompt_ids=(1, 2, 3), rendered_prompt="<user>", tool_results=request.tool_results
        )
        totals, said, calls = Totals(prompt_tokens=3, seconds=0.2, ttft_seconds=0.1), list[str](), list[str]()
        try:
            for event in self._answer(request, seed, cancelled):
                yield event
                match event:
                    case TextDelta(text=text):
                        said.append(text)
                    case ToolCallDelta(name=name, arguments=arguments):
                        calls.append(f"+{name}" if name else arguments)
                    case ThinkingDelta():
                        thought = totals.thinking_tokens + 1
                        totals = replace(totals, thinking_tokens=thought, thinking_seconds=float(thought))
                    case StepDone():
                        ids = tuple(token.token_id for token in event.committed_tokens)
                        turn = replace(turn, answer_ids=turn.answer_ids + ids)
                        totals = replace(
                            totals,
                            acceptance=totals.acceptance + event.acceptance,
                            steps=totals.steps + 1,
                            completion_tokens=totals.completion_tokens + len(event.committed_tokens),
                        )
                if cancelled.is_set():
                    break
            reason = "cancelled" if cancelled.is_set() else TOOL_CALLS if calls else "stop"
            reason = REPETITION if self.repeats else reason
            self.engine.keep(owner, len(self.turns) + 1)
        finally:
            self.turns = (*self.turns, replace(turn, answer="".join([*said, *calls])))
        yield Finished(reason, totals)

    def _answer(self, request: Request, seed: int, cancelled: Flag) -> Iterator[Event]:
        script = self.engine.scripts.setdefault(self.question.owner.name, [])
        if request.text.startswith("agent\n"):
            script[:] = request.text.split("\n")[1:]
        if not script:
            yield from self._events(request, seed, cancelled)
            return
        line = script.pop(0)
        if line.startswith("notice "):
            notice, _, line = line.removeprefix("notice ").partition(" | ")
            yield Notice(notice)
        yield PrefillProgress(3, 3)
        self.repeats = line.startswith("repeat ")
        if line.startswith(("call ", "repeat ")):
            yield from self._call([line.partition(" ")[2]])
        else:
            yield from self._step(line)

    def _events(self, request: Request, seed: int, cancelled: Flag) -> Iterator[Event]:
        verb, _, rest = request.text.partition(" ")
        self.fails_in_set_load = verb == "load"
        yield PrefillProgress(3, 3)
        if request.answer_prefix:
            yield TextDelta(request.answer_prefix)
        if verb in ("read", "crash", "fail", "stuck", "exit", "load"):
            yield from self._go_wrong(verb, cancelled)
        elif verb in ("int64", "memory"):
            yield from self._break(verb, int(rest))
        elif verb == "recall":
            yield from self._step("".join(map(_recalled, self.turns)))
        elif verb == "call":
            yield from self._step("so ")
            yield from self._call(rest.split(" & "))
        elif request.tool_choice not in (ANY_TOOL, NO_TOOL, CALL_OR_ANSWER):
            name = request.tools[0].name if request.tool_choice == SOME_TOOL else request.tool_choice
            yield from self._call([f"{name} {{}}"])
        elif request.tool_results and not request.text:
            yield from self._step(_results(request))
        elif verb == "settings":
            keys = [key.split(".") for key in rest.split()]
            profile = self.question.profile
            yield from self._step(json.dumps([getattr(getattr(profile, table), key) for table, key in keys]))
        elif verb == "think":
            yield from self._think(int(rest))
        else:
            yield from self._write(verb, rest, request, seed)

    def _go_wrong(self, verb: str, cancelled: Flag) -> Iterator[Event]:
        if verb == "crash":
            raise RuntimeError("out of memory\nand more")
        if verb == "fail":
            raise ContextError("too long")
        if verb == "exit":
            raise SystemExit
        while verb == "stuck":
            time.sleep(PAUSE_SECONDS)
        while not cancelled.wait(PAUSE_SECONDS):
            yield PrefillProgress(1, 3)

    def _break(self, verb: str, steps: int) -> Iterator[Event]:
        for number in range(1, steps + 1):
            token = _number_of_numpy() if verb == "int64" and number == steps else 1
            yield StepDone((token,), (0,), (CommittedToken(token, b"x", "lookup"),), 0.0, 0.0)
        if verb == "memory":
            yield Finished("stop", Totals(accepted_by_drafter=NoMemory()))

    def _think(self, words: int) -> Iterator[Event]:
        for number in range(words):
            yield ThinkingDelta(f"thought{number} ")
            yield from self._step("")
        for word in ("so ", "it ", "is"):
            yield from self._step(word)

    def _call(self, calls: Sequence[str]) -> Iterator[Event]:
        for index, call in enumerate(calls):
            name, _, arguments = call.partition(" ")
            id = f"call_{len(self.turns)}_{index}"
            yield ToolCallDelta(index, id, name)
            for piece in (arguments[:4], arguments[4:]):
                yield ToolCallDelta(index, id, arguments=piece)
            yield StepDone((1,), (0,), (CommittedToken(1, call.encode(), "lookup"),), 0.001, 0.002)

    def _write(self, verb: str, rest: str, request: Request, seed: int) -> Iterator[Event]:
        file = "".join(file.text for file in request.files)
        match verb:
            case "guess":
                for number in range(int(rest)):
                    yield from self._guess(f"word{number} ", request)
                return
            case "count" | "slowly":
                words = [*(f"word{number} " for number in range(int(rest) - 1)), f"seed {seed} turn {len(self.turns)}"]
            case "big":
                words = ["x" * 10_000] * (int(rest) // 10_000)
            case "replace":
                words = [file.replace(*rest.split()[:2])]
            case "fence":
                words = [f"```\n{file.replace(*rest.split()[:2])}\n```"]
            case "write":
                words = [rest]
            case _:
                words = [f"you said {request.text!r} with seed {seed}"]
        for word in words:
            yield from self._step(word)
            if verb == "slowly":
                time.sleep(PAUSE_SECONDS)

    def _guess(self, text: str, request: Request) -> Iterator[Event]:
        committed = (CommittedToken(1, text.encode(), "lookup"), CommittedToken(3, b"so ", "target"))
        if request.wants_probabilities:
            likeliest = (LikelyToken(b"yes ", 0.5), LikelyToken(b"so ", 0.25))
            committed = tuple(replace(token, probability=0.25, likeliest=likeliest) for token in committed)
        words = (text.encode(), b"no ")
        yield StepDone((1, 2), (0, 1), committed, 0.001, 0.002, words, ("lookup", "draft"))
        yield TextDelta(f"{text}so ")

    def _step(self, text: str) -> Iterator[Event]:
        committed = (CommittedToken(len(text), text.encode(), "lookup"), CommittedToken(7, b"", "target"))
        yield StepDone((len(text), 9), (0, 1), committed, 0.001, 0.002)
        yield TextDelta(text)


def _number_of_numpy() -> Any:
    """A number that JSON does not know."""
    import numpy  # half of the imports of the fake host, for a few tests

    return numpy.int64(1)


def _recalled(turn: Turn) -> str:
    calls = "".join(f"+{call.name}{call.arguments}" for call in turn.tool_calls)  # of one that was stored
    return f"{_results(turn)}{turn.user}={turn.answer}{calls};"


def _results(asked: Turn | Request) -> str:
    """The results of tools that were sent with a question: "[call_0_0 f: text]"."""
    return "".join(
        f"[{each.call_id} {each.name}{'!' if each.is_error else ''}: {each.text}]" for each in asked.tool_results
    )


END = "\0"  # the token that ends a text


class FakeCompleter:
    """Completes a text with the text before and after the gap, as many characters as tokens.

    "slowly" never ends; "endless" does not either, after a first text.
    """

    def __init__(self, engine: FakeEngine) -> None:
        self.explanation = "" if engine.fills_gaps else "no fill-in-the-middle tokens"

    def complete(self, request: FimRequest, cancelled: Flag) -> Iterator[Event]:
        if request.suffix and self.explanation:
            yield Finished("inside_line", Totals(), self.explanation)
            return
        prompt = "".join(map(chr, request.prompt_ids)) or (END if request.echoes_ends else request.prefix)
        if request.echoes:
            shares = [None, *([0.5] if request.wants_probabilities else [None]) * len(prompt)]
            letters = zip(prompt, shares, strict=False)
            yield PromptTokens(prompt, tuple(CommittedToken(ord(at), at.encode(), "", share) for at, share in letters))
        while request.prefix == "slowly" and not cancelled.wait(PAUSE_SECONDS):
            yield NO_OUTPUT_YET
        if request.prefix == "endless":
            yield TextDelta("begun")
            while not cancelled.wait(PAUSE_SECONDS):
                yield NO_OUTPUT_YET
        stops = StopStrings(request.stop)
        text = f"{prompt.upper()} {request.suffix.upper()}"
        if request.answer_format:
            text = f"in the form of {request.answer_format.kind}"
        for start in range(0, min(len(text), request.max_tokens), 3):
            piece = text[start : min(start + 3, request.max_tokens)]
            yield StepDone((), (), tuple(_letter(each, request) for each in piece), 0.0, 0.0)
            yield TextDelta(stops.push(piece))
        is_stopped = stops.is_found
        yield TextDelta(stops.flush())
        reason = "stop" if is_stopped else "length" if len(text) > request.max_tokens else "block"
        totals = Totals(prompt_tokens=len(prompt), completion_tokens=min(len(text), request.max_tokens), steps=1)
        yield Finished("cancelled" if cancelled.is_set() else reason, totals, self.explanation)

    def close(self) -> None:
        pass


def _letter(text: str, request: FimRequest) -> CommittedToken:
    token = CommittedToken(ord(text), text.encode(), "target")
    likeliest = (LikelyToken(token.token_bytes, 0.5, token.token_id), LikelyToken(b"x", 0.25, ord("x")))
    return replace(token, probability=0.5, likeliest=likeliest) if request.wants_probabilities else token


class FakeEngine:
    max_concurrent_turns = 2
    variants = frozenset({"auto", "plain", "lookup", "suffix"})

    def __init__(self, profile: str = "") -> None:
        self.fills_gaps = profile != "no gaps"
        self.scripts: dict[str, list[str]] = {}  # the answers that are left, by conversation
        self.kept: dict[TextOwner, int] = {}  # turns

    def answer(self, question: Question, cancelled: Flag) -> FakeAnswer:
        if question.profile.name == "sessionless":
            raise RuntimeError("no room")
        return FakeAnswer(self, question, cancelled)

    def keep(self, owner: TextOwner, turns: int) -> None:
        self.kept[owner] = turns

    def forget(self, name: str) -> None:
        self.kept = {owner: turns for owner, turns in self.kept.items() if owner.name != name}

    def drop_forgotten(self) -> None:
        pass

    def memory_bytes(self) -> dict[str, int]:
        """A hundred bytes for every turn."""
        return {"target": 1000, "kv_cache": 100 * sum(self.kept.values())}

    def activate(self) -> None:
        pass

    def close(self) -> None:
        for owner in self.kept:
            if not owner.is_private:
                kv_folder().mkdir(parents=True, exist_ok=True)
                (kv_folder() / f"{owner.name}.fake{KV_FILE_ENDING}").touch()


ODD_PROFILES = (
    "another", "broken", "endless", "late", "narrow", "no descriptors", "no gaps", "numbers", "sessionless", "stuck",
)  # fmt: skip


def write_odd_profiles() -> None:
    """Profiles whose names tell the fake engine what to do."""
    folder = configuration_folder() / "profiles"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ODD_PROFILES:
        (folder / f"{name}.toml").touch()


class FakeLoader(EngineLoader):
    """Loads fake engines. Profiles of the same name share one."""

    def load(self, profile: Profile, progress: Callable[[Event], None], cancelled: Flag) -> FakeEngine:
        if profile.name == "broken":
            raise ModelError("no such model")
        print("noise")
        with suppress(OSError):  # a native library does not mind a full disk
            os.write(1, b"more noise\n")
        progress(LOADING)
        step = 0
        while profile.name == "stuck":
            time.sleep(PAUSE_SECONDS)
        while profile.name == "endless" and not cancelled.wait(PAUSE_SECONDS):
            progress(LoadingProgress("target", step := step + 1, 0))
        progress(LoadingProgress("target", 1, 1))
        return FakeEngine(profile.name)

    def engine_key(self, profile: Profile) -> str:
        return profile.name

    def describe(self, profile: Profile) -> str:
        return profile.name

    def context_window(self, profile: Profile) -> int:
        if profile.name == "no descriptors":
            import resource

            resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) - 1,) * 2)
        return _number_of_numpy() if profile.name == "numbers" else {"narrow": 512}.get(profile.name, 0)

    def memory_of(self, profile: Profile) -> EngineMemory:
        return EngineMemory()

    def make_completer(self, engine: Any) -> FakeCompleter:
        return FakeCompleter(engine)
