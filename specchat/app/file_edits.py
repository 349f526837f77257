"""`/edit`, `/apply` and `/undo`: change files from inside a conversation, with the task and the review of `specchat
edit`.

An edit runs in a session of its own in the same engine process, so that it does not become part of the conversation.
This module imports no torch.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event as Flag

from specchat.app.code_blocks import CodeBlock, find_code_blocks
from specchat.app.command_registry import COMMAND_PATTERN, ChatState
from specchat.app.consent import EditConsent
from specchat.app.edit import describe_ways, edit, propose_text
from specchat.app.edit_events import EditOrder
from specchat.app.edit_renderer import EditRenderer
from specchat.app.edit_session import EditSession, edit_request
from specchat.app.edited_files import DiskFile
from specchat.app.hunk_review import EditUI
from specchat.app.take_back import take_back
from specchat.edit.atomic_write import check_writable
from specchat.edit.edit_plan import parse_line_range
from specchat.edit.sketch import find_omission
from specchat.edit.source_text import make_source, read_source
from specchat.errors import InputError, NoChangeError, UsageError
from specchat.host.client import SessionRequest

VALUE_OPTIONS, FLAG_OPTIONS = ("-l", "--lines", "--check"), ("--together", "--plan")
EDIT_OPTIONS_HELP = "its options are -l FIRST-LAST, --check COMMAND, --together and --plan"
NEXT_STEPS = (
    "next: fewer lines (/edit -l FIRST-LAST PATH ...), another model (/model NAME), or /edit --plan PATH ..., which "
    "shows the ways it can be tried"
)
WORD_PATTERN = re.compile(r"""\s*(?:@?"([^"]+)"|@?'([^']+)'|(\S+))""")


def open_edit_session(chat: ChatState, cancelled: Flag) -> EditSession:
    """A session beside this conversation, with its models and its privacy."""
    conversation = chat.conversation
    own = SessionRequest(settings=conversation.settings, is_stored=conversation.is_stored)
    return EditSession(edit_request(own), cancelled, conversation.client_name)


def edit_files(chat: ChatState, argument: str, ui: EditUI) -> str:
    """`/edit PATH... INSTRUCTION`: edit one file after the other; all are written at the end, or none."""
    order, is_plan = parse_edit_arguments(argument)
    with open_edit_session(chat, ui.cancelled) as session:
        if is_plan:
            return "\n".join(f"{name}: {way}" for name, way in describe_ways(order, session))
        return EditRenderer(ui).run(edit(order, session, EditConsent()))


def apply_block(chat: ChatState, argument: str, ui: EditUI) -> str:
    """`/apply [N] [PATH]`: write a code block of the last answer to a new or an existing file.

    A block with gaps is a sketch of an existing file.
    """
    block, path = _block_and_path(chat, argument)
    is_new = not path.exists()
    if is_new and not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder")
    source = make_source(b"", str(path)) if is_new else read_source(path)
    if not is_new:
        check_writable(path)
    text = source.with_original_ending(block.text)
    if text == source.text:
        raise NoChangeError(f"{path}: already has this content")
    file, what = DiskFile(path, is_new), f"code block for {path.name}"
    with open_edit_session(chat, ui.cancelled) as session:
        if not is_new and find_omission(text, source.text):
            return EditRenderer(ui).run(edit(EditOrder(what, (file,), sketch=block.text), session, EditConsent()))
        return EditRenderer(ui).run(propose_text(file, source, text, what, session))


FILE_COMMAND_RUNNERS: Mapping[str, Callable[[ChatState, str, EditUI], str]] = {
    "edit": edit_files,
    "apply": apply_block,
    "undo": lambda _chat, argument, _ui: take_back(argument.removeprefix("@"), "/undo"),
}


def run_file_command(chat: ChatState, line: str, ui: EditUI) -> str:
    match = COMMAND_PATTERN.match(line.strip())
    assert match is not None
    return FILE_COMMAND_RUNNERS[match["name"]](chat, (match["argument"] or "").strip(), ui)


def parse_edit_arguments(argument: str) -> tuple[EditOrder, bool]:
    """Split into options and paths, with or without an @, and the instruction; and whether --plan is there."""
    paths, offset = list[Path](), 0
    region, checks, flags = None, list[str](), set[str]()
    while match := WORD_PATTERN.match(argument, offset):
        word = match[1] or match[2] or match[3]
        if word in VALUE_OPTIONS:
            value = WORD_PATTERN.match(argument, match.end())
            if value is None:
                raise UsageError(f"{word} needs a value; {EDIT_OPTIONS_HELP}")
            text, offset = value[1] or value[2] or value[3], value.end()
            if word == "--check":
                checks.append(text)
            else:
                region = parse_line_range(text)
            continue
        if word in FLAG_OPTIONS:
            flags.add(word)
            offset = match.end()
            continue
        if word.startswith("-") and not Path(word).exists():
            raise UsageError(f"/edit has no option {word}; {EDIT_OPTIONS_HELP}")
        is_marked = word.startswith("@")
        path = Path(word.removeprefix("@")).expanduser()
        if paths and not path.is_file():
            if is_marked:
                raise InputError(f"{path}: no such file")
            break
        paths.append(path)
        offset = match.end()
    instruction = argument[offset:].strip()
    if not paths or not (instruction or "--plan" in flags):
        raise UsageError("an edit needs a file and an instruction: /edit PATH... INSTRUCTION")
    files = tuple(map(DiskFile, paths))
    order = EditOrder(instruction, files, region, tuple(checks), "--together" in flags, next_steps=NEXT_STEPS)
    return order, "--plan" in flags


def _block_and_path(chat: ChatState, argument: str) -> tuple[CodeBlock, Path]:
    number, _, rest = argument.partition(" ")
    if not number.isdecimal():
        number, rest = "", argument
    turns = chat.conversation.turns()
    blocks = find_code_blocks(turns[-1].answer.text) if turns else []
    if not blocks:
        raise UsageError("the last answer has no code block")
    if number and not 1 <= int(number) <= len(blocks):
        raise UsageError(f"the last answer has {len(blocks)} code blocks; there is no block {number}")
    block = blocks[int(number) - 1 if number else -1]
    path_text = rest.strip().strip("\"'").removeprefix("@")
    return block, Path(path_text).expanduser() if path_text else _path_of(block)


def _path_of(block: CodeBlock) -> Path:
    """The model may name visible files below this folder only; the user may name any file."""
    if not block.file:
        raise UsageError("this block names no file; use /apply N PATH")
    path = Path(block.file)
    is_inside = (Path.cwd() / path).resolve().is_relative_to(Path.cwd().resolve())
    if not is_inside or any(part.startswith(".") for part in path.parts):
        raise InputError(f"{path}: the model may not choose this file; use /apply N PATH to write it")
    return path
