"""The models that a change of profile would load: name, size, and whether they are on this disk.

Looks at file names and sizes only and uses no network. Separate from the commands, because most sessions never need it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specchat.errors import ModelError
from specchat.hub.find_models import model_path
from specchat.hub.local_models import LocalModel, cached_folder, locate_model
from specchat.hub.memory_plan import weight_bytes
from specchat.hub.recommend import format_gib
from specchat.profile.keys import Models
from specchat.profile.shipped_drafters import with_shipped_drafters


@dataclass(frozen=True)
class PendingModel:
    """A model that would be loaded. `size_bytes` is the size of its files, None when unknown."""

    name: str
    size_bytes: int | None
    is_on_disk: bool

    @property
    def description(self) -> str:
        """For example: org/name (15.3 GiB, on this disk)."""
        size = "size unknown" if self.size_bytes is None else format_gib(self.size_bytes)
        return f"{self.name} ({size}, {'on this disk' if self.is_on_disk else 'not on this disk'})"


def loading_question(models: Models) -> str:
    """The question whether these models may be loaded: a title, and a line for each."""
    lines = (f"  {load.description}" for load in pending_models(models))
    return "\n".join(["this loads other models; go on?", *lines])


def pending_models(models: Models) -> list[PendingModel]:
    """The target model and every drafter with weights of its own."""
    return [pending_model(name) for name in dict.fromkeys(_model_names(models))]


def _model_names(models: Models) -> Iterator[str]:
    models = with_shipped_drafters(models)
    yield models.target
    is_embedded = models.target == "embedded"
    if models.draft and (models.draft != "embedded" or is_embedded):
        yield "embedded/draft" if models.draft == "embedded" else models.draft
    yield from (head for head in models.heads if head != "embedded")


def pending_model(source: str) -> PendingModel:
    try:
        if path := model_path(source) or cached_folder(source):
            return PendingModel(source, _bytes_of(path), is_on_disk=True)
        located = locate_model(source)
        return PendingModel(source, weight_bytes(located.architecture, "bf16"), is_on_disk=located.folder is not None)
    except ModelError:
        return PendingModel(source, None, is_on_disk=False)


def _bytes_of(path: Path) -> int | None:
    try:
        return LocalModel(path.name, path).bytes
    except OSError:
        return None  # the loader reports what cannot be read
