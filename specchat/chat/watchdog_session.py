"""A session that reports the duration of its passes to a watchdog: on a busy machine, fewer threads may be faster.

It knows events and a watchdog, and not how threads are counted and set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from threading import Event as Flag

from specchat.chat.events import Event, StepDone
from specchat.chat.request import Request
from specchat.chat.session import LoadedModels, Session
from specchat.chat.transcript import Turn
from specchat.chooser.chooser import Chooser
from specchat.engine.cache import bucket_of
from specchat.engine.drafter import Drafter
from specchat.threads import ThreadWatchdog


class WatchdogSession(Session):
    """A session that reports its passes to a watchdog, which may act between answers."""

    def __init__(
        self,
        watchdog: ThreadWatchdog,
        models: LoadedModels,
        drafters: Mapping[str, Drafter],
        chooser: Chooser,
        turns: Sequence[Turn] = (),
    ) -> None:
        super().__init__(models, drafters, chooser, turns)
        self.watchdog = watchdog

    def ask(self, request: Request | str, cancelled: Flag | None = None) -> Iterator[Event]:
        with self.watchdog.answering():
            for event in super().ask(request, cancelled):
                if isinstance(event, StepDone):
                    kind = bucket_of(len(self.generation.tokens)), len(event.draft_tokens)
                    self.watchdog.record_pass(kind, event.verify_seconds)
                yield event
