"""The order of an edit, its events, and the edit of one file that was accepted."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from specchat.app.edit_task import EditResult
from specchat.app.edited_files import EditedFile
from specchat.chat.events import Event
from specchat.edit.atomic_write import Replacement
from specchat.edit.edit_plan import Region
from specchat.edit.edit_turn import EditRun
from specchat.edit.source_text import Source
from specchat.errors import NoChangeError, UsageError


@dataclass(frozen=True)
class EditOrder:
    """What to edit and how. `writes`: False only proposes. `next_steps` names what may help after a failure.

    `sketch`: the lines of one file to change, with gaps for what stays.
    """

    instruction: str
    files: tuple[EditedFile, ...]
    region: Region | None = None
    checks: tuple[str, ...] = ()
    is_together: bool = False
    writes: bool = True
    next_steps: str = ""
    sketch: str = ""

    def __post_init__(self) -> None:
        if self.region and len(self.files) > 1:
            raise UsageError("-l FIRST-LAST is about one file; name one")
        if len(self.files) > 1 and len({file.path.resolve() for file in self.files}) < len(self.files):
            raise UsageError("two of these names are the same file; name it once")


class EditEvent:
    """What the verb yields beside the events of answers."""


@dataclass(frozen=True)
class AcceptedEdit(EditEvent):
    """The new text of one file, after the consent; `run` has what it cost."""

    file: EditedFile
    source: Source
    result: EditResult
    run: EditRun
    text: str
    accepted_hunks: int
    total_hunks: int

    @property
    def has_changes(self) -> bool:
        return self.text != self.source.text

    @property
    def new_bytes(self) -> bytes:
        return self.source.encode(self.text)

    @property
    def replacement(self) -> Replacement:
        return Replacement(self.file.path, None if self.file.is_new else self.source.raw, self.new_bytes)


@dataclass(frozen=True)
class Rewriting(EditEvent):
    """The text of another file is asked for."""

    source: Source
    is_new: bool = False


@dataclass(frozen=True)
class Proposed(EditEvent):
    """A new text that waits for a `Decision`.

    `check` raises for a text that must not be written; `rewrite` asks the model for new lines: the first one and the
    end, from 0, and what should be different.
    """

    file: EditedFile
    source: Source
    result: EditResult
    check: Callable[[str], None]
    rewrite: Callable[[int, int, str], Generator[Event, None, str]]

    @property
    def path(self) -> str:
        return self.source.name

    @property
    def old(self) -> str | None:
        return None if self.file.is_new else self.source.text

    @property
    def new(self) -> str:
        return self.result.text

    @property
    def warning(self) -> str:
        return self.result.warnings.summary


@dataclass(frozen=True)
class Talk(EditEvent):
    """What the model said beside its new text."""

    text: str


@dataclass(frozen=True)
class Rejected(EditEvent):
    """What the model wrote and cannot be taken, as a diff; the error that follows says why."""

    diff: str


@dataclass(frozen=True)
class Unchanged(EditEvent):
    """A file that needs no change, beside others."""

    name: str
    why: NoChangeError


@dataclass(frozen=True)
class Writing(EditEvent):
    """Everything is decided; what follows is written, all files or none."""

    edits: Sequence[AcceptedEdit]


@dataclass(frozen=True)
class Written(EditEvent):
    """All files are written. `summary` is what the answers cost, "" without any."""

    edits: Sequence[AcceptedEdit]
    undo_number: int
    summary: str

    @property
    def hunks(self) -> str:
        """How many were taken, as in "2/3"."""
        taken, total = (sum(getattr(each, name) for each in self.edits) for name in ("accepted_hunks", "total_hunks"))
        return f"{taken}/{total}"
