"""How a list shows a stored conversation: its model, its folder and its length. Knows no history and no screen."""

from pathlib import Path, PurePath

from specchat.history.history_reader import ASK, CHAT

HEADINGS = {CHAT: "chats", ASK: "questions of `specchat ask`"}


def session_details(model: str, folder: str, turn_count: int, separator: str) -> str:
    """`SmolLM2 · ~/work · 3 questions`, without what is unknown."""
    count = f"{turn_count} question{'' if turn_count == 1 else 's'}"
    name = PurePath(model).name  # without the folders of a path or the owner on a hub
    return separator.join(filter(None, [name, short_folder(folder), count]))


def short_folder(folder: str) -> str:
    """A path below the home folder as people type it."""
    home = str(Path.home())
    return f"~{folder.removeprefix(home)}" if folder == home or folder.startswith(f"{home}/") else folder
