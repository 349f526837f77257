"""Fill-in-the-middle (FIM) completion: no conversation, no chat template, greedy decoding, and suffix drafts.

Successive requests are mostly about the same file, so one generation stays and only its tokens are replaced: the text
before the cursor is prefilled once. Drafts come from the text around the gap, without a model.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from threading import Event as Flag
from time import perf_counter

from specchat.chat.events import Event, Finished, PrefillProgress, TextDelta, Totals
from specchat.chat.fim_request import FimRequest
from specchat.chat.fim_tokens import FimTokens, find_fim_tokens
from specchat.chat.session import LoadedModels, with_stats
from specchat.drafters.suffix_decoding import SuffixDecoding
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.sampling import Sampler
from specchat.engine.stats import DecodingStats
from specchat.models.detokenize import Detokenizer

UNSUPPORTED = "unsupported"  # the finish reason when the model was not trained for FIM


class FimCompleter:
    """Fills gaps, one after the other, and reuses the KV cache for the next one."""

    def __init__(self, models: LoadedModels) -> None:
        self.models = models
        self.fim_tokens = find_fim_tokens(models.tokenizer)
        self.drafter = SuffixDecoding()
        self.generation = Generation(models.target, (self.drafter,))

    def complete(self, request: FimRequest, cancelled: Flag) -> Iterator[Event]:
        """Fill the gap, one event at a time. Set `cancelled` from any thread to end within a step."""
        if self.fim_tokens is None:
            yield Finished(UNSUPPORTED, Totals())
            return
        models, started_at, deadline = self.models, perf_counter(), _Deadline(request.timeout_seconds, cancelled)
        window = min(models.profile.limits.context, models.target.context_window)
        limit = min(request.max_tokens, window // 2)
        prompt = self.fim_tokens.build_prompt(request, window - limit)
        cached = self.generation.replace_tokens(prompt)
        with models.target.pool.acquire_slot(self.generation.cache, self.generation.rows_needed(limit)):
            for processed in self.generation.prefill():
                yield PrefillProgress(processed + 1, len(prompt), cached)
                if reason := deadline.end_reason():
                    yield Finished(reason, Totals())
                    return
            totals, stats = Totals(len(prompt), cached, prefill_seconds=perf_counter() - started_at), DecodingStats()
            reason = yield from self._decode(self.fim_tokens, request, limit, stats, deadline)
            yield Finished(reason, with_stats(totals, stats))

    def close(self) -> None:
        self.generation.close()

    def _decode(
        self, fim_tokens: FimTokens, request: FimRequest, limit: int, stats: DecodingStats, deadline: _Deadline
    ) -> Generator[Event, None, str]:
        """Yield the events; return the finish reason."""
        end_token_ids, text = fim_tokens.end_token_ids, ""
        stream = Detokenizer(lambda token: b"" if token in end_token_ids else fim_tokens.tokenizer.token_bytes(token))
        vocabulary = min(fim_tokens.tokenizer.vocab_size, self.models.target.vocab_size)
        sampler = Sampler(temperature=0.0, seed=0, vocab_size=vocabulary)
        for step in self.generation.decode(
            GenerationConfig(self.drafter, sampler, self.models.profile.speculation.budget, limit, end_token_ids)
        ):
            piece = stream.push(step.committed_tokens)
            stats.add(step, piece.token_count)
            text += piece.text
            if piece.text:
                yield TextDelta(piece.text)
            if step.committed_tokens[-1] in end_token_ids:
                return "stop"
            if request.max_lines and text.lstrip("\n").count("\n") >= request.max_lines:
                return "lines"
            if reason := deadline.end_reason():
                return reason
        return "length"


class _Deadline:
    def __init__(self, seconds: float, cancelled: Flag) -> None:
        self.expires_at = perf_counter() + seconds if seconds else float("inf")
        self.cancelled = cancelled

    def end_reason(self) -> str:
        """The finish reason; "" to continue."""
        if self.cancelled.is_set():
            return "cancelled"
        return "timeout" if perf_counter() > self.expires_at else ""
