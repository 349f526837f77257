"""`/summarize FILE`: the model reads a long file part by part, and its summary is attached to a question.

Each part is a request of its own, in a copy of the conversation that is emptied before every part, so a part has the
whole context window. The notes of all parts are summarized in turn while they do not fit. Then the copy is deleted,
and the original conversation goes on with the summary. Nothing is attached if a part is stopped or fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from specchat.chat.at_names import resolve_names, unquoted_name
from specchat.chat.events import Finished
from specchat.chat.request import Attachment
from specchat.chat.retrieve import CHARACTERS_PER_TOKEN
from specchat.commands.chat_state import ChatState, CommandResult
from specchat.errors import UsageError
from specchat.profile import load_profile

PART_SHARE, NOTE_SHARE = 1 / 2, 1 / 8  # of the context window, for the text of a part and for the note about it
MAX_LEVELS = 4  # of notes about notes
DEFAULT_QUESTION = "Summarize this file."
PART_PROMPT = (
    "Part {number} of {count} of {name}: note what it says that matters for this request, with exact names and "
    "numbers, and nothing else. The request: {question}"
)


@dataclass(frozen=True)
class _Reading:
    """A file that is being read: the parts of this level, and the notes about the first of them."""

    name: str
    question: str
    parts: tuple[str, ...]
    notes: tuple[str, ...]
    part_characters: int
    original_session: str
    first_parts: int  # of the file itself
    level: int = 1


def summarize(chat: ChatState, argument: str) -> CommandResult:
    """Start with the first part. A file that fits is attached whole, which needs no summary."""
    name, question = _split_argument(argument)
    named, listing = resolve_names([name])
    if len(named) != 1 or listing.files:
        raise UsageError("/summarize reads one file; attach a folder with @, which finds the matching passages")
    window = chat.context_window or load_profile(chat.conversation.profile).limits.context
    part_characters = int(window * PART_SHARE * CHARACTERS_PER_TOKEN)
    parts = split_parts(named[0].text, part_characters)
    if len(parts) < 2:
        chat.attachment_notice, chat.passage_sources = f"{name} fits into the context window; it is attached whole", ()
        return CommandResult(request=chat.make_bare_request(question, (named[0],)))
    conversation = chat.conversation
    original_session = conversation.session_id
    conversation.switch_session(conversation.call("fork"))
    reading = _Reading(name, question, parts, (), part_characters, original_session, len(parts))
    note_tokens = int(window * NOTE_SHARE)
    return replace(
        _ask_about_part(chat, reading, note_tokens),
        text=f"{name} does not fit into the context window: it is read in {len(parts)} parts, and what they say is "
        "attached; Esc or Ctrl-C stops it",
    )


def split_parts(text: str, max_characters: int) -> tuple[str, ...]:
    """The text in parts that fit, each as long as possible, which end at line ends where lines are short enough."""
    parts, current = list[str](), ""
    for line in text.splitlines(keepends=True):
        if current and len(current) + len(line) > max_characters:
            parts.append(current)
            current = ""
        current += line
        while len(current) > max_characters:
            parts.append(current[:max_characters])
            current = current[max_characters:]
    return (*parts, *([current] if current.strip() else []))


def _split_argument(argument: str) -> tuple[str, str]:
    """The name, which may be in quotes and after an @, and the question."""
    typed = argument.strip().removeprefix("@")
    if typed.startswith('"') and '"' in typed[1:]:
        name, _, question = typed[1:].partition('"')
    else:
        name, _, question = typed.partition(" ")
    if not name:
        raise UsageError("/summarize needs a file, and perhaps a question about it")
    return unquoted_name(name), question.strip() or DEFAULT_QUESTION


def _ask_about_part(chat: ChatState, reading: _Reading, note_tokens: int) -> CommandResult:
    number = len(reading.notes) + 1
    prompt = PART_PROMPT.format(
        number=number, count=len(reading.parts), name=_level_name(reading), question=reading.question
    )
    conversation = chat.conversation
    if turns := len(conversation.turns()):
        conversation.rewind(turns)
    chat.start_answer()
    chat.attachment_notice, chat.passage_sources = "", ()
    part = Attachment(f"{reading.name} part {number}", reading.parts[number - 1])
    request = chat.make_bare_request(prompt, (part,), max_tokens=note_tokens)
    return CommandResult(request=request, after_answer=partial(_keep_note, reading=reading, note_tokens=note_tokens))


def _level_name(reading: _Reading) -> str:
    return reading.name if reading.level == 1 else f"the notes about {reading.name}"


def _keep_note(chat: ChatState, reading: _Reading, note_tokens: int) -> CommandResult:
    outcome, note = chat.last_outcome, chat.answer.strip()
    if not isinstance(outcome, Finished) or outcome.finish_reason == "cancelled":
        _return_to_original(chat, reading)
        done = f"after {len(reading.notes)} of {len(reading.parts)} parts"
        return CommandResult(f"{reading.name} is not summarized: stopped {done}; the conversation goes on as it was")
    reading = replace(reading, notes=(*reading.notes, note))
    if len(reading.notes) < len(reading.parts):
        return _ask_about_part(chat, reading, note_tokens)
    notes = _joined_notes(reading.notes)
    if len(notes) <= reading.part_characters or reading.level == MAX_LEVELS:
        return _answer_from_notes(chat, reading, notes)
    parts = split_parts(notes, reading.part_characters)
    return _ask_about_part(chat, replace(reading, parts=parts, notes=(), level=reading.level + 1), note_tokens)


def _joined_notes(notes: Sequence[str]) -> str:
    return "\n\n".join(filter(None, notes)) + "\n"


def _answer_from_notes(chat: ChatState, reading: _Reading, notes: str) -> CommandResult:
    _return_to_original(chat, reading)
    chat.start_answer()
    kept = notes[: reading.part_characters]
    attached = Attachment(f"notes about all {reading.first_parts} parts of {reading.name}", kept)
    cut = (
        f"; the last {len(notes) - len(kept):,} characters of the notes are left out" if len(kept) < len(notes) else ""
    )
    tokens = -(-len(kept) // CHARACTERS_PER_TOKEN)
    return CommandResult(
        f"attached: {attached.name} (about {tokens:,} tokens), instead of the file, which does not fit{cut}",
        chat.make_bare_request(reading.question, (attached,)),
    )


def _return_to_original(chat: ChatState, reading: _Reading) -> None:
    conversation = chat.conversation
    copy = conversation.session_id
    conversation.switch_session(conversation.call("open_session", {"session": reading.original_session}))
    conversation.call("delete", {"session": copy})
