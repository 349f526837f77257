"""A file written anew by the model, while the editor shows how far it is. Writes nothing to any file."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from specchat.chat.events import Event, Text
from specchat.edit.edit_task import Edited, Job, edit
from specchat.edit.edit_turn import Talk
from specchat.edit.rewrite_position import Alignment
from specchat.editors.acp.prompt_turn import Telling
from specchat.editors.acp.updates import work_begins, work_ends, work_goes_on
from specchat.host.client import Conversation

STEP_PERCENT = 10  # told no oftener: editors draw every update


@dataclass
class Progress:
    """Hears a text while it is written."""

    telling: Telling
    work: str
    title: str
    alignment: Alignment
    _told: int = 0

    def hear(self, event: Event) -> None:
        """Text is only counted: the diff says it better."""
        if not isinstance(event, Text):
            self.telling.hear(event)
            return
        self.alignment.feed(event.text)
        percent = int(100 * self.alignment.share)
        if percent >= self._told + STEP_PERCENT:
            self._told = percent
            self.telling.tell(work_goes_on(self.work, f"{self.title} ({percent} %)"))


def rewrite(job: Job, conversation: Conversation, telling: Telling) -> tuple[Edited, Talk]:
    """The new text, and what was heard of it; an EditError says why there is none."""
    work = f"writing-{uuid4().hex[:12]}"
    title = f"Writing {job.source.name}" if job.opening else f"Writing {job.source.name} anew"
    progress = Progress(telling, work, title, Alignment(job.source.text))
    talk = Talk(conversation, telling.turn.cancelled, progress.hear, lambda: conversation.switch(conversation.fresh()))
    telling.tell(work_begins(work, title, "think"))
    is_done = False
    try:
        edited = edit(job, talk)
        is_done = True
        return edited, talk
    finally:
        telling.tell(work_ends(work, is_done=is_done, title=title))
