"""The prompt of a request in the context window: refused when it is far too long, shortened if the request allows it.

In work with tools the model then reads less of the rounds before. Results of tools are shortened first, the oldest
before the others; then the answers with calls, and their arguments; and then the shortened results are left out. What
the user asked and attached stays, and so do the results that the next answer is about, unless they alone do not fit. A
shortened text says so to the model. The history keeps everything whole. Knows neither drafters nor how an answer is
decoded.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from specchat.chat.attachments import fenced_file
from specchat.chat.drafted_text import LoadedModels
from specchat.chat.prompt import NextPrompt, as_read_by, build_next_prompt
from specchat.chat.request import Request
from specchat.chat.shortened_text import bounded
from specchat.chat.tool_prompt import arguments_of
from specchat.chat.tools import ToolCall, ToolResult
from specchat.chat.transcript import Turn
from specchat.errors import ContextError

ANSWER_SHARE = 0.25  # of the context window, which an answer in work with tools may need
COMPACTED_SHARE = 0.5  # of the context window, which a shortened conversation has, so that it is not soon full again
SHORTEN_HINT = "shorten the prompt, or raise limits.context if the model allows more"
KEPT_CHARACTERS = 160  # of a shortened text of an earlier round; with its note it is not longer than twice that
MIN_RESULT_CHARACTERS = 200  # of a result that the next answer is about
MARGIN = 0.9  # a part of a text may have more tokens for its length than the whole
WHY_SHORTENED = ", because the context window was full"
LEFT_OUT = f"[left out{WHY_SHORTENED}]"
CountTokens = Callable[[str], int]


class ContextFit:
    """A request after the turns that the model reads; `shorten` replaces both."""

    def __init__(self, models: LoadedModels, request: Request, turns: tuple[Turn, ...], thinking: str) -> None:
        self.request, self.turns = request, turns
        self._models, self._thinking = models, thinking
        self.window = min(models.profile.limits.context, models.target.context_window)

    def check_length(self) -> Iterator[None]:
        """Refuse a question that is far too long before all of it is tokenized, which takes seconds for a megabyte."""
        results = () if self.request.compacts else self.request.tool_results  # which are shortened if need be
        texts = self.request.text, *(fenced_file(file) for file in self.request.files), *(each.text for each in results)
        text = "".join(texts)
        for count in self._models.tokenizer.count_in_pieces(text):
            if count > self.window:
                raise ContextError(
                    f"the question has {len(text)} characters, which are more than {self.window} tokens, and the "
                    f"context window has {self.window}; {SHORTEN_HINT}"
                )
            yield

    def prompt(self) -> NextPrompt:
        models, profile = self._models, self._models.profile
        turns, system = as_read_by(profile.models.target, self.turns), profile.system_prompt(self.request.task)
        return build_next_prompt(models.tokenizer, system, turns, self.request, models.reference_corpus, self._thinking)

    def shortened_prompt(self) -> tuple[NextPrompt, str]:
        """The prompt, and what was shortened for it; "" where nothing was."""
        prompt = self.prompt()
        if not self.request.compacts or self._excess_tokens(prompt) <= 0:
            return prompt, ""
        before = len(prompt.token_ids)
        if not (what := self._make_room(before)):
            return prompt, ""
        prompt = self.prompt()
        left_out = f"{before - len(prompt.token_ids):,} of {before:,} tokens left out"
        return prompt, f"the context window was full: {what} shortened; {left_out}, which the history keeps"

    def max_new_tokens(self, prompt: NextPrompt) -> int:
        """ContextError for a prompt that leaves no room for an answer."""
        if self.window <= (tokens := len(prompt.token_ids)):
            raise ContextError(
                f"the prompt has {tokens} tokens and the context window has {self.window}; {SHORTEN_HINT}"
            )
        return min(self.request.max_tokens or self._models.profile.limits.answer, self.window - tokens)

    def _excess_tokens(self, prompt: NextPrompt) -> int:
        """How many tokens the prompt has too many, so that an answer has room after it."""
        answer = min(self.request.max_tokens or self._models.profile.limits.answer, int(self.window * ANSWER_SHARE))
        return len(prompt.token_ids) + answer - self.window

    def _make_room(self, prompt_tokens: int) -> str:
        """Shorten what the model reads of earlier rounds, and if need be the results of now; says what, if anything."""
        shortened = shorten_turns(self.turns, prompt_tokens - int(self.window * COMPACTED_SHARE), self._count)
        self.turns = shortened.turns
        counted = ("the tool results of {} earlier turn", shortened.results), ("{} earlier answer", shortened.answers)
        parts = [f"{text.format(number)}{'' if number == 1 else 's'}" for text, number in counted if number]
        if self.request.tool_results and (missing := self._excess_tokens(self.prompt())) > 0:
            tokens = sum(self._count(result.text) for result in self.request.tool_results)
            results = shorten_results(self.request.tool_results, tokens - missing, self._count)
            parts += ["the last tool results"] if results != self.request.tool_results else []
            self.request = replace(self.request, tool_results=results)
        return " and ".join(parts)

    def _count(self, text: str) -> int:
        return len(self._models.tokenizer.encode(text))


@dataclass(frozen=True)
class ShortenedTurns:
    """The turns, and in how many of them results and answers are shorter now."""

    turns: tuple[Turn, ...]
    results: int = 0
    answers: int = 0


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
    return ShortenedTurns(tuple(new), len(results | left_out), len(answers))


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
    texts = (min(each.text, LEFT_OUT, key=len) for each in turn.tool_results)
    results = zip(turn.tool_results, texts, strict=True)
    return replace(turn, tool_results=tuple(replace(each, text=text) for each, text in results))


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
