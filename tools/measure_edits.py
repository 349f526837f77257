"""Edits by a real model through the commands and an editor: how many are taken, right, refused and wrong.

The edits are those of EditEval, whose tests say what is right, and mechanical ones of real files, as
`tools/measure_refactorings.py` makes and checks them. Each is made in a folder of its own, with the engine process and
the settings of the caller:

    file      specchat edit FILE "…" -y
    filter    specchat edit - "…" < FILE
    chat      /edit FILE … in the line mode, where every hunk is accepted
    screen    /edit FILE … in the TUI, where the key for all hunks is pressed
    acp       specchat acp, where an editor permits the edit

*taken*: there is a new text. *right*: it passes the tests or the check. *refused*: the text is what it was, byte for
byte, and the reason was given. *wrong*: taken and not right. *no Python*: taken, and not even Python any more.
The tests of EditEval run what the model wrote, each in a process of its own with a limit of some seconds.

`--save FILE` keeps every new text, as JSON lines, so that a wrong one can be looked at.

    python -m tools.measure_edits --editeval editeval.jsonl --files specchat --count 20
"""

from __future__ import annotations

import ast
import asyncio
import json
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import click
from textual.widgets import Static

from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from specchat.tui.app import ScreenFiles, SpecchatApp
from specchat.tui.approval import Approval
from specchat.tui.picker import GRACE_SECONDS
from specchat_bench.columns import markdown_table
from tools.measure_refactorings import MAKERS, read_texts

COMMAND = (sys.executable, "-m", "specchat")
EDIT_SECONDS = 900
TEST_SECONDS = 30
POLL_SECONDS = 0.05
SCREEN_SIZE = (100, 30)
MAX_FILE_CHARACTERS = 6000  # of mechanical edits, so that a model could rewrite them


@dataclass(frozen=True)
class MeasuredCase:
    """An edit of a file, and whether a new text is right."""

    kind: str
    name: str
    text: str
    instruction: str
    is_right: Callable[[str], bool]
    wanted: str = ""  # a right text, where one is known


@dataclass(frozen=True)
class Outcome:
    """The new text, equal to the old one if there is none, and what the front end says about it."""

    text: str
    is_failure: bool
    reason: str


def editeval_cases(path: Path, count: int, seed: int) -> Iterator[MeasuredCase]:
    """Some edits of EditEval whose reference passes its own tests."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row.get("ref_ok", True)]
    random.Random(seed).shuffle(rows)
    for row in rows[:count]:
        before = row["before"].rstrip("\n") + "\n"
        yield MeasuredCase("editeval", row["id"], before, row["instruction"], _test_runner(row), row.get("after", ""))


def _test_runner(row: Mapping[str, str]) -> Callable[[str], bool]:
    def is_right(text: str) -> bool:
        context = row["context"]
        program = context.replace("{{Code}}", text) if "{{Code}}" in context else f"{context}\n{text}"
        with TemporaryDirectory() as folder:
            command = [sys.executable, "-I", "-c", f"{program}\n{row['test']}\ncheck()\n"]
            try:
                ran = subprocess.run(command, cwd=folder, capture_output=True, timeout=TEST_SECONDS, check=False)
            except subprocess.TimeoutExpired:
                return False
            return ran.returncode == 0

    return is_right


def mechanical_cases(path: Path, count: int, seed: int) -> list[MeasuredCase]:
    """Mechanical edits of real files, of every kind as often as possible."""
    by_kind: dict[str, list[MeasuredCase]] = defaultdict(list)
    for number, (name, text) in enumerate(read_texts(path, 10**6, seed)):
        if len(text) > MAX_FILE_CHARACTERS or not text.strip():
            continue
        rng = random.Random(seed + number)
        for case in (case for make in MAKERS for case in make(text, ast.parse(text), rng)):
            is_right = _without_problem(case.problem)
            by_kind[case.kind].append(MeasuredCase(case.kind, Path(name).name, case.text, case.instruction, is_right))
    cases = list[MeasuredCase]()
    while len(cases) < count and any(by_kind.values()):
        cases += [by_kind[kind].pop(0) for kind in sorted(by_kind) if by_kind[kind]]
    return cases[:count]


def _without_problem(problem: Callable[[str], str]) -> Callable[[str], bool]:
    def is_right(text: str) -> bool:
        try:
            return not problem(text)
        except (SyntaxError, ValueError):
            return False

    return is_right


# The front ends


def edit_file(case: MeasuredCase, folder: Path) -> Outcome:
    file = folder / _file_name(case)
    ran = _run("edit", file.name, case.instruction, "-y", folder=folder)
    return Outcome(file.read_text(encoding="utf-8"), ran.returncode != 0, _last_line(ran.stderr))


def edit_piped(case: MeasuredCase, folder: Path) -> Outcome:
    ran = _run("edit", "-", case.instruction, "--stderr", folder=folder, text=case.text)
    return Outcome(ran.stdout, ran.returncode != 0, _last_line(ran.stderr))


def edit_in_chat(case: MeasuredCase, folder: Path) -> Outcome:
    file = folder / _file_name(case)
    ran = _run("--plain", "--private", folder=folder, text=f"/edit {file.name} {case.instruction}\na\n")
    return Outcome(file.read_text(encoding="utf-8"), "applied" not in ran.stderr, _last_line(ran.stderr))


def edit_on_screen(case: MeasuredCase, folder: Path) -> Outcome:
    file = folder / _file_name(case)
    with TemporaryDirectory() as state, chdir(folder):
        settings = read_settings("chat", {"speculation.recall": False})
        private = SessionRequest(settings=settings, is_stored=False)
        app = SpecchatApp(private, ScreenFiles(None, Path(state) / "theme"))
        footer = asyncio.run(asyncio.wait_for(_play_edit(app, f"/edit {file.name} {case.instruction}"), EDIT_SECONDS))
    return Outcome(file.read_text(encoding="utf-8"), "applied" not in footer, footer)


async def _play_edit(app: SpecchatApp, line: str) -> str:
    """Send the line, accept all hunks, and leave a review that asks again. Returns the footer of the edit."""
    screen = app.chat_screen
    async with app.run_test(size=SCREEN_SIZE) as pilot:
        while not (screen.presenter.session_id and screen.presenter.is_idle):
            await pilot.pause(POLL_SECONDS)
        screen.submit(line)
        while not screen.transcript.turns:
            await pilot.pause(POLL_SECONDS)
        turn, key = screen.transcript.turns[-1], "a"
        while not turn.is_finished:
            await pilot.pause(POLL_SECONDS)
            if any(approval.is_deciding for approval in screen.query(Approval)):
                await pilot.pause(GRACE_SECONDS)
                await pilot.press(key)
                key = "q"
        return str(turn.query_one(".footer", Static).render())


def edit_by_acp(case: MeasuredCase, folder: Path) -> Outcome:
    file = folder / _file_name(case)
    with _AcpClient(folder) as client:
        message = client.prompt(f"/edit {file.name} {case.instruction}")
    return Outcome(file.read_text(encoding="utf-8"), " written" not in message, message)


FRONT_ENDS: Mapping[str, Callable[[MeasuredCase, Path], Outcome]] = {
    "file": edit_file,
    "filter": edit_piped,
    "chat": edit_in_chat,
    "screen": edit_on_screen,
    "acp": edit_by_acp,
}


def _file_name(case: MeasuredCase) -> str:
    return case.name if case.name.endswith(".py") else "code.py"


def _run(*words: str, folder: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], cwd=folder, input=text, text=True, capture_output=True, timeout=EDIT_SECONDS, check=False
    )


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or [""])[-1]


class _AcpClient:
    """An editor: JSON lines to and from `specchat acp`. It permits every edit and writes no file itself."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._number = folder, 0
        self._agent = subprocess.Popen(
            [*COMMAND, "acp"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._agent.stdin is not None
        self._agent.stdin.close()
        self._agent.wait(timeout=TEST_SECONDS)

    def prompt(self, text: str) -> str:
        """The message of the agent about a prompt in a new session."""
        self._call("initialize", {"protocolVersion": 1, "clientCapabilities": {}}, [])
        session = self._call("session/new", {"cwd": str(self._folder), "mcpServers": []}, [])["sessionId"]
        messages = list[str]()
        self._call("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]}, messages)
        return "".join(messages)

    def _call(self, method: str, params: Mapping[str, Any], messages: list[str]) -> dict[str, Any]:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        assert self._agent.stdout is not None
        for line in self._agent.stdout:
            message = json.loads(line)
            if message.get("method") == "session/request_permission":
                outcome = {"outcome": {"outcome": "selected", "optionId": "allow"}}
                self._send({"id": message["id"], "result": outcome})
            elif message.get("method") == "session/update":
                update = message["params"]["update"]
                if update["sessionUpdate"] == "agent_message_chunk":
                    messages.append(update["content"]["text"])
            elif message.get("id") == self._number:
                return message.get("result") or {}
        raise ConnectionError("the agent has ended")

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._agent.stdin is not None
        self._agent.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._agent.stdin.flush()


# The table


@dataclass(frozen=True)
class Result:
    """What became of one edit in one front end."""

    is_taken: bool
    is_right: bool
    is_python: bool
    is_refused: bool

    @property
    def is_wrong(self) -> bool:
        """Whether there is a new text that is not the right one."""
        return self.is_taken and not self.is_right


def measure(case: MeasuredCase, make_edit: Callable[[MeasuredCase, Path], Outcome]) -> tuple[Result, Outcome]:
    with TemporaryDirectory() as folder:
        (Path(folder) / _file_name(case)).write_text(case.text, encoding="utf-8")
        outcome = make_edit(case, Path(folder))
    is_taken = not outcome.is_failure and outcome.text != case.text
    is_right = is_taken and case.is_right(outcome.text)
    return Result(
        is_taken,
        is_right,
        _is_python(outcome.text) or not _is_python(case.text),
        outcome.is_failure and outcome.text == case.text,
    ), outcome


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def as_table(results: Mapping[tuple[str, str], Sequence[Result]]) -> str:
    rows = list[list[str]]()
    for (front_end, group), found in results.items():
        counts = Counter[str]()
        for each in found:
            counts["taken"] += each.is_taken
            counts["right"] += each.is_right
            counts["refused"] += each.is_refused
            counts["wrong"] += each.is_wrong
            counts["no Python"] += each.is_taken and not each.is_python
        columns = ("taken", "right", "refused", "wrong", "no Python")
        rows.append([front_end, group, str(len(found)), *(str(counts[column]) for column in columns)])
    return markdown_table(["front end", "edits", "asked", "taken", "right", "refused", "wrong", "no Python"], rows)


def _append(saved: Path, front_end: str, case: MeasuredCase, outcome: Outcome, words: Sequence[str]) -> None:
    """Add one edit to the file of all new texts."""
    edit = {"front_end": front_end, "name": case.name, "instruction": case.instruction, "result": words}
    with saved.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**edit, "before": case.text, "after": outcome.text, "reason": outcome.reason}) + "\n")


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option(
    "--editeval", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="EditEval, as JSON lines"
)
@click.option("--files", type=click.Path(exists=True, path_type=Path), help="a folder with Python files, or JSON lines")
@click.option("--count", default=20, show_default=True, help="the number of edits of each sort")
@click.option("--front-end", "front_ends", type=click.Choice([*FRONT_ENDS]), multiple=True, help="all by default")
@click.option("--seed", default=1, show_default=True)
@click.option("--save", "saved", type=click.Path(dir_okay=False, path_type=Path), help="a file for the new texts")
def main(
    editeval: Path | None, files: Path | None, count: int, front_ends: Sequence[str], seed: int, saved: Path | None
) -> None:
    """Print each edit with its result on stderr, then the table."""
    groups = {
        "editeval": list(editeval_cases(editeval, count, seed)) if editeval else [],
        "mechanical": mechanical_cases(files, count, seed) if files else [],
    }
    results: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for front_end in front_ends or FRONT_ENDS:
        for group, cases in groups.items():
            for case in cases:
                result, outcome = measure(case, FRONT_ENDS[front_end])
                results[front_end, group].append(result)
                words = [word for word in ("taken", "right", "refused", "wrong") if getattr(result, f"is_{word}")]
                line = f"{front_end}: {case.kind} {case.name}: {case.instruction}: {', '.join(words)}: {outcome.reason}"
                click.echo(line.replace("\n", " "), err=True)
                if saved:
                    _append(saved, front_end, case, outcome, words)
    click.echo(as_table(results))


if __name__ == "__main__":
    main()
