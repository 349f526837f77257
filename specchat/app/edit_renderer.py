"""An edit in the hands of a person: its events and the review of its hunks, by the callbacks of a front end."""

from collections.abc import Callable
from dataclasses import dataclass, field

from specchat.app.consent import Decision
from specchat.app.edit import EditEvents, display_path, drive
from specchat.app.edit_events import EditEvent, Proposed, Rejected, Rewriting, Talk, Written
from specchat.app.edit_progress import ProgressLine
from specchat.app.hunk_review import EditUI, HunkDialogue
from specchat.chat.events import Event, Notice
from specchat.edit.edit_turn import ignore_event


@dataclass
class EditRenderer:
    """Renders one run of the verb."""

    ui: EditUI
    undo_command: str = "/undo"
    report: str = ""  # the line that says what was written
    _shown_notices: set[str] = field(default_factory=set[str])
    _on_answer: Callable[[Event], None] = ignore_event

    def run(self, events: EditEvents) -> str:
        """The line that reports what was written."""
        drive(events, self.on_event, self.decide)
        return self.report

    def on_event(self, event: Event | EditEvent) -> None:
        match event:
            case Rewriting(source=source):
                self._on_answer = ProgressLine(source.text, self.ui.show_progress).on_event
            case Talk(text=text):
                self.ui.show_message(text)
            case Rejected(diff=diff):
                self.ui.show_rejected(diff)
            case Written(edits=edits):
                names = ", ".join(display_path(each.file.path) for each in edits)
                what = f"created {names}" if edits[0].file.is_new else f"applied {event.hunks} hunks to {names}"
                undo = f"{self.undo_command} {event.undo_number} undoes it"
                self.report = " · ".join(filter(None, [what, event.summary, undo]))
            case Notice(text=text) if text not in self._shown_notices:
                self._shown_notices.add(text)  # each session may repeat what it says about the models
                self.ui.show_message(text)
                self.ui.on_event(event)
            case Notice() | EditEvent():
                pass
            case _:
                self._on_answer(event)
                self.ui.on_event(event)

    def decide(self, proposed: Proposed) -> Decision:
        return HunkDialogue(proposed, self.ui, self.on_event).decide()
