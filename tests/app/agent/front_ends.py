"""One task through each front end, over the fake engine, with the consent of the user as that front end takes it.

A task is an entry of `tasks/tasks.json`: the calls of the model, the answers of the user, the files afterwards. What
the model was given is read from the history, which is the same for all front ends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Static

from specchat.cli.sessions import open_history
from specchat.drawing.glyphs import UNICODE
from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from specchat.tui import picker
from specchat.tui.approval import Approval
from tests.front import Ran as RanCommand
from tests.front import command
from tests.tui.conftest import running_screen

Task = dict[str, Any]
DONE = "done"


@dataclass(frozen=True)
class Ran:
    """What a front end showed: the answer after the last call, and how often it asked."""

    said: str
    question_count: int
    talk: str = ""  # what it showed beside the answers


@dataclass(frozen=True)
class World:
    """A project folder, a folder for other files, and what a front end may change in this process."""

    project: Path
    spare: Path
    patch: pytest.MonkeyPatch


def script_of(task: Task) -> str:
    """The question that scripts the fake engine. It makes an edit by instruction with "fence OLD NEW"."""
    lines, notice = ["agent"], task.get("notice", "")
    for call in task["calls"]:
        arguments = dict(call["arguments"])
        if "instruction" in arguments:
            arguments["instruction"] = f"fence {arguments['instruction']}"
        lines.append(f"{notice and f'notice {notice} | '}call {call['tool']} {json.dumps(arguments)}")
        notice = ""
    return "\n".join([*lines, DONE])


def results_of(project: Path) -> str:
    """The texts of all results that the model was given in the last conversation of this folder."""
    with closing(open_history()) as history:
        [thread, *_] = history.threads(folder=str(project))
        turns = history.turns(thread.tip)
    return "\n".join(str(each["text"]) for turn in turns for each in turn.request.get("tool_results") or ())


def run_on_screen(task: Task, world: World) -> Ran:
    """The full screen, with keys."""
    world.patch.setattr(picker, "GRACE_SECONDS", 0.0)
    answered, talk = list[str](), list[str]()

    async def scenario() -> str:
        request = SessionRequest(settings=read_settings("chat", {"agent.mode": "on"}))
        async with running_screen(world.spare, (100, 30), request, UNICODE) as driver:
            await driver.wait_until(lambda: driver.chat.presenter.session_id and driver.chat.presenter.is_idle)
            await driver.submit(script_of(task))
            for key in task["answers"]:
                await driver.wait_until(lambda: any(each.is_deciding for each in driver.chat.query(Approval)))
                await driver.press(key)
                answered.append(key)
            await driver.wait_until(lambda: driver.chat.presenter.is_idle and driver.turns[-1].is_finished)
            talk.append("\n".join(str(note.render()) for note in driver.chat.query(".note, .remark").results(Static)))
            return driver.turns[-1].answer

    said = asyncio.run(scenario())
    return Ran(said, len(answered), talk[0])


def run_line_by_line(task: Task, world: World) -> Ran:
    """The line mode on a terminal that cannot move its cursor; questions are answered on standard input."""
    lines = ["/agent on", '"""', script_of(task), '"""', *task["answers"], "/quit"]
    ran = _on_terminal(world, lines, "chat", "--plain")
    return Ran(ran.out.decode().strip(), ran.err.count("allow it?"), ran.err)


def run_ask(task: Task, world: World) -> Ran:
    """`specchat ask` on a terminal."""
    ran = _on_terminal(world, list(task["answers"]), "ask", "--agent", script_of(task))
    assert ran.code == (1 if "s" in task["answers"] else 0), ran.err
    return Ran(ran.out.decode().strip(), ran.err.count("allow it?"), ran.err)


def _on_terminal(world: World, lines: list[str], *arguments: str) -> RanCommand:
    world.patch.setenv("TERM", "dumb")
    return command(world.patch, *arguments, stdin="".join(f"{line}\n" for line in lines).encode(), on_terminal=True)


def run_script(task: Task, world: World) -> Ran:
    """`specchat -p` without a person: what the user would agree to is allowed by rules, and nothing is asked."""
    allowed = [word for rule in rules_of(task) for word in ("--allow", rule)]
    ran = command(world.patch, "-p", script_of(task), "--json", "--agent", *allowed)
    assert ran.code == 0, ran.err
    assert "allow it?" not in ran.err
    return Ran(json.loads(ran.out.splitlines()[-1])["result"], 0, ran.out.decode())


def rules_of(task: Task) -> list[str]:
    """A rule for each call that the user would agree to, and for those that fail before a question."""
    calls, answers = task["calls"], task["answers"]
    if "n" in answers or "s" in answers:
        calls = [call for call, answer in zip(calls, answers, strict=False) if answer == "y"]
    acting = [call for call in calls if call["tool"] in ("edit", "write", "run")]
    return [f"{each['tool']}:{each['arguments'].get('path') or each['arguments']['command']}" for each in acting]


Run = Callable[[Task, World], Ran]
FRONT_ENDS: dict[str, Run] = {
    "screen": run_on_screen,
    "lines": run_line_by_line,
    "script": run_script,
    "ask": run_ask,
}
