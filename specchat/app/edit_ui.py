"""What a front end gives to an edit in the hands of a person, as callbacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event as Flag

from specchat.chat.events import Event
from specchat.edit.edit_turn import ignore_event


@dataclass(frozen=True)
class EditUI:
    """The callbacks of a front end during an edit.

    `read_input` returns a key or a line, "" when there is no input; `edit_text` takes a text and a file suffix and
    returns the changed text, None when the user cancels; `show_progress` gets progress lines; `on_event` gets the
    events of answers.
    """

    read_input: Callable[[str], str]
    show_hunk: Callable[[str], None]
    show_message: Callable[[str], None]
    edit_text: Callable[[str, str], str | None]
    show_progress: Callable[[str], None]
    on_event: Callable[[Event], None] = ignore_event
    cancelled: Flag = field(default_factory=Flag)
    show_rejected: Callable[[str], None] = lambda _diff: None  # what the model wrote and cannot be taken, as a diff
