"""Checks that drafting changes no tool call: agent loops, played with plain decoding and with every drafter.

    python -m tools.loop_check [MODEL] --count 50

A loop is a conversation in which the model must call a tool, gets its result, and goes on, for up to twenty turns. Its
tools work on a few files in memory, so a result follows from the calls alone, and two plays with equal calls read equal
conversations. Some answers are cut, as a user does who stops them, and some turns are taken back and asked in another
way. `specchat verify` compares texts without tools.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from specchat.chat.events import Failed, TextDelta
from specchat.chat.request import Request
from specchat.chat.tools import NO_TOOL, SOME_TOOL, Tool, ToolCall, ToolResult
from specchat.cli.options import profile_options, resolve_profile
from specchat.errors import error_with_exit_code
from specchat.loading.load_engine import Engine
from specchat.profile.drafter_names import DRAFTERS
from specchat.repl.temporary_line import TemporaryLine
from specchat_bench.command_options import ALL, parse_names
from specchat_bench.loaded_engine import load_engine_here
from specchat_bench.lossless_check import SAMPLING_TEMPERATURE, SEED
from specchat_bench.verify_command import NotLosslessError
from tools.instrument import run_instrument

LONG_LOOP_TURNS, SHORT_LOOP_TURNS = 20, (2, 5)
LONG_LOOPS, CUT_LOOPS, REPEATED_LOOPS = 10, 3, 4  # every tenth loop is long, in every third an answer is cut, and so on
CUT_TOKENS = 9
FILES = {
    "shapes.py": "import math\n\n\ndef area(width, height):\n    return width * height\n\n\n"
    "def circle(radius):\n    return math.pi * radius**2\n",
    "shop.py": "PRICES = {'tea': 3, 'bread': 2}\n\n\n"
    "def total(items):\n    return sum(PRICES[item] for item in items)\n",
    "README.md": "# Small shop\n\nComputes prices and shapes. Run the tests with `pytest`.\n",
    "settings.toml": 'language = "en"\ncurrency = "EUR"\nopen = true\n',
}
QUESTIONS = (
    "What does {file} do?", "Rename a function in {file}.", "Is there a mistake in {file}?",
    "Where is the total computed?", "Write a test for {file}.", "Which files are there?",
    "Run the tests and tell me what fails.", "Change the currency in settings.toml to USD.",
)  # fmt: skip
FOLLOW_UPS = ("And {file}?", "Now look at {file}.", "Do the same for {file}.", "Check it again.")


def _tool(name: str, description: str, properties: Mapping[str, Any]) -> Tool:
    schema = {"type": "object", "properties": dict(properties), "required": list(properties)}
    return Tool(name, description, json.dumps(schema))


TEXT, FILE = {"type": "string", "maxLength": 60}, {"enum": sorted(FILES)}
TOOLS = (
    _tool("read", "Read a file.", {"path": FILE}),
    _tool("search", "Find the lines that have a text.", {"text": TEXT}),
    _tool("edit", "Replace the text of a line.", {"path": FILE, "line": {"type": "integer", "minimum": 1, "maximum": 9},
                                                  "new_text": TEXT}),
    _tool("run", "Run a command.", {"command": {"enum": ["pytest", "ls", "python shop.py"]}}),
)  # fmt: skip


@dataclass(frozen=True)
class LoopTurn:
    """One request. Without a question, it has the results of the calls before only.

    `is_again`: the turn before is taken back, and this one takes its place.
    """

    question: str = ""
    tool_choice: str = SOME_TOOL
    max_tokens: int = 96
    is_again: bool = False


@dataclass(frozen=True)
class AgentLoop:
    seed: int
    turns: tuple[LoopTurn, ...]


@dataclass(frozen=True)
class PlayedTurn:
    """What the model wrote: its text, and its calls without their ids."""

    text: str
    calls: tuple[tuple[str, str], ...]


@dataclass
class LoopResult:
    """How many loops, turns and calls of one drafter are those of plain decoding, to the byte."""

    variant: str
    temperature: float
    loops: int = 0
    equal_loops: int = 0
    turns: int = 0
    equal_turns: int = 0
    calls: int = 0
    equal_calls: int = 0
    first_difference: str = ""
    skip_reason: str = ""

    def add(self, number: int, plain: Sequence[PlayedTurn], drafted: Sequence[PlayedTurn]) -> None:
        equal = next((at for at, turn in enumerate(plain) if drafted[at : at + 1] != [turn]), len(plain))
        self.loops, self.equal_loops = self.loops + 1, self.equal_loops + (equal == len(plain))
        self.turns, self.equal_turns = self.turns + len(plain), self.equal_turns + equal
        self.calls += sum(len(turn.calls) for turn in plain)
        self.equal_calls += sum(len(turn.calls) for turn in plain[:equal])
        if equal < len(plain) and not self.first_difference:
            self.first_difference = f"loop {number}, turn {equal + 1}"


@dataclass
class LoopReport:
    model: str
    is_exact: bool
    results: list[LoopResult] = field(default_factory=list[LoopResult])

    @property
    def is_lossless(self) -> bool:
        return all(result.turns == result.equal_turns for result in self.results)


def make_loops(count: int) -> list[AgentLoop]:
    """The first loops of a fixed series, the same everywhere."""
    return [_make_loop(number) for number in range(count)]


def _make_loop(number: int) -> AgentLoop:
    generator = random.Random(number)
    length = LONG_LOOP_TURNS if number % LONG_LOOPS == 0 else generator.randint(*SHORT_LOOP_TURNS)
    turns = [LoopTurn(_question(generator, QUESTIONS))]
    while len(turns) < length - 1:
        asks = generator.random() < 0.3
        turns.append(LoopTurn(_question(generator, FOLLOW_UPS) if asks else ""))
    if number % CUT_LOOPS == 0:
        turns.insert(
            generator.randint(1, len(turns)), LoopTurn(_question(generator, FOLLOW_UPS), max_tokens=CUT_TOKENS)
        )
    if number % REPEATED_LOOPS == 0:
        turns.insert(generator.randint(1, len(turns)), LoopTurn(_question(generator, FOLLOW_UPS), is_again=True))
    return AgentLoop(SEED + number, (*turns, LoopTurn("Sum up what you found.", NO_TOOL)))


def _question(generator: random.Random, templates: Sequence[str]) -> str:
    return generator.choice(templates).format(file=generator.choice(sorted(FILES)))


def verify_loops(
    engine: Engine,
    variants: Sequence[str],
    count: int,
    progress: Callable[[str], None] = lambda _message: None,
) -> LoopReport:
    """Play every loop with plain decoding and with each drafter, greedily and sampled."""
    models = engine.models
    report = LoopReport(models.profile.models.target, models.target.is_exact)
    with engine.create_session() as session:
        available = frozenset(session.drafters)
    for temperature in (0.0, SAMPLING_TEMPERATURE):
        results = [
            LoopResult(variant, temperature, skip_reason="" if variant in available else "not with these models")
            for variant in variants
        ]
        for number, loop in enumerate(make_loops(count), start=1):
            label = f"temperature {temperature:g}, loop {number} of {count}"
            progress(f"{label}, plain")
            plain = play(engine, loop, "plain", temperature)
            for result in results:
                if not result.skip_reason:
                    progress(f"{label}, {result.variant}")
                    result.add(number, plain, play(engine, loop, result.variant, temperature))
        report.results += results
    return report


def play(engine: Engine, loop: AgentLoop, variant: str, temperature: float) -> list[PlayedTurn]:
    """The turns of a loop with one drafter; its error when one fails."""
    played, results, files = list[PlayedTurn](), (), dict(FILES)
    with engine.create_session() as session:
        for turn in loop.turns:
            if turn.is_again:
                session.rewind()
                results = results_for(session.turns[-1].tool_calls if session.turns else (), files)
            request = Request(
                turn.question or ("" if results else "Go on."), max_tokens=turn.max_tokens, seed=loop.seed,
                temperature=temperature, variant=variant, tools=TOOLS, tool_choice=turn.tool_choice,
                tool_results=results,
            )  # fmt: skip
            text = ""
            for event in session.ask(request):
                match event:
                    case TextDelta():
                        text += event.text
                    case Failed():
                        raise error_with_exit_code(event.message, event.exit_code)
                    case _:
                        pass
            calls = session.turns[-1].tool_calls
            played.append(PlayedTurn(text, tuple((call.name, call.arguments) for call in calls)))
            results = results_for(calls, files)
    return played


def results_for(calls: Sequence[ToolCall], files: dict[str, str]) -> tuple[ToolResult, ...]:
    """Run these calls on the files, which they may change."""
    return tuple(ToolResult(call.id, call.name, *_run_tool(call, files)) for call in calls)


def _run_tool(call: ToolCall, files: dict[str, str]) -> tuple[str, bool]:
    """The result of a call and whether it is an error; an edit changes the files of this play."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError as error:
        return f"the arguments are not JSON: {error}", True
    match call.name, arguments:
        case "read", {"path": str(path)}:
            return files[path], False
        case "search", {"text": str(text)}:
            found = [
                f"{name}: {line}" for name, content in files.items() for line in content.splitlines() if text in line
            ]
            return "\n".join(found) or "nothing found", False
        case "edit", {"path": str(path), "line": int(line), "new_text": str(text)}:
            lines = files[path].splitlines()
            lines[line - 1 : line] = [text]
            files[path] = "\n".join(lines) + "\n"
            return files[path], False
        case "run", {"command": str(command)}:
            return f"$ {command}\n{' '.join(sorted(files))}\n2 passed, 1 failed", False
        case _:
            return f"{call.name}: the arguments do not match", True


def as_text(report: LoopReport) -> str:
    """A Markdown table: how many turns and calls of each drafter are those of plain decoding."""
    exact = "" if report.is_exact else "; near ties may be decided differently here"
    lines = [f"{report.model}: tool calls and texts of agent loops beside plain decoding{exact}", ""]
    lines += [
        "| variant | T | loops equal | turns equal | tool calls equal | first difference |",
        "|---|---|---|---|---|---|",
    ]
    for result in report.results:
        cells = (
            [result.skip_reason, "", "", ""]
            if result.skip_reason
            else [
                f"{result.equal_loops} of {result.loops}", f"{result.equal_turns} of {result.turns}",
                f"{result.equal_calls} of {result.calls}", result.first_difference,
            ]
        )  # fmt: skip
        lines.append(f"| {result.variant} | {result.temperature:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


@click.command("loop_check")
@click.argument("model", required=False)
@click.option("--variants", "names", default=ALL, show_default=True, help="Drafters, separated by commas.")
@click.option("--count", default=6, show_default=True, help="Number of loops.")
@profile_options
def loops(model: str | None, names: str, count: int, **options: Any) -> None:
    """Compare tool calls in agent loops with and without drafts. Exit code 10: drafting changed a call or a text."""
    options["target"] = model or options["target"]
    variants = parse_names("variant", names, [name for name in DRAFTERS if name != "plain"])
    engine, progress_line = load_engine_here(resolve_profile(options)), TemporaryLine()
    report = verify_loops(engine, variants, count, progress_line.show)
    progress_line.erase()
    click.echo(as_text(report))
    if not report.is_lossless:
        raise NotLosslessError("decoding is not lossless here: drafting changed a tool call or a text of a loop")


if __name__ == "__main__":
    sys.exit(run_instrument(loops))
