"""A gap in a text, filled: no conversation, no template, the likeliest tokens, and a suffix tree that guesses.

What is typed in one file is asked about again and again, so one text is kept and only revised: what stands before the
cursor is read once. Guesses come from the text around the gap itself, which costs no model and changes no token.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from threading import Event as Flag
from time import perf_counter

from specchat.chat.events import Event, Finished, PrefillProgress, TextDelta, Totals
from specchat.chat.fim_request import FimRequest
from specchat.chat.fim_tokens import FimTokens, find_fim_tokens
from specchat.chat.session import LoadedModels
from specchat.drafters.suffix_decoding import SuffixDecoding
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.sampling import Sampler
from specchat.engine.stats import DecodingStats
from specchat.models.detokenize import Detokenizer

UNSUPPORTED = "unable"  # the reason of a filling that no model here was taught


class FimCompleter:
    """Fills gaps, one after the other, and keeps what it read for the next one."""

    def __init__(self, models: LoadedModels) -> None:
        self.models = models
        self.fim_tokens = find_fim_tokens(models.tokenizer)
        self.drafter = SuffixDecoding()
        self.generation = Generation(models.target, (self.drafter,))

    def complete(self, request: FimRequest, cancelled: Flag) -> Iterator[Event]:
        """Write into the gap, one event at a time. Set `cancelled` from any thread to end within a step."""
        if self.fim_tokens is None:
            yield Finished(UNSUPPORTED, Totals())
            return
        voice, begun, deadline = self.models, perf_counter(), _Deadline(request.timeout_seconds, cancelled)
        window = min(voice.profile.limits.context, voice.target.context_window)
        limit = min(request.max_tokens, window // 2)
        prompt = self.fim_tokens.build_prompt(request, window - limit)
        reused = self.generation.replace_tokens(prompt)
        with voice.target.pool.acquire_slot(self.generation.cache, self.generation.rows_needed(limit)):
            for known in self.generation.prefill():
                yield PrefillProgress(known + 1, len(prompt), reused)
                if ended := deadline.end_reason():
                    yield Finished(ended, Totals())
                    return
            totals = Totals(len(prompt), reused, prefill_seconds=perf_counter() - begun)
            yield from self._generate(self.fim_tokens, request, limit, totals, deadline)

    def close(self) -> None:
        """Give back the memory of the text."""
        self.generation.close()

    def _generate(
        self, infill: FimTokens, gap: FimRequest, limit: int, totals: Totals, deadline: _Deadline
    ) -> Iterator[Event]:
        stats = DecodingStats()
        reason = yield from self._decode(infill, gap, limit, stats, deadline)
        yield Finished(
            reason,
            replace(
                totals, tokens=stats.tokens, steps=stats.steps, drafted=stats.drafted, accepted=dict(stats.accepted_by_drafter),
                draft_seconds=stats.draft_seconds, verify_seconds=stats.verify_seconds,
            ),
        )  # fmt: skip

    def _decode(
        self, infill: FimTokens, gap: FimRequest, limit: int, stats: DecodingStats, deadline: _Deadline
    ) -> Generator[Event, None, str]:
        """Yields what is heard; returns why it ended."""
        ends, said = infill.end_token_ids, ""
        stream = Detokenizer(lambda token: b"" if token in ends else infill.tokenizer.token_bytes(token))
        vocabulary = min(infill.tokenizer.vocab_size, self.models.target.vocab_size)
        sampler = Sampler(temperature=0.0, seed=0, vocab_size=vocabulary)
        for step in self.generation.decode(
            GenerationConfig(self.drafter, sampler, self.models.profile.speculation.budget, limit, ends)
        ):
            piece = stream.push(step.committed_tokens)
            stats.add(step, piece.token_count)
            said += piece.text
            if piece.text:
                yield TextDelta(piece.text)
            if step.committed_tokens[-1] in ends:
                return "stop"
            if gap.max_lines and _complete_lines(said) >= gap.max_lines:
                return "lines"
            if ended := deadline.end_reason():
                return ended
        return "length"


class _Deadline:
    """When to stop, however far it is: somebody said so, or the time is over."""

    def __init__(self, seconds: float, cancelled: Flag) -> None:
        self.expires_at = perf_counter() + seconds if seconds else float("inf")
        self.cancelled = cancelled

    def end_reason(self) -> str:
        """The reason to end now, "" for none."""
        if self.cancelled.is_set():
            return "cancelled"
        return "late" if perf_counter() > self.expires_at else ""


def _complete_lines(said: str) -> int:
    """Lines that are whole, those before the first visible character left out."""
    return said.lstrip("\n").count("\n")
