"""GGUF files for readers that know safetensors only: transformers, plugins, other servers.

Our own passes read the file itself. A plugin converts a file, and knows the tensors of networks that transformers
computes. Knows how to ask it; converts nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from specchat.errors import ModelError
from specchat.plugins.discovery import find_extensions
from specchat.plugins.own_plugins import install_line
from specchat.weights.gguf.gguf_keys import GgufKeys
from specchat.weights.gguf.gguf_manifest import GgufManifest, MappedTensor
from specchat.weights.gguf.gguf_preparation import Report, no_report

Tables = Mapping[str, Mapping[str, Any]]
Check = Callable[[Mapping[str, Sequence[int]]], None]  # ModelError for shapes that do not fit


class NetworkReader(Protocol):
    """What a plugin knows of GGUF files (`register_gguf_networks`)."""

    def families(self) -> Tables:
        """By architecture: the tables of networks that transformers computes, like those of `gguf_families.toml`."""
        ...

    def tensors(self, keys: GgufKeys, config: Mapping[str, Any]) -> Iterator[MappedTensor]:
        """Every tensor of a file with such a network; ModelError for one that is missing or unknown."""
        ...

    def convert(self, folder: Path, report: Report, check: Check | None) -> Path:
        """All weights of a prepared folder in bf16; its folder is made now unless `check` refuses the shapes."""
        ...


def network_reader() -> NetworkReader | None:
    """That of the first plugin with one."""
    extension = next(iter(find_extensions("gguf_networks").values()), None)
    return extension.load() if extension else None


def safetensors_folder(folder: Path, report: Report = no_report, check: Check | None = None) -> Path:
    """The same folder, or the converted one of a prepared folder. ModelError where that needs a plugin."""
    manifest = GgufManifest.from_folder(folder)
    if manifest is None:
        return folder
    if (reader := network_reader()) is None:
        file = manifest.files[0].path
        raise ModelError(f"{file}: to convert it needs a plugin: {install_line('hybrids')}; or use the *.safetensors")
    return reader.convert(folder, report, check)
