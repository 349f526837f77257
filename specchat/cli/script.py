"""`specchat script`, which is also `specchat -p TEXT --json`: events as JSON lines for programs.

    {"type":"init", ...}               first
    {"type":"update","update":{...}}   a piece of the answer or a call of a tool, as in the Agent Client Protocol
    {"type":"event","event":"steps", ...}   everything else that happens
    {"type":"result", ...}             last

Consumers ignore unknown types and fields; `v` changes only with breaking changes.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Any

import click

from specchat import __version__
from specchat.app import updates
from specchat.app.agent.agent_loop import AgentEvent, CallFinished, CallProgressed, CallStarted, LoopEnded, RoundStarted
from specchat.app.ask import Answered, Asked, AskEvent, ask
from specchat.app.chat_state import ChatState
from specchat.app.question import Question
from specchat.chat.events import Event, Failed, Finished, Notice, Stage, TextDelta, ThinkingDelta, Totals
from specchat.chat.request import AnswerFormat
from specchat.chat.turn_summary import speculation_to_json, timing_to_json
from specchat.cli.ask import ENDED_EARLY_EXIT_CODE, STDIN, answer_once, check_utf8, read_stdin
from specchat.cli.main import CONNECTION_CLOSED, INTERRUPTED_EXIT_CODE
from specchat.cli.options import profile_options
from specchat.cli.question_options import (
    agent_options,
    answer_format_from_options,
    answer_format_options,
    command_chat,
    file_option,
    take_agent_mode,
)
from specchat.cli.session_options import open_host_conversation, private_option, resume_options, resume_request
from specchat.errors import HostError, SpecchatError, UsageError
from specchat.host.client import Conversation, SessionRequest
from specchat.host.protocol import EVENT_METHODS, JsonObject, event_to_json
from specchat.profile.shipped_drafters import with_shipped_drafters
from specchat.repl.answer_printer import CallPrinter, print_notice
from specchat.repl.interrupt import interruptible

if TYPE_CHECKING:
    from specchat.cli.script_edits import EditRunner

PROTOCOL_VERSION = 2
ERROR_CODES = {2: "usage", 6: "too_long", 7: "model_missing", INTERRUPTED_EXIT_CODE: "cancelled"}
ENGINE_ERROR_PREFIX = "the engine"  # how errors of the engine process begin; model errors have the same exit code


@click.command()
@click.option("-p", "--print", "text", default="", help="The question; - reads it from standard input.")
@file_option
@click.option("--json", "is_json", is_flag=True, help="Every event as one JSON object a line.")
@private_option
@resume_options
@click.option("--edit", "edits", type=click.Choice(["none", "auto"]), default="none", show_default=True,
              help="May files be edited, by '/edit FILE INSTRUCTION'?")  # fmt: skip
@agent_options
@answer_format_options
@profile_options
def script(text: str, files: tuple[str, ...], is_json: bool, edits: str, **options: Any) -> int:
    """Answer one question for a program, as JSON lines; without --json, the answer alone as `ask` does."""
    if not text:
        raise UsageError("no question; give -p TEXT, or -p - for standard input")
    if edits != "none" and not is_json:
        raise UsageError("--edit needs --json; 'specchat edit' edits without it")
    mode, allow = take_agent_mode(options)
    ask_by = partial(_question, text, files, answer_format_from_options(options))
    if not is_json:
        question = ask_by()
        with open_host_conversation(resume_request(options)) as conversation:
            return answer_once(command_chat(conversation, mode, allow), question)
    writer = JsonLinesWriter()
    try:
        request = resume_request(options)
        with open_host_conversation(request) as conversation:
            writer.write_init(conversation)
            writer.edit_runner = _edit_runner(edits, conversation)
            question = ask_by()
            with interruptible() as stopped:
                code = writer.run_question(command_chat(conversation, mode, allow), question, stopped)
            return stopped.exit_code if stopped.is_set() else code
    except SpecchatError as error:
        writer.write_error(str(error), error.exit_code)
        return error.exit_code
    except ConnectionResetError:  # of the engine process; a broken pipe is that of stdout
        writer.write_error(CONNECTION_CLOSED, HostError.exit_code)
        return HostError.exit_code


def _question(text: str, files: tuple[str, ...], answer_format: AnswerFormat | None) -> Question:
    is_piped = text == STDIN
    text = read_stdin() if is_piped else check_utf8(text)
    return Question(text, files, answer_format=answer_format, has_mentions=not is_piped)


def _edit_runner(edits: str, conversation: Conversation) -> EditRunner | None:
    if edits == "none":
        return None
    # imports the grammars, and most programs do not edit
    from specchat.app.edit_session import edit_request
    from specchat.cli.script_edits import EditRunner

    request = SessionRequest(settings=conversation.settings, is_stored=conversation.is_stored)
    return EditRunner(edit_request(request))


@dataclass
class JsonLinesWriter:
    """Writes JSON objects to stdout, one a line, each flushed."""

    session_id: str = ""
    edit_runner: EditRunner | None = None

    def write_init(self, conversation: Conversation) -> None:
        self.session_id = conversation.session_id
        models = with_shipped_drafters(conversation.settings.profile.models)
        facts = {"session_id": self.session_id, "version": __version__, "cwd": str(Path.cwd())}
        names = {"profile": conversation.profile, "model": models.target, "draft": models.draft}
        self.write({"type": "init", "v": PROTOCOL_VERSION, **facts, **names})

    def run_question(self, chat: ChatState, question: Question, stopped: Flag) -> int:
        """Answer or edit; the result is the last line, also of a question that could not be sent."""
        started_at, text, ended_early = time.monotonic(), "", ""
        try:
            if self.edit_runner and self.edit_runner.is_edit_request(question.text):
                text, end = self._run_edit(self.edit_runner, question.text, stopped)
            else:
                answered = self._ask(chat, question, stopped)
                text, end, ended_early = answered.text, answered.end, answered.ended_early
                end = replace(end, totals=answered.totals) if isinstance(end, Finished) else end
        except BrokenPipeError:
            raise  # of stdout
        except ConnectionResetError:  # of the engine process
            end = Failed(CONNECTION_CLOSED, HostError.exit_code)
        except (SpecchatError, OSError) as error:
            end = Failed(str(error), error.exit_code if isinstance(error, SpecchatError) else 1)
        return self._write_result_of(end, text, int(1000 * (time.monotonic() - started_at)), ended_early)

    def _ask(self, chat: ChatState, question: Question, stopped: Flag) -> Answered:
        answered, calls = None, CallPrinter()
        for event in ask(chat, question, stopped):
            self._write_event(event, calls)
            answered = event if isinstance(event, Answered) else None
        assert answered
        return answered

    def _run_edit(self, edit_runner: EditRunner, text: str, stopped: Flag) -> tuple[str, Finished]:
        send_update = lambda update: self.write(_update_line(update))
        message, totals = edit_runner.run(text, send_update, lambda event: self.write(_event_line(event)), stopped)
        return message, Finished("stop", totals)

    def _write_event(self, event: AskEvent, calls: CallPrinter) -> None:
        """A line of JSON; of a call, also on stderr what a person would read of it."""
        match event:
            case Asked():
                pass
            case Answered(notices=notices):
                for notice in notices:
                    self.write(_event_line(Notice(notice)))
            case CallStarted() | CallProgressed() | CallFinished() | RoundStarted() | LoopEnded():
                if line := _line_of_agent_event(event):
                    self.write(line)
                if text := calls.on_event(event):
                    print_notice(text)
            case _:
                self.write(_event_line(event))

    def _write_result_of(self, end: Finished | Failed, text: str, milliseconds: int, end_reason: str = "") -> int:
        """The last line; `end_reason` says why the work with tools ended before the model was done."""
        if isinstance(end, Failed):
            self.write_error(end.message, end.exit_code, text, milliseconds)
            return end.exit_code
        code, error = 0, {}
        if end.finish_reason == "cancelled":
            code, error = INTERRUPTED_EXIT_CODE, {"error": {"code": "cancelled", "message": "the answer was stopped"}}
        elif end_reason:
            code, error = ENDED_EARLY_EXIT_CODE, {"error": {"code": "ended_early", "message": end_reason}}
        facts = {"is_error": bool(code), "stop_reason": updates.stop_reason(end.finish_reason)}
        numbers = _usage_numbers(end.totals)
        self._write_result({**facts, "result": text, "duration_ms": milliseconds, **numbers, **error})
        return code

    def write_error(self, message: str, code: int, text: str = "", milliseconds: int = 0) -> None:
        is_engine = message.startswith(ENGINE_ERROR_PREFIX)
        error = {"code": "engine" if is_engine else ERROR_CODES.get(code, "engine"), "message": message}
        self._write_result({"is_error": True, "result": text, "duration_ms": milliseconds, "error": error})

    def _write_result(self, facts: dict[str, Any]) -> None:
        result = {"type": "result", "session_id": self.session_id, "num_turns": 1, **facts}
        self.write(result)

    def write(self, line: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def _update_line(update: JsonObject) -> JsonObject:
    return {"type": "update", "update": update}


def _event_line(event: Event) -> dict[str, Any]:
    """Text and thinking as updates of the Agent Client Protocol, every other event as our own type."""
    if isinstance(event, TextDelta | ThinkingDelta):
        return _update_line(updates.chunk(CHUNK_NAMES[type(event)], event.text))
    words = {"text": event.text} if isinstance(event, Stage) else {}
    return {"type": "event", "event": EVENT_METHODS[type(event)], **event_to_json(event), **words}


CHUNK_NAMES = {TextDelta: updates.ANSWER_CHUNK, ThinkingDelta: updates.THOUGHT_CHUNK}


def _line_of_agent_event(event: AgentEvent) -> JsonObject | None:
    """The line for an event of the agent; None for one that the next answer shows."""
    match event:
        case CallStarted() | CallProgressed() | CallFinished():
            return _update_line(updates.call_update(event, Path.cwd().joinpath))
        case LoopEnded(reason=reason):
            return {"type": "event", "event": "ended_early", "reason": reason}
        case _:
            return None


def _usage_numbers(totals: Totals) -> dict[str, Any]:
    timing = timing_to_json(totals)
    return {
        "usage": {
            "input_tokens": totals.prompt_tokens,
            "output_tokens": totals.completion_tokens,
            "cached_tokens": totals.cached_tokens,
        },
        "spec": speculation_to_json(totals),
        "ttft_ms": timing["ttft_ms"],
        "tokens_per_second": timing["tokens_per_second"],
        "totals": asdict(totals),
    }
