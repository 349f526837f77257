"""A model that is a script: each answer is a text, or calls. Knows no engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import Any

from specchat.app.agent.agent_loop import AgentEvent, AgentLoop, CallFinished, LoopEnded, LoopLimits
from specchat.app.agent.agent_tool import AgentTool
from specchat.app.agent.call_consent import Consent, ConsentQuestion, Rules
from specchat.app.agent.change_tools import EditTool, RunTool, WriteTool
from specchat.app.agent.read_tools import ListTool, ReadTool, SearchTool
from specchat.app.consent import Answer
from specchat.app.project_files import ProjectFiles
from specchat.chat.events import Event, Finished, TextDelta, ToolCallDelta, Totals
from specchat.chat.request import Request

PRICES = """\
TAX = 0.2


def gross(net):
    return net * (1 + TAX)


def net(gross):
    return gross / (1 + TAX)
"""
CART = """\
from shop.prices import gross


def total(items):
    return sum(gross(price) for price in items)
"""
REPOSITORY = {
    "README.md": "# Shop\n\nA small shop.\n",
    "AGENTS.md": "Run the tests with `python -m shop.check`.\n",
    ".gitignore": "*.log\nbuild/\n",
    "debug.log": "ignored\n",
    "shop/__init__.py": "",
    "shop/prices.py": PRICES,
    "shop/cart.py": CART,
    "shop/check.py": "from shop.cart import total\n\nassert total([10]) == 12\nprint('passed')\n",
    "notes/todo.txt": "- rename TAX\n- add a discount\n",
}
RESULT_CHARACTERS = 4000
NO_RULES, USUAL_LIMITS = Rules(), LoopLimits()
Said = str | Sequence[tuple[str, Any]]  # a text, or calls: name and arguments, which are JSON text or its value


def call(name: str, **arguments: Any) -> tuple[str, Any]:
    return name, arguments


@dataclass
class ScriptedModel:
    """Answers each request with the next entry of the script; a function makes the entry from the request."""

    script: Sequence[Said | Callable[[Request], Said]]
    requests: list[Request] = field(default_factory=list)

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]:
        self.requests.append(request)
        entry = self.script[len(self.requests) - 1]
        said = entry(request) if callable(entry) else entry
        if isinstance(said, str):
            yield TextDelta(said)
            yield Finished("stop", Totals())
            return
        for index, (name, arguments) in enumerate(said):
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            id = f"call_{len(self.requests)}_{index}"
            yield ToolCallDelta(index, id, name)
            for start in range(0, len(text), 7):
                yield ToolCallDelta(index, id, "", text[start : start + 7])
        yield Finished("tool_calls", Totals())

    @property
    def results(self) -> list[str]:
        """The texts of all results that it was given, in order."""
        return [result.text for request in self.requests for result in request.tool_results]


def agent_tools(files: ProjectFiles, rewrite: Any = None, limit_seconds: float = 20.0) -> list[AgentTool]:
    """All tools of the agent; an edit by instruction replaces the first word of it by the second."""

    def replace_word(source: Any, instruction: str, region: Any, cancelled: Flag) -> tuple[str, str]:
        old, new = instruction.split()
        return source.text.replace(old, new), ""

    return [
        ReadTool(files, RESULT_CHARACTERS), ListTool(files, RESULT_CHARACTERS), SearchTool(files, RESULT_CHARACTERS),
        EditTool(files, rewrite or replace_word), WriteTool(files), RunTool(files, RESULT_CHARACTERS, limit_seconds),
    ]  # fmt: skip


@dataclass
class Worked:
    """What came of a question: the model with its requests, the events, and what the user was asked."""

    model: ScriptedModel
    loop: AgentLoop
    events: list[Event | AgentEvent]
    questions: list[ConsentQuestion]

    @property
    def outcomes(self) -> list[tuple[str, bool]]:
        return [(each.outcome.text, each.outcome.is_error) for each in self.events if isinstance(each, CallFinished)]

    @property
    def end_reason(self) -> str:
        return next((each.reason for each in self.events if isinstance(each, LoopEnded)), "")

    @property
    def text(self) -> str:
        return "".join(each.text for each in self.events if isinstance(each, TextDelta))


def work(
    files: ProjectFiles,
    *script: Said | Callable[[Request], Said],
    answers: Sequence[Answer] | None = None,
    rules: Rules = NO_RULES,
    tools: Sequence[AgentTool] | None = None,
    limits: LoopLimits = USUAL_LIMITS,
    cancelled: Flag | None = None,
    existing_files: Callable[[], Sequence[str]] = tuple,
) -> Worked:
    """Ask one question. `answers` are those of the user to questions of consent; None: there is no user."""
    questions, waiting = list[ConsentQuestion](), list(answers or ())

    def ask(question: ConsentQuestion) -> Answer:
        questions.append(question)
        return waiting.pop(0)

    model = ScriptedModel(script)
    loop = AgentLoop(
        tools or agent_tools(files), Consent(rules, None if answers is None else ask), limits, existing_files
    )
    events = list(loop.run(model.ask, Request("do it"), cancelled or Flag()))
    return Worked(model, loop, events, questions)
