"""Which GGUF file the name of a model means: a file, a folder with one file, the starter, or a model of Ollama.

Ollama stores a manifest for each name and tag, and the files themselves as blobs without a suffix. Imports no torch.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specchat.errors import ModelError
from specchat.paths import starter_file
from specchat.profile.keys import STARTER
from specchat.weights.gguf.gguf_file import SHARD_NAME, is_gguf

OLLAMA_PREFIX = "ollama:"
OLLAMA_VARIABLE = "OLLAMA_MODELS"
OLLAMA_REGISTRY = "registry.ollama.ai"
OLLAMA_NAMESPACE = "library"
OLLAMA_SYSTEM_FOLDER = Path("/usr/share/ollama/.ollama/models")  # of its service on Linux
MODEL_LAYER = "application/vnd.ollama.image.model"
DIGEST = re.compile(r"sha256[:-][0-9a-f]{64}")
MAX_MANIFEST_BYTES = 2**20


@dataclass(frozen=True)
class OllamaManifest:
    """A name and tag of Ollama."""

    name: str  # llama3.2:1b
    path: Path

    def model_file(self) -> Path:
        """The blob with the weights; ModelError when it is gone or the manifest names none."""
        digest = _model_digest(self.path)
        if digest is None:
            raise ModelError(f"{OLLAMA_PREFIX}{self.name}: {self.path} names no model; run 'ollama pull {self.name}'")
        store = next(parent.parent for parent in self.path.parents if parent.name == "manifests")
        blob = store / "blobs" / digest.replace(":", "-")
        if not blob.is_file():
            raise ModelError(f"{OLLAMA_PREFIX}{self.name}: its file {blob} is gone; run 'ollama pull {self.name}'")
        return blob


def local_gguf(source: str) -> Path | None:
    """The GGUF file that this source names; None when it names no file and no folder with GGUF files only."""
    if source == STARTER:
        return starter_file()
    if source.startswith(OLLAMA_PREFIX):
        return _find_ollama(source.removeprefix(OLLAMA_PREFIX)).model_file()
    path = Path(source).expanduser()
    if is_gguf(path):
        return path
    if source == "embedded" or not path.is_dir() or (path / "config.json").exists():
        return None
    files = gguf_models(path)
    if len(files) > 1:
        names = ", ".join(each.name for each in files)
        raise ModelError(f"{source}: holds {len(files)} models; name one of the files: {names}")
    return files[0] if files else None


def gguf_models(folder: Path) -> list[Path]:
    """The GGUF files of language models in a folder: the first shard of each, no vision parts."""
    return [path for path in sorted(folder.glob("*.gguf")) if path.is_file() and _is_model_file(path)]


def _is_model_file(path: Path) -> bool:
    shard = SHARD_NAME.fullmatch(path.name)
    return not path.name.startswith("mmproj") and (shard is None or int(shard["number"]) == 1)


def ollama_manifests() -> Iterator[OllamaManifest]:
    """Every name and tag in the folders of Ollama."""
    seen = set[str]()
    for store in ollama_folders():
        root = store / "manifests"
        for path in sorted(root.glob("*/*/*/*")) if root.is_dir() else ():
            name = _short_name(path.relative_to(root).parts)
            if path.is_file() and name not in seen:
                seen.add(name)
                yield OllamaManifest(name, path)


def ollama_folders() -> list[Path]:
    """Where Ollama keeps models: OLLAMA_MODELS, or the folders of the user and of its service."""
    if folder := os.environ.get(OLLAMA_VARIABLE):
        return [Path(folder).expanduser()]
    return [Path("~/.ollama/models").expanduser(), OLLAMA_SYSTEM_FOLDER]


def _find_ollama(name: str) -> OllamaManifest:
    wanted = name if ":" in name else f"{name}:latest"
    manifests = list(ollama_manifests())
    for manifest in manifests:
        if manifest.name == wanted:
            return manifest
    known = ", ".join(manifest.name for manifest in manifests[:8]) or "none"
    raise ModelError(f"{OLLAMA_PREFIX}{name}: Ollama has no such model here; it has {known}; run 'ollama pull {name}'")


def _short_name(parts: tuple[str, ...]) -> str:
    """As Ollama prints it: without its own registry and namespace."""
    *place, model, tag = parts
    if place[:1] == [OLLAMA_REGISTRY]:
        place = place[1:]
    if place == [OLLAMA_NAMESPACE]:
        place = []
    return "/".join([*place, model]) + f":{tag}"


def _model_digest(manifest: Path) -> str | None:
    try:
        with manifest.open("rb") as file:
            layers = json.loads(file.read(MAX_MANIFEST_BYTES))["layers"]
        digests = [str(each["digest"]) for each in layers if each["mediaType"] == MODEL_LAYER]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{manifest}: not a manifest of Ollama: {type(error).__name__}") from error
    return digests[0] if digests and DIGEST.fullmatch(digests[0]) else None
