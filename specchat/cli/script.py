"""`specchat script`, which is also `specchat -p TEXT --json`: events as JSON lines for programs.

    {"type":"init", ...}               first
    {"type":"update","update":{...}}   a piece of the answer, as in the Agent Client Protocol
    {"type":"event","event":"steps", ...}   everything else that happens
    {"type":"permission", ...}         a file is to be written, with `--edit ask`; waits for {"type":"permission",
                                       "id":..., "option":"allow"} on standard input
    {"type":"result", ...}             last, once for each question

Consumers ignore types and fields that they do not know; `v` changes only for breaks.
"""

from __future__ import annotations

import json
import queue
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Event as Flag
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

import click

from specchat import __version__
from specchat.chat.answer_format import Structure
from specchat.chat.attachments import decode_text
from specchat.chat.events import Event, Failed, Finished, Text, Totals
from specchat.chat.request import MAX_ATTACHED_BYTES, Request
from specchat.cli.format_options import chosen_structure, structure_options
from specchat.cli.main import INTERRUPTED
from specchat.cli.options import chosen_profile, profile_options
from specchat.cli.session_options import continued, open_hosted, wish
from specchat.errors import ContextError, SpecchatError, UsageError
from specchat.host.client import Conversation
from specchat.host.protocol import NAMES, Json, event_to_json
from specchat.repl.interrupt import stoppable

if TYPE_CHECKING:
    from specchat.cli.script_edits import Edits

VERSION = 1
LOOK_SECONDS = 0.05  # how often a waiting question looks whether anybody is still there
STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "cancelled": "cancelled"}
ERROR_CODES = {2: "usage", 6: "too_long", 7: "model_missing", INTERRUPTED: "cancelled"}
ENGINE = "the engine"  # how its own failures begin; models that cannot be used have the same exit code


@click.command()
@click.option("-p", "--print", "text", default="", help="The question; - reads it from standard input.")
@click.option("--json", "is_json", is_flag=True, help="Every event as one JSON object a line.")
@click.option("--json-once", is_flag=True, help="Only the last object, the result.")
@click.option("--input", "input_format", type=click.Choice(["text", "jsonl"]), default="text", help="How stdin speaks.")
@click.option("-c", "--continue", "is_last", is_flag=True, help="Go on with the last conversation of this folder.")
@click.option("-r", "--resume", "session", default="", help="Go on with this conversation.")
@click.option("--edit", "edits", type=click.Choice(["none", "ask", "auto"]), default="none", show_default=True,
              help="May files be edited, by '/edit FILE INSTRUCTION'? 'ask' needs --input jsonl.")  # fmt: skip
@structure_options
@profile_options
def script(text: str, is_json: bool, json_once: bool, input_format: str, edits: str, **options: Any) -> int:
    """Answer one question for a program, or many, one JSON line each."""
    is_lines = input_format == "jsonl"
    if not text and not is_lines:
        raise UsageError("nothing was asked; give -p TEXT, -p - for standard input, or --input jsonl")
    if text and is_lines:
        raise UsageError("-p and --input jsonl are two ways to ask; give one of them")
    if not (is_json or json_once or is_lines):
        raise UsageError("a question for a program needs --json or --json-once; 'specchat ask' answers people")
    if edits == "ask" and not is_lines:
        raise UsageError("--edit ask needs --input jsonl, on which the answers come; --edit auto asks nobody")
    session, is_last = options.pop("session"), options.pop("is_last")
    structure = chosen_structure(options)
    writer = Writer(is_quiet=json_once)
    try:
        with open_hosted(continued(wish(options), session, is_last=is_last)) as conversation:
            writer.begin(conversation, {} if session or is_last else _models(options))
            writer.edits = _edits(edits, options)
            if is_lines:
                return Dialogue(conversation, writer).run(_input_lines())
            question = (
                decode_text(sys.stdin.buffer.read(MAX_ATTACHED_BYTES + 1), "standard input") if text == "-" else text
            )
            with stoppable() as stopped:
                code = writer.answer(conversation, Request(whole(question), structure=structure), stopped)
            return stopped.exit_code if stopped.is_set() else code
    except SpecchatError as error:
        writer.fail(str(error), error.exit_code)
        return error.exit_code


def whole(text: str) -> str:
    """A text that can be sent. UsageError for half a character, as bytes that are no UTF-8 leave it in an argument."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the question is no text: character {error.start + 1} is not whole") from None
    return text


def _edits(edits: str, options: dict[str, Any]) -> Edits | None:
    """Who edits, if somebody may."""
    if edits == "none":
        return None
    from specchat.cli.script_edits import Edits  # grammars and all; most programs edit nothing

    return Edits(replace(wish(options, kind="edit"), profile="edit"), is_asking=edits == "ask")


def _models(options: dict[str, Any]) -> dict[str, str]:
    """Who answers and who guesses; a conversation of yesterday keeps its own, which only the host knows."""
    models = chosen_profile(options).models
    return {"model": models.target, "draft": models.draft}


def _input_lines() -> Iterator[str]:
    for line in sys.stdin.buffer:
        yield line.decode("utf-8", "replace")


@dataclass
class Writer:
    """Objects to stdout, one a line, each flushed."""

    is_quiet: bool = False
    session: str = ""
    turns: int = 0
    edits: Edits | None = None
    lock: Lock = field(default_factory=Lock)  # complaints of the input come from another thread

    def begin(self, conversation: Conversation, models: dict[str, str]) -> None:
        """Say who speaks."""
        self.session = conversation.session
        facts = {
            "session_id": self.session,
            "version": __version__,
            "cwd": str(Path.cwd()),
            "profile": conversation.profile,
        }
        self.write({"type": "init", "v": VERSION, **facts, **models})

    def answer(self, conversation: Conversation, request: Request, stopped: Flag) -> int:
        """One question, or one edit, to its end; returns the exit code."""
        if self.edits and self.edits.are_wanted(request.text):
            return self._edit(self.edits, request.text, stopped)
        begun, said, end = time.monotonic(), [], None
        for event in conversation.ask(request, stopped):
            self.write(_line(event))
            if isinstance(event, Text):
                said.append(event.text)
            elif isinstance(event, Finished | Failed):
                end = event
        self.turns += 1
        if request.structure and isinstance(end, Finished) and end.reason == "length":
            end = Failed(request.structure.when_cut, ContextError.exit_code)
        return self._end(end, "".join(said), int(1000 * (time.monotonic() - begun)))

    def _edit(self, edits: Edits, text: str, stopped: Flag) -> int:
        begun = time.monotonic()
        self.turns += 1
        try:
            done = edits.run(text, self.update, lambda event: self.write(_line(event)), stopped)
        except (SpecchatError, OSError) as error:
            code = error.exit_code if isinstance(error, SpecchatError) else 1
            self.fail(str(error), code, milliseconds=int(1000 * (time.monotonic() - begun)))
            return code
        return self._end(Finished("stop", done.totals), done.text, int(1000 * (time.monotonic() - begun)))

    def _end(self, end: Event | None, text: str, milliseconds: int) -> int:
        if not isinstance(end, Finished):
            message, code = (end.message, end.exit_code) if isinstance(end, Failed) else ("no answer", 1)
            self.fail(message, code, text, milliseconds)
            return code
        code = INTERRUPTED if end.reason == "cancelled" else 0
        error = {"error": {"code": "cancelled", "message": "the answer was stopped"}} if code else {}
        numbers = _numbers(end.totals)
        facts = {"is_error": bool(code), "stop_reason": STOP_REASONS.get(end.reason, end.reason), "result": text}
        self._result({**facts, "duration_ms": milliseconds, **numbers, **error})
        return code

    def fail(self, message: str, code: int, text: str = "", milliseconds: int = 0) -> None:
        """A result that is none."""
        is_engine = message.startswith(ENGINE)
        error = {"code": "engine" if is_engine else ERROR_CODES.get(code, "engine"), "message": message}
        self._result({"is_error": True, "result": text, "duration_ms": milliseconds, "error": error})

    def _result(self, facts: dict[str, Any]) -> None:
        result = {"type": "result", "session_id": self.session, "num_turns": self.turns, **facts}
        self.write(result, is_last=True)

    def update(self, update: Json) -> None:
        """An update of the Agent Client Protocol."""
        self.write({"type": "update", "update": update})

    def write(self, line: dict[str, Any], *, is_last: bool = False) -> None:
        """One object."""
        if is_last or not self.is_quiet:
            with self.lock:
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()


def _line(event: Event) -> dict[str, Any]:
    """Text in the words of the Agent Client Protocol, everything else in our own."""
    if isinstance(event, Text):
        content = {"type": "text", "text": event.text}
        return {"type": "update", "update": {"sessionUpdate": "agent_message_chunk", "content": content}}
    return {"type": "event", "event": NAMES[type(event)], **event_to_json(event)}


def _numbers(totals: Totals) -> dict[str, Any]:
    return {
        "usage": {
            "input_tokens": totals.prompt_tokens,
            "output_tokens": totals.tokens,
            "cached_tokens": totals.reused_tokens,
        },
        "spec": {"drafted": totals.drafted, "accepted": sum(totals.accepted.values()), "steps": totals.steps},
        "ttft_ms": int(1000 * totals.first_token_seconds),
        "tok_per_s": round(totals.tokens_per_second, 1),
        "totals": asdict(totals),
    }


@dataclass(frozen=True)
class Question:
    """What a line asks, and the flag that ends its answer."""

    request: Request
    cancelled: Flag = field(default_factory=Flag)


@dataclass
class Dialogue:
    """`--input jsonl`: questions and cancels come as lines while answers go out."""

    conversation: Conversation
    writer: Writer
    questions: queue.SimpleQueue[Question | None] = field(default_factory=queue.SimpleQueue)
    asked: list[Question] = field(default_factory=list)
    permissions: dict[str, queue.SimpleQueue[str]] = field(default_factory=dict)  # that were asked for
    has_ended: Flag = field(default_factory=Flag)  # nobody answers any more

    def run(self, lines: Iterable[str]) -> int:
        """Answer in order until the input ends; what was asked before is still answered. Returns the last exit code."""
        if self.writer.edits:
            self.writer.edits.permission = self.ask
        Thread(target=self._listen, args=(lines,), daemon=True).start()
        code = 0
        while (question := self.questions.get()) is not None:
            with stoppable() as stopped:
                code = self.writer.answer(self.conversation, question.request, _either(stopped, question.cancelled))
            if stopped.is_set():
                return stopped.exit_code
        return code

    def ask(self, id: str, call: Json, stopped: Flag) -> str:
        """May this be written? Nobody says yes once the input has ended or the turn is stopped."""
        from specchat.cli.script_edits import OPTIONS, REJECT

        answers = self.permissions[id] = queue.SimpleQueue()
        self.writer.write({"type": "permission", "id": id, "toolCall": call, "options": OPTIONS}, is_last=True)
        try:
            while not (stopped.is_set() or self.has_ended.is_set()):
                with suppress(queue.Empty):
                    return answers.get(timeout=LOOK_SECONDS)
            return answers.get_nowait() if not answers.empty() else REJECT
        finally:
            del self.permissions[id]

    def _listen(self, lines: Iterable[str]) -> None:
        for number, line in enumerate(lines, start=1):
            if line.strip() and (problem := self._take(line)):
                fault = {"type": "error", "code": "bad_input", "line": number, "message": problem}
                self.writer.write(fault, is_last=True)
        self.has_ended.set()
        self.questions.put(None)

    def _take(self, line: str) -> str:
        """Do what a line says; what is wrong with it, if anything is."""
        try:
            said = json.loads(line)
            match said["type"]:
                case "user":
                    self.asked.append(Question(Request(whole(said["text"]), structure=Structure.among(said))))
                    self.questions.put(self.asked[-1])
                case "cancel":
                    for question in self.asked:
                        question.cancelled.set()
                case "permission":
                    self.permissions[said["id"]].put(_option(said["option"]))
                case unknown:
                    return f"unknown type {unknown!r}"
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return f"not understood: {type(error).__name__}"
        except UsageError as error:
            return str(error)
        return ""


def _option(given: str) -> str:
    """UsageError for what was not offered."""
    from specchat.cli.script_edits import OPTIONS

    known = [str(each["optionId"]) for each in OPTIONS]
    if given not in known:
        raise UsageError(f"there is no option {given!r}; known are {', '.join(known)}")
    return given


def _either(first: Flag, second: Flag) -> Flag:
    """A flag that is set when one of two is."""
    both = Flag()
    both.is_set = lambda: first.is_set() or second.is_set()  # type: ignore[method-assign]
    return both
