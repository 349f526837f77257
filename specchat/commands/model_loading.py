"""What a change of models would load: each by name, how large it is, and whether it lies on this disk; as a question.

Looks at names and sizes of files and asks no network. Apart from the commands, for who serves editors knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from specchat.errors import ModelError
from specchat.hub.local_files import EMBEDDED, OnDisk, cached_folder, locate
from specchat.hub.memory_plan import weight_bytes
from specchat.hub.recommend import in_gib
from specchat.profile import Models


@dataclass(frozen=True)
class Load:
    """A model that would be loaded; `bytes` of its files, None where nobody knows."""

    name: str
    bytes: int | None
    is_here: bool

    @property
    def words(self) -> str:
        """For example: org/name (15.3 GiB, on this disk)."""
        size = "size unknown" if self.bytes is None else in_gib(self.bytes)
        return f"{self.name} ({size}, {'on this disk' if self.is_here else 'not on this disk'})"


def agrees(models: Models, read: Callable[[str], str]) -> bool:
    """Does the person who is asked with a line say yes?

    "this loads org/name (15.3 GiB, on this disk) and org/small (1.1 GiB, not on this disk); go on? [y/n] "
    """
    named = " and ".join(load.words for load in loads(models))
    return read(f"this loads {named}; go on? [y/n] ").strip().lower() in ("y", "yes")


def loads(models: Models) -> list[Load]:
    """The target, and everybody with weights of his own who would guess for it."""
    return [weighed(name) for name in dict.fromkeys(_names(models))]


def _names(models: Models) -> Iterator[str]:
    yield models.target
    is_embedded = models.target == "embedded"
    if models.draft and (models.draft != "embedded" or is_embedded):
        yield "embedded/draft" if models.draft == "embedded" else models.draft
    yield from (head for head in models.heads if head != "embedded")


def weighed(source: str) -> Load:
    """A folder, a file, or a name of the hub."""
    shipped = EMBEDDED / ("target" if source == "embedded" else source.removeprefix("embedded/"))
    path = shipped if source.startswith("embedded") and shipped.is_dir() else Path(source).expanduser()
    if path.is_file():
        return Load(source, path.stat().st_size, is_here=True)
    if folder := path if path.is_dir() else cached_folder(source):
        return Load(source, _bytes_below(folder), is_here=True)
    try:
        return Load(source, weight_bytes(locate(source).anatomy, "bf16"), is_here=False)
    except ModelError:
        return Load(source, None, is_here=False)


def _bytes_below(folder: Path) -> int | None:
    try:
        return OnDisk(folder.name, folder).bytes
    except OSError:
        return None  # what cannot be read is told of by who loads it
