"""What an empty conversation shows: the model, the folder with its branch, and an example question for this folder.

Reads names and sizes of files and starts no program; knows no widget.
"""

import os
from itertools import islice
from pathlib import Path

from specchat import __version__
from specchat.app.session_lines import short_folder
from specchat.context.file_listing import find_repository
from specchat.errors import InputError
from specchat.regular_file import read_regular_file
from specchat.syntax.languages import language_of

MAX_LISTED_FILES, MAX_HEAD_BYTES = 500, 4096
MAX_EXAMPLE_BYTES = 4_000  # of more, a small model on two cores reads for long before it answers
NO_CODE = ("", "markdown", "json", "toml", "yaml", "html", "css")
EXAMPLE_WITHOUT_FILES = "Write a Python function that checks if a number is even."
COMMANDS = """/help    all commands                      F1      all keys
@file    attach a file, @folder/ or @repo  Ctrl+R  earlier conversations
Esc      stop and keep the partial answer  Ctrl+C  twice: quit"""


def welcome_text(folder: Path, model: str, notice: str = "") -> str:
    """The text of an empty conversation; the model is "" until the engine has named it."""
    branch = f" · branch {branch}" if (branch := git_branch(folder)) else ""
    places = f"model    {model or '…'}\nfolder   {short_folder(str(folder))}{branch}"
    ask = f"Ask something below, such as: {example_question(folder)}"
    return "\n\n".join(filter(None, [f"specchat {__version__}", notice, places, ask, COMMANDS]))


def git_branch(folder: Path) -> str:
    """The branch of the repository, or the beginning of its commit; "" where there is none."""
    try:
        git = (find_repository(folder) or folder) / ".git"
        if git.is_file():  # a worktree: "gitdir: PATH"
            git = git.parent / read_regular_file(git, MAX_HEAD_BYTES).decode().partition(":")[2].strip()
        head = read_regular_file(git / "HEAD", MAX_HEAD_BYTES).decode().strip()
    except (InputError, OSError, ValueError):
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:7]


def example_question(folder: Path) -> str:
    """About a small file of the folder: one of code, else a text that explains."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(each.name for each in islice(entries, MAX_LISTED_FILES) if _is_small_file(each))
    except OSError:
        names = []
    examples = [f"What does @{name} do?" for name in names if language_of(name) not in NO_CODE]
    examples += [f"Summarize @{name}" for name in names if name.endswith((".md", ".txt"))]
    return [*examples, EXAMPLE_WITHOUT_FILES][0]


def _is_small_file(entry: os.DirEntry[str]) -> bool:
    has_plain_name = not entry.name.startswith((".", "_")) and " " not in entry.name
    return has_plain_name and entry.is_file() and 0 < entry.stat().st_size <= MAX_EXAMPLE_BYTES
