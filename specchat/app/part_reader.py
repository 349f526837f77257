"""Ask a question with files that do not fit the context window: they are read in parts, and notes are attached.

Each part is a request of its own in a conversation beside the original one, which has its settings, is not stored, and
is emptied before every part, so a part has the whole context window (map). The notes of all parts are read in turn
while they do not fit (reduce). Then the question goes to the original conversation, with the notes in place of the
file. When a part is stopped or fails, the question is not sent.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from threading import Event as Flag

from specchat.chat.events import Event, Failed, Finished, LoadingProgress, Notice, PrefillProgress, TextDelta, Waiting
from specchat.chat.request import Attachment, Request
from specchat.context.long_files import split_parts
from specchat.context.retrieve import CHARACTERS_PER_TOKEN, ContextBudget, split_named_files
from specchat.errors import CancelledError, ContextError, error_with_exit_code
from specchat.host.client import Conversation

NOTE_SHARE = 1 / 8  # of the context window, for the note about a part
MAX_LEVELS = 4  # of notes about notes
MIN_PART_CHARACTERS = 200
PART_PROMPT = (
    "Part {number} of {count} of {name}: note what it says that matters for this request, with exact names and "
    "numbers, and nothing else. The request: {question}"
)


@dataclass
class PartReader:
    """Asks questions in a conversation. Remembers the notes about files, so that a repeated question is quick."""

    conversation: Conversation
    _notes: dict[tuple[Attachment, str], str] = field(default_factory=dict[tuple[Attachment, str], str])

    def ask(self, request: Request, window_tokens: int, cancelled: Flag) -> Iterator[Event]:
        """The events of the answer, and before them the progress of reading the files that do not fit."""
        _, long = split_named_files(request.files, ContextBudget.of_window(window_tokens))
        if long:
            notes = yield from self._read(long, request, window_tokens, cancelled)
            request = replace(request, files=tuple(notes.get(file, file) for file in request.files))
        yield from self.conversation.ask(request, cancelled)

    def _read(
        self, long: tuple[Attachment, ...], request: Request, window_tokens: int, cancelled: Flag
    ) -> Generator[Event, None, dict[Attachment, Attachment]]:
        """The notes in place of each file."""
        notes = dict[Attachment, Attachment]()
        notes_characters = ContextBudget.of_window(window_tokens).passage_characters // len(long)
        with closing(self.conversation.open_beside()) as beside:
            for file in long:
                if (file, request.text) not in self._notes:
                    reading = _Reading(beside, file, request, window_tokens, notes_characters, cancelled)
                    self._notes[file, request.text] = yield from reading.notes()
                text = self._notes[file, request.text]
                kept = text[:notes_characters]
                notes[file] = Attachment(f"notes about all of {file.name}", kept)
                yield Notice(_attached_line(file, kept, len(text) - len(kept)))
        return notes


def _attached_line(file: Attachment, notes: str, left_out: int) -> str:
    tokens = -(-len(notes) // CHARACTERS_PER_TOKEN)
    cut = f"; the last {left_out:,} characters of the notes are left out" if left_out else ""
    return f"attached: notes about all of {file.name} (about {tokens:,} tokens), which does not fit itself{cut}"


@dataclass(frozen=True)
class _Reading:
    """One file that is read, for one question."""

    beside: Conversation
    file: Attachment
    request: Request
    window_tokens: int
    notes_characters: int  # of all notes about the file
    cancelled: Flag

    def notes(self) -> Generator[Event, None, str]:
        name, text = self.file.name, self.file.text
        for _ in range(MAX_LEVELS):
            text = yield from self._read_level(name, text)
            if len(text) <= self.notes_characters:
                break
            name = f"the notes about {self.file.name}"
        return text

    def _read_level(self, name: str, text: str) -> Generator[Event, None, str]:
        """The notes about the parts of a text, in a row."""
        notes, part_characters = list[str](), ContextBudget.of_window(self.window_tokens).part_characters
        parts = split_parts(text, part_characters)
        while len(notes) < len(parts):
            try:
                note = yield from self._ask_about_part(name, parts, len(notes))
            except ContextError as error:  # the text needs more tokens than estimated
                part_characters //= 2
                if part_characters < MIN_PART_CHARACTERS:
                    raise ContextError(f"{name} cannot be read in parts: {error}; the question is not sent") from error
                parts = (*parts[: len(notes)], *split_parts("".join(parts[len(notes) :]), part_characters))
            else:
                notes.append(note.strip())
        return "\n\n".join(filter(None, notes)) + "\n"

    def _ask_about_part(self, name: str, parts: tuple[str, ...], index: int) -> Generator[Event, None, str]:
        count, before = len(parts), sum(len(part) for part in parts[:index])
        total, label = sum(len(part) for part in parts), f"reading {name}, part {index + 1} of {count}"
        yield LoadingProgress(self.file.name, before, total, label)
        if turns := len(self.beside.turns()):
            self.beside.rewind(turns)
        prompt = PART_PROMPT.format(number=index + 1, count=count, name=name, question=self.request.text)
        part = Attachment(f"{name} part {index + 1}", parts[index])
        max_tokens = max(1, int(self.window_tokens * NOTE_SHARE))
        request = Request(prompt, (part,), max_tokens, variant=self.request.variant)
        note = list[str]()
        for event in self.beside.ask(request, self.cancelled):
            match event:
                case PrefillProgress(processed_tokens=done, prompt_tokens=tokens):
                    read = before + len(parts[index]) * done // max(tokens, 1)
                    yield LoadingProgress(self.file.name, read, total, label)
                case LoadingProgress() | Waiting():
                    yield event
                case TextDelta(text=text):
                    note.append(text)
                case Failed(message=message, exit_code=ContextError.exit_code):
                    raise ContextError(message)
                case Failed(message=message, exit_code=code):
                    raise error_with_exit_code(f"{label}: {message}; the question is not sent", code)
                case Finished(finish_reason="cancelled"):
                    raise CancelledError(f"stopped while {label}; the question is not sent")
                case _:
                    pass
        return "".join(note)
