"""Makes room in a full context window while a model works with tools: it reads less of the rounds before.

Results of tools are shortened first, the oldest before the others; then the answers with calls, and their arguments;
and then the shortened results are left out. What the user asked and attached stays, and so do the results that the
next answer is about, unless they alone do not fit. A shortened text says so to the model. The history keeps everything
whole. Knows no tokenizer, only how to count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from specchat.chat.shortened_text import bounded
from specchat.chat.tool_prompt import arguments_of
from specchat.chat.tools import ToolCall, ToolResult
from specchat.chat.transcript import Turn

KEPT_CHARACTERS = 160  # of a shortened text of an earlier round; with its note it is not longer than twice that
MIN_RESULT_CHARACTERS = 200  # of a result that the next answer is about
MARGIN = 0.9  # a part of a text may have more tokens for its length than the whole
WHY_SHORTENED = ", because the context window was full"

LEFT_OUT = f"[left out{WHY_SHORTENED}]"

CountTokens = Callable[[str], int]


@dataclass(frozen=True)
class ShortenedTurns:
    """The turns, and in how many of them results and answers are shorter now. `saved_tokens` is an estimate."""

    turns: tuple[Turn, ...]
    results: int = 0
    answers: int = 0
    saved_tokens: int = 0


def shorten_turns(turns: Sequence[Turn], tokens_to_save: int, count_tokens: CountTokens) -> ShortenedTurns:
    """Shorten turns until so many tokens are saved, or nothing is left to shorten."""
    new, saved, shortened = list(turns), 0, list[set[int]]()
    for shorten in (_with_short_results, _with_short_answer, _without_results):
        shortened.append(set())
        for index, turn in enumerate(new):
            if saved < tokens_to_save and (smaller := shorten(turn)) != turn:
                saved += count_tokens(_texts(turn)) - count_tokens(_texts(smaller))
                new[index] = smaller
                shortened[-1].add(index)
    if new != list(turns):  # the tokens of the conversation are those of the long texts
        new[-1] = replace(new[-1], prompt_ids=(), answer_ids=(), rendered_prompt="")
    results, answers, left_out = shortened
    return ShortenedTurns(tuple(new), len(results | left_out), len(answers), saved)


def shorten_results(
    results: Sequence[ToolResult], max_tokens: int, count_tokens: CountTokens
) -> tuple[ToolResult, ...]:
    """The results with about so many tokens, each with its share of them."""
    total = sum(count_tokens(result.text) for result in results)
    if total <= max_tokens:
        return tuple(results)
    share = MARGIN * max(0, max_tokens) / total
    limits = (max(MIN_RESULT_CHARACTERS, int(share * len(result.text))) for result in results)
    return tuple(
        replace(result, text=bounded(result.text, limit, WHY_SHORTENED))
        for result, limit in zip(results, limits, strict=True)
    )


def _texts(turn: Turn) -> str:
    calls = (call.arguments for call in turn.tool_calls)
    return "\n".join([*(result.text for result in turn.tool_results), turn.thinking, turn.answer, *calls])


def _short(text: str) -> str:
    return bounded(text, KEPT_CHARACTERS, WHY_SHORTENED) if len(text) > 2 * KEPT_CHARACTERS else text


def _with_short_results(turn: Turn) -> Turn:
    return replace(turn, tool_results=tuple(replace(each, text=_short(each.text)) for each in turn.tool_results))


def _without_results(turn: Turn) -> Turn:
    return replace(turn, tool_results=tuple(_without_text(each) for each in turn.tool_results))


def _without_text(result: ToolResult) -> ToolResult:
    return replace(result, text=LEFT_OUT) if len(result.text) > len(LEFT_OUT) else result


def _with_short_answer(turn: Turn) -> Turn:
    if not turn.tool_calls:
        return turn  # the last answer to a question says what was done
    calls = tuple(_with_short_arguments(call) for call in turn.tool_calls)
    return replace(turn, answer=_short(turn.answer), thinking=_short(turn.thinking), tool_calls=calls)


def _with_short_arguments(call: ToolCall) -> ToolCall:
    """The call with its arguments as they are, except for long texts in them."""
    if len(call.arguments) <= 2 * KEPT_CHARACTERS:
        return call
    short = {name: _short(value) if isinstance(value, str) else value for name, value in arguments_of(call).items()}
    return replace(call, arguments=json.dumps(short, ensure_ascii=False))
