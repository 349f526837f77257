"""The prompt of a request in the context window: refused when it is far too long, shortened if the request allows it.

It knows neither drafters nor how an answer is decoded.
"""

from collections.abc import Iterator
from dataclasses import replace

from specchat.chat.attachments import fenced_file
from specchat.chat.compaction import shorten_results, shorten_turns
from specchat.chat.drafted_text import LoadedModels
from specchat.chat.prompt import NextPrompt, as_read_by, build_next_prompt
from specchat.chat.request import Request
from specchat.chat.transcript import Turn
from specchat.errors import ContextError

ANSWER_SHARE = 0.25  # of the context window, which an answer in work with tools may need
COMPACTED_SHARE = 0.5  # of the context window, which a shortened conversation has, so that it is not soon full again
SHORTEN_HINT = "shorten the prompt, or raise limits.context if the model allows more"


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
