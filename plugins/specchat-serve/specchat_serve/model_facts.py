"""What the headers of the served model's files say, without loading it. Knows no API."""

from dataclasses import dataclass
from datetime import UTC, datetime

from specchat.errors import ModelError
from specchat.hub.local_models import LocalModel, locate_model


@dataclass(frozen=True)
class ModelFacts:
    """Zero and an empty text are unknown."""

    modified_at: datetime
    family: str = ""
    parameters: int = 0
    quantization: str = ""
    file_format: str = ""  # gguf or safetensors
    bytes: int = 0


def check_is_known(target: str) -> None:
    """ModelError for a name of no model."""
    locate_model(target)


def read_model_facts(target: str, started_at: datetime) -> ModelFacts:
    """The facts of a model of this disk. A model of another server, and "", have only the date of the start."""
    try:
        located = locate_model(target) if target else None
        if located is None or located.folder is None:
            return ModelFacts(started_at)
        details = LocalModel(located.name, located.folder).details()
        modified_at = datetime.fromtimestamp(located.folder.stat().st_mtime, UTC)
    except (ModelError, OSError):
        return ModelFacts(started_at)
    return ModelFacts(
        modified_at,
        located.architecture.family,
        located.architecture.parameters,
        details.quantization,
        "safetensors" if located.folder.is_dir() else "gguf",
        details.bytes or 0,
    )
