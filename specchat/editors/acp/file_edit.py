"""One file as somebody wants it: written by the model, shown as a diff, and after a yes written once.

The editor writes where it can, because its own review is made of that; else we do, and `specchat undo` takes it back.
The text is that of the editor's buffer, saved or not.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from acp.schema import FileEditToolCallContent, PromptResponse, ToolCallStart

from specchat.edit.edit_task import Edited
from specchat.edit.edit_turn import sum_of
from specchat.edit.hunks import hunks_between
from specchat.edit.source_text import Source
from specchat.editors.acp.client_files import File
from specchat.editors.acp.edit_intent import Wanted
from specchat.editors.acp.prompt_turn import Telling, tell_usage
from specchat.editors.acp.rewrite_progress import rewrite
from specchat.editors.acp.updates import ALLOW, ALLOW_ALWAYS, edit_offered, ended, work_ends, work_goes_on
from specchat.editors.acp.workspace_roots import Places
from specchat.errors import CancelledError, NotTakenError, SpecchatError
from specchat.host.client import Conversation, Wish


@dataclass(frozen=True)
class Terms:
    """Under what terms files are edited: where, by whom, in how large a window, and whether somebody is asked."""

    places: Places
    wish: Wish
    window: int
    is_asking: bool


class Editing:
    """One edit from the wish to the file, which need not be there yet."""

    def __init__(self, wanted: Wanted, terms: Terms, telling: Telling) -> None:
        self.terms, self.telling = terms, telling
        self.editor, self.turn = telling.editor, telling.turn
        self.file = File(wanted, terms.places, lambda path: self.editor.read(self.turn, path))
        self.says_always = False  # the user wants no more questions
        self.offer: ToolCallStart | None = None  # as it was shown last
        self.said = ""  # what became of it

    def run(self) -> PromptResponse:
        """All of it; a SpecchatError says why the file is as it was."""
        source = self.file.read()
        if not self.editor.may_write:
            self.file.check_writable()
        with Conversation(self.terms.wish, "acp") as conversation:
            window = conversation.window or self.terms.window
            edited, talk = rewrite(self.file.job(source, window), conversation, self.telling)
        self.said = self._offered(source, edited)
        self.telling.say(self.said)
        totals = sum_of(talk.finished)
        tell_usage(self.telling, totals, window)
        return ended("end_turn", totals)

    def _offered(self, source: Source, edited: Edited) -> str:
        """Show it, ask if that is wanted or wise, write it; what became of it, in words."""
        hunks = hunks_between(source.text, edited.text)
        new = source.encode(edited.text)
        diff = FileEditToolCallContent(
            type="diff", path=str(self.file.path), new_text=new.decode(source.codec),
            old_text=None if self.file.is_new else source.raw.decode(source.codec),
        )  # fmt: skip
        offer = edit_offered(f"edit-{uuid4().hex[:12]}", self.file.title, diff, hunks[0].first + 1)
        with self._shown_until_over(offer):
            self._decide(offer, is_asking=self.terms.is_asking or edited.flags.verdict is not None)
            self.file.check_unchanged(source)
            self.telling.tell(work_goes_on(offer.tool_call_id))
            hint = self._write(source, new)
        return self.file.when_written(len(hunks), edited, hint)

    @contextmanager
    def _shown_until_over(self, offer: ToolCallStart) -> Generator[None]:
        """A piece of work for the editor, with how it ended."""
        self.telling.tell(offer)
        self.offer = offer.model_copy(update={"status": "failed"})
        try:
            yield
        except (SpecchatError, OSError) as error:
            why = "" if isinstance(error, CancelledError) else str(error)
            self.telling.tell(work_ends(offer.tool_call_id, is_done=False, text=why))
            raise
        self.offer = offer.model_copy(update={"status": "completed"})
        self.telling.tell(work_ends(offer.tool_call_id, is_done=True))

    def _decide(self, offer: ToolCallStart, *, is_asking: bool) -> None:
        """NotTakenError for a no."""
        answer = self.editor.permission(self.turn, offer) if is_asking else ALLOW
        if answer not in (ALLOW, ALLOW_ALWAYS):
            raise NotTakenError(self.file.when_not_taken)
        self.says_always = answer == ALLOW_ALWAYS

    def _write(self, source: Source, new: bytes) -> str:
        """One of the two, once. Returns how it can be taken back, if not in the editor."""
        if self.turn.cancelled.is_set():
            raise CancelledError("stopped; nothing is written")
        if self.editor.may_write:
            self.editor.write(self.turn, self.file.path, new.decode(source.codec))
            return ""
        return self.file.write(source, new)
