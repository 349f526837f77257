"""A gap in a text, filled: no conversation, no template, the likeliest tokens, and a suffix tree that guesses.

What is typed in one file is asked about again and again, so one text is kept and only revised: what stands before the
cursor is read once. Guesses come from the text around the gap itself, which costs no model and changes no token.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from threading import Event as Flag
from time import perf_counter

from specchat.chat.events import Event, Finished, Prefill, Text, Totals
from specchat.chat.fim_request import Gap
from specchat.chat.fim_tokens import Infill, infill_of
from specchat.chat.session import Voice
from specchat.drafters.suffix import Suffix
from specchat.engine.decode import Plan, Writing
from specchat.engine.sampling import Sampler
from specchat.engine.stats import Stats
from specchat.models.detokenize import TextStream

UNABLE = "unable"  # the reason of a filling that no model here was taught


class Completer:
    """Fills gaps, one after the other, and keeps what it read for the next one."""

    def __init__(self, voice: Voice) -> None:
        self.voice = voice
        self.infill = infill_of(voice.tokenizer)
        self.drafter = Suffix()
        self.writing = Writing(voice.target, (self.drafter,))

    def fill(self, gap: Gap, cancelled: Flag) -> Iterator[Event]:
        """Write into the gap, one event at a time. Set `cancelled` from any thread to end within a step."""
        if self.infill is None:
            yield Finished(UNABLE, Totals())
            return
        voice, begun, deadline = self.voice, perf_counter(), _Deadline(gap.seconds, cancelled)
        window = min(voice.profile.limits.context, voice.target.window)
        limit = min(gap.max_tokens, window // 2)
        prompt = self.infill.prompt(gap, window - limit)
        reused = self.writing.revise(prompt)
        with voice.target.pool.seated(self.writing.cache, self.writing.rows_for(limit)):
            for known in self.writing.read():
                yield Prefill(known + 1, len(prompt), reused)
                if ended := deadline.ended():
                    yield Finished(ended, Totals())
                    return
            totals = Totals(len(prompt), reused, prefill_seconds=perf_counter() - begun)
            yield from self._written(self.infill, gap, limit, totals, deadline)

    def close(self) -> None:
        """Give back the memory of the text."""
        self.writing.close()

    def _written(self, infill: Infill, gap: Gap, limit: int, totals: Totals, deadline: _Deadline) -> Iterator[Event]:
        stats = Stats()
        reason = yield from self._decoded(infill, gap, limit, stats, deadline)
        yield Finished(
            reason,
            replace(
                totals, tokens=stats.tokens, steps=stats.steps, drafted=stats.drafted, accepted=dict(stats.accepted),
                draft_seconds=stats.draft_seconds, verify_seconds=stats.verify_seconds,
            ),
        )  # fmt: skip

    def _decoded(
        self, infill: Infill, gap: Gap, limit: int, stats: Stats, deadline: _Deadline
    ) -> Generator[Event, None, str]:
        """Yields what is heard; returns why it ended."""
        ends, said = infill.ends, ""
        stream = TextStream(lambda token: b"" if token in ends else infill.tokenizer.bytes_of(token))
        vocabulary = min(infill.tokenizer.size, self.voice.target.vocabulary)
        sampler = Sampler(temperature=0.0, seed=0, vocabulary=vocabulary)
        for step in self.writing.steps(Plan(self.drafter, sampler, self.voice.profile.speculation.budget, limit, ends)):
            piece = stream.push(step.tokens)
            stats.add(step, piece.kept)
            said += piece.text
            if piece.text:
                yield Text(piece.text)
            if step.tokens[-1] in ends:
                return "stop"
            if gap.lines and _lines(said) >= gap.lines:
                return "lines"
            if ended := deadline.ended():
                return ended
        return "length"


class _Deadline:
    """When to stop, however far it is: somebody said so, or the time is over."""

    def __init__(self, seconds: float, cancelled: Flag) -> None:
        self.until = perf_counter() + seconds if seconds else float("inf")
        self.cancelled = cancelled

    def ended(self) -> str:
        """The reason to end now, "" for none."""
        if self.cancelled.is_set():
            return "cancelled"
        return "late" if perf_counter() > self.until else ""


def _lines(said: str) -> int:
    """Lines that are whole, those before the first visible character left out."""
    return said.lstrip("\n").count("\n")
