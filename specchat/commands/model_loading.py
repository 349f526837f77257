"""What a change of models would load: each by name, how large it is, and whether it lies on this disk; as a question.

Looks at names and sizes of files and asks no network. Apart from the commands, for who serves editors knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from specchat.errors import ModelError
from specchat.hub.local_models import EMBEDDED, LocalModel, cached_folder, locate_model
from specchat.hub.memory_plan import weight_bytes
from specchat.hub.recommend import format_gib
from specchat.profile import Models


@dataclass(frozen=True)
class PendingModel:
    """A model that would be loaded; `bytes` of its files, None where nobody knows."""

    name: str
    size_bytes: int | None
    is_on_disk: bool

    @property
    def description(self) -> str:
        """For example: org/name (15.3 GiB, on this disk)."""
        size = "size unknown" if self.size_bytes is None else format_gib(self.size_bytes)
        return f"{self.name} ({size}, {'on this disk' if self.is_on_disk else 'not on this disk'})"


def confirm_models(models: Models, read_line: Callable[[str], str]) -> bool:
    """Does the person who is asked with a line say yes?

    "this loads org/name (15.3 GiB, on this disk) and org/small (1.1 GiB, not on this disk); go on? [y/n] "
    """
    named = " and ".join(load.description for load in pending_models(models))
    return read_line(f"this loads {named}; go on? [y/n] ").strip().lower() in ("y", "yes")


def pending_models(models: Models) -> list[PendingModel]:
    """The target, and everybody with weights of his own who would guess for it."""
    return [pending_model(name) for name in dict.fromkeys(_model_names(models))]


def _model_names(models: Models) -> Iterator[str]:
    yield models.target
    is_embedded = models.target == "embedded"
    if models.draft and (models.draft != "embedded" or is_embedded):
        yield "embedded/draft" if models.draft == "embedded" else models.draft
    yield from (head for head in models.heads if head != "embedded")


def pending_model(source: str) -> PendingModel:
    """A folder, a file, or a name of the hub."""
    shipped = EMBEDDED / ("target" if source == "embedded" else source.removeprefix("embedded/"))
    path = shipped if source.startswith("embedded") and shipped.is_dir() else Path(source).expanduser()
    if path.is_file():
        return PendingModel(source, path.stat().st_size, is_on_disk=True)
    if folder := path if path.is_dir() else cached_folder(source):
        return PendingModel(source, _bytes_below(folder), is_on_disk=True)
    try:
        return PendingModel(source, weight_bytes(locate_model(source).architecture, "bf16"), is_on_disk=False)
    except ModelError:
        return PendingModel(source, None, is_on_disk=False)


def _bytes_below(folder: Path) -> int | None:
    try:
        return LocalModel(folder.name, folder).bytes
    except OSError:
        return None  # what cannot be read is told of by who loads it
