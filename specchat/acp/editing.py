"""One file as somebody wants it: written anew by the model, shown as a diff, and after a yes written once.

The editor writes where it can, because its own review is made of that; else we do, and `specchat undo` takes it back.
The text is that of the editor's buffer, saved or not.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from acp.schema import FileEditToolCallContent, PromptResponse, ToolCallStart

from specchat.acp.answering import Telling, tell_usage
from specchat.acp.places import Places
from specchat.acp.rewriting import rewrite
from specchat.acp.updates import ALLOW, ALLOW_ALWAYS, edit_offered, ended, work_ends, work_goes_on
from specchat.acp.wanted import Wanted
from specchat.edit.apply import Replacement, check_writable
from specchat.edit.hunks import hunks_between
from specchat.edit.kept import kept_edits
from specchat.edit.plan import parse_lines
from specchat.edit.source import Source, make_source, read_source
from specchat.edit.task import Edited, Job
from specchat.edit.turn import sum_of
from specchat.edit.undo import apply
from specchat.errors import CancelledError, FileChangedError, InputError, NotTakenError, SpecchatError
from specchat.host.client import Conversation, Wish


@dataclass(frozen=True)
class Terms:
    """Under what terms files are edited: where, by whom, in how large a window, and whether somebody is asked."""

    places: Places
    wish: Wish
    window: int
    is_asking: bool


class Editing:
    """One edit from the wish to the file."""

    def __init__(self, wanted: Wanted, terms: Terms, telling: Telling) -> None:
        self.wanted, self.terms, self.telling = wanted, terms, telling
        self.editor, self.turn = telling.editor, telling.turn
        self.shown = terms.places.shown(wanted.path)
        self.says_always = False  # the user wants no more questions

    def run(self) -> PromptResponse:
        """All of it; a SpecchatError says why the file is as it was."""
        self.terms.places.check_writable(self.wanted.path)
        source = self._read()
        if not self.editor.may_write:
            check_writable(self.wanted.path)
        lines = parse_lines(self.wanted.lines) if self.wanted.lines else None
        with Conversation(self.terms.wish, "acp") as conversation:
            window = conversation.window or self.terms.window
            job = Job(source, self.wanted.instruction, window, lines)
            edited, talk = rewrite(job, conversation, self.telling)
        self.telling.say(self._offered(source, edited))
        totals = sum_of(talk.finished)
        tell_usage(self.telling, totals, window)
        return ended("end_turn", totals)

    def _offered(self, source: Source, edited: Edited) -> str:
        """Show it, ask if that is wanted or wise, write it; what became of it, in words."""
        hunks = hunks_between(source.text, edited.text)
        new = source.encode(edited.text)
        diff = FileEditToolCallContent(
            type="diff", path=str(self.wanted.path), old_text=source.raw.decode(source.codec),
            new_text=new.decode(source.codec),
        )  # fmt: skip
        offer = edit_offered(f"edit-{uuid4().hex[:12]}", f"Edit {self.shown}", diff, hunks[0].first + 1)
        with self._shown_until_over(offer):
            self._decide(offer, is_asking=self.terms.is_asking or edited.flags.verdict is not None)
            self._check_unchanged(source)
            self.telling.tell(work_goes_on(offer.tool_call_id))
            hint = self._write(source, new)
        count = f"{len(hunks)} change{'' if len(hunks) == 1 else 's'} written"
        return f"{self.shown}: {'; '.join(filter(None, [count, edited.flags.words, hint]))}."

    @contextmanager
    def _shown_until_over(self, offer: ToolCallStart) -> Generator[None]:
        """A piece of work for the editor, with how it ended."""
        self.telling.tell(offer)
        try:
            yield
        except (SpecchatError, OSError) as error:
            why = "" if isinstance(error, CancelledError) else str(error)
            self.telling.tell(work_ends(offer.tool_call_id, is_done=False, text=why))
            raise
        self.telling.tell(work_ends(offer.tool_call_id, is_done=True))

    def _decide(self, offer: ToolCallStart, *, is_asking: bool) -> None:
        """NotTakenError for a no."""
        answer = self.editor.permission(self.turn, offer) if is_asking else ALLOW
        if answer not in (ALLOW, ALLOW_ALWAYS):
            raise NotTakenError(f"{self.shown} was left as it was")
        self.says_always = answer == ALLOW_ALWAYS

    def _read(self) -> Source:
        """The file as the editor has it, or as the disk has it."""
        path = self.wanted.path
        source = read_source(path)  # what is missing or no text is so for the editor too
        buffer = self.editor.read(self.turn, path)
        if buffer is None:
            return Source(self.shown, source.raw, source.text, source.newline, source.codec)
        if "\0" in buffer:
            raise InputError(f"{self.shown}: a binary file")
        return make_source(buffer.encode(), self.shown)

    def _check_unchanged(self, source: Source) -> None:
        """Somebody may have typed while the model wrote, or while the question stood there."""
        if self._read().raw != source.raw:
            raise FileChangedError(f"{self.shown} was changed meanwhile; nothing is written, ask again")

    def _write(self, source: Source, new: bytes) -> str:
        """One of the two, once. Returns how it can be taken back, if not in the editor."""
        if self.turn.cancelled.is_set():
            raise CancelledError("stopped; nothing is written")
        if self.editor.may_write:
            self.editor.write(self.turn, self.wanted.path, new.decode(source.codec))
            return ""
        kept = apply(kept_edits(), self.wanted.instruction, [Replacement(self.wanted.path, source.raw, new)])
        return f"`specchat undo {kept.number}` takes it back"
