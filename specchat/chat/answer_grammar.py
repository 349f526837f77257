"""The grammar of an answer: the format that a request asks for, the limit of a thought, the calls that follow it.

Where the model calls no tool by its own choice, each answer is a call, and one of the tools answers: its argument is
the text for the user. So the model chooses a name and writes values, and the grammar does the rest. A weak model often
does not see when it is done, so its answer is due when it repeats a call, and before the agent would end the work.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from specchat.chat.drafted_text import LoadedModels
from specchat.chat.request import CHOICES, EDIT_TASKS, LARK, REGEX, SCHEMA, AnswerFormat, Request
from specchat.chat.tools import ANY_TOOL, CALL_OR_ANSWER, SOME_TOOL, Tool
from specchat.chat.transcript import Turn
from specchat.engine.grammar import Grammar
from specchat.profile.keys import FREE_CALLS, GRAMMAR_CALLS, Agent, Prompt
from specchat.text.closed_schema import closed
from specchat.text.llguidance_grammar import compile_grammar
from specchat.text.thinking_budget import make_thinking_budget
from specchat.text.tool_grammar import call_grammar, closed_in_time, free_call_grammar

THINKING_SHARE = 0.75  # of the tokens of an answer: a thought without a limit of its own leaves the rest for the text
ESCAPED_OR_SLASH = re.compile(r"\\.|/")
ANSWER_SCHEMA = {
    "type": "object", "properties": {"text": {"type": "string", "minLength": 1}}, "required": ["text"],
}  # fmt: skip


def thinking_of(request: Request, prompt: Prompt) -> str:
    """Whether the model thinks before this answer; not where its beginning or its form is given, as that of an edit."""
    if request.answer_prefix or request.answer_format or request.forced_schemas or request.task in EDIT_TASKS:
        return "off"
    return request.thinking or prompt.thinking


def required_grammar(request: Request, models: LoadedModels) -> Grammar | None:
    """That of a required format or call, or of both: the format binds the text, and calls stay calls.

    UsageError for a schema or a regular expression that cannot be one.
    """
    tokenizer, columns, form = models.tokenizer, _columns(models), request.answer_format
    if request.forced_schemas:
        return call_grammar(tokenizer, request.forced_schemas, columns)
    if form is None:
        return None
    kind, source = _grammar_source(form)
    grammar = compile_grammar(kind, source, tokenizer, columns)
    if not request.offered_tools or kind == LARK:
        return grammar
    text = f"%json {source}" if kind == SCHEMA else f"/{ESCAPED_OR_SLASH.sub(_escape_slash, source)}/"
    return call_grammar(tokenizer, _offered_schemas(request), columns, text)


def _grammar_source(form: AnswerFormat) -> tuple[str, str]:
    if form.kind == SCHEMA:
        return SCHEMA, json.dumps(closed(form.value))
    return (REGEX, form.regex) if form.kind == CHOICES else (form.kind, form.text)


def raw_grammar(form: AnswerFormat, limit: int, models: LoadedModels) -> Grammar:
    """That of the completion of a raw prompt, without thoughts and calls, closed within so many tokens."""
    tokenizer, columns = models.tokenizer, _columns(models)
    grammar = compile_grammar(*_grammar_source(form), tokenizer, columns)
    return closed_in_time(grammar, [form.value], tokenizer, columns, limit) if form.kind == SCHEMA else grammar


def grammar_within(
    limit: int, required: Grammar | None, request: Request, models: LoadedModels, *, opens_thought: bool
) -> Grammar | None:
    """The required grammar, closed within so many tokens; else the limit of a thought, and the calls behind it."""
    tokenizer, columns, form = models.tokenizer, _columns(models), request.answer_format
    offered = request.forced_schemas or _offered_schemas(request)
    if required is not None:
        schemas = [*offered.values(), *([form.value] if form and form.kind == SCHEMA else [])]
        return closed_in_time(required, schemas, tokenizer, columns, limit) if schemas else required
    limit_of_thought = models.profile.prompt.thinking_tokens or int(limit * THINKING_SHARE)
    thought = make_thinking_budget(tokenizer, limit_of_thought, columns, is_open=opens_thought)
    return (free_call_grammar(tokenizer, offered, columns, thought) if offered else None) or thought


def _offered_schemas(request: Request) -> dict[str, dict[str, Any]]:
    return {tool.name: tool.schema for tool in request.offered_tools}


def _escape_slash(match: re.Match[str]) -> str:
    return match[0] if len(match[0]) > 1 else f"\\{match[0]}"


def _columns(models: LoadedModels) -> int:
    """Of the logits, which may be more than the tokens of the vocabulary."""
    return max(models.tokenizer.vocab_size, models.target.vocab_size)


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
