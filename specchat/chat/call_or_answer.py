"""Grammar-made calls: each answer is a call of a tool, for a model that calls none by its own choice.

One of the tools answers: its argument is the text for the user. So the model chooses a name and writes values, and the
grammar does the rest. A weak model often does not see when it is done, so its answer is due when it repeats a call, and
before the agent would end the work. Knows no model and no grammar.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from specchat.chat.request import Request
from specchat.chat.tools import ANY_TOOL, CALL_OR_ANSWER, SOME_TOOL, Tool
from specchat.chat.transcript import Turn
from specchat.profile.keys import FREE_CALLS, GRAMMAR_CALLS, Agent

ANSWER_SCHEMA = {
    "type": "object", "properties": {"text": {"type": "string", "minLength": 1}}, "required": ["text"],
}  # fmt: skip


def with_answer_tool(request: Request, turns: Sequence[Turn], agent: Agent, *, reads_tools: bool) -> Request:
    """The request with its choice between a call and an answer made.

    `reads_tools`: the chat template of the model has tools, so that it calls them by its own choice unless the profile
    says otherwise. Else the last tool is the one that answers, and one of them must be called.
    """
    if request.tool_choice != CALL_OR_ANSWER:
        return request
    is_free = agent.calls == FREE_CALLS or (agent.calls != GRAMMAR_CALLS and reads_tools)
    if is_free or not request.tools or request.answer_format or request.answer_prefix:
        return replace(request, tool_choice=ANY_TOOL)
    answer = _answer_tool(request.tools)
    choice = answer.name if _is_answer_due(request, turns, agent.rounds) else SOME_TOOL
    return replace(request, tools=(*request.tools, answer), tool_choice=choice, answer_tool=answer.name)


def _answer_tool(tools: Sequence[Tool]) -> Tool:
    name, taken = "answer", {tool.name for tool in tools}
    while name in taken:
        name += "_user"
    return Tool(name, "Answer the user, when you know enough or no other tool helps.", json.dumps(ANSWER_SCHEMA))


def _is_answer_due(request: Request, turns: Sequence[Turn], rounds: int) -> bool:
    """Whether the model made the same call twice in a row for this question, or has one round left."""
    if request.text.strip():
        return False
    made: list[list[tuple[str, str]]] = []
    for turn in reversed(turns):
        made += [[(call.name, call.arguments) for call in turn.tool_calls]]
        if turn.user.strip() or not turn.tool_calls:
            break
    is_repeated = len(made) > 1 and made[0] == made[1] != []
    return is_repeated or len(made) >= rounds - 1
