"""Which GGUF file the name of a model means: a file, a folder with one file, the starter, or one of another program.

`ollama:NAME`, `lmstudio:NAME` and `org/repo:Q4_K_M`, of which the hub's cache has the files.

Ollama stores a manifest for each name and tag, and the files themselves as blobs without a suffix. Imports no torch.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specchat.errors import ModelError
from specchat.paths import hub_snapshots, is_hub_id, starter_file
from specchat.profile.keys import STARTER
from specchat.weights.gguf.gguf_file import is_gguf
from specchat.weights.gguf.gguf_labels import LM_STUDIO_PREFIX, chosen_model, labelled_models, split_label

OLLAMA_PREFIX = "ollama:"
OLLAMA_VARIABLE = "OLLAMA_MODELS"
OLLAMA_REGISTRY = "registry.ollama.ai"
OLLAMA_NAMESPACE = "library"
OLLAMA_SYSTEM_FOLDER = Path("/usr/share/ollama/.ollama/models")  # of its service on Linux
MODEL_LAYER = "application/vnd.ollama.image.model"
DIGEST = re.compile(r"sha256[:-][0-9a-f]{64}")
MAX_MANIFEST_BYTES = 2**20
LM_STUDIO_FOLDERS = ("~/.lmstudio/models", "~/.cache/lm-studio/models")
LM_STUDIO_POINTER = "~/.lmstudio-home-pointer"  # a file with the path of its folder, where the user moved it


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
    if source.startswith(LM_STUDIO_PREFIX):
        return _find_lm_studio(source)
    path = Path(source).expanduser()
    if is_gguf(path):
        return path
    if source == "embedded" or (path / "config.json").exists():
        return None
    if path.is_dir():
        files = [*gguf_models(path).values()]
        if len(files) > 1:
            names = ", ".join(each.relative_to(path).as_posix() for each in files)
            raise ModelError(f"{source}: holds {len(files)} models; name one of the files: {names}")
        return files[0] if files else None
    return _find_in_hub_cache(source) if is_hub_id(source) else None


def gguf_models(*folders: Path) -> dict[str, Path]:
    """The GGUF files of language models in these folders and one level below, by label: the first shard of each.

    Of equal names, that in the first folder counts.
    """
    files = dict[str, Path]()
    for folder in reversed(folders):
        paths = (path for pattern in ("*.gguf", "*/*.gguf") for path in folder.glob(pattern) if path.is_file())
        files |= {path.relative_to(folder).as_posix(): path for path in paths}
    return labelled_models(files)


def _find_in_hub_cache(source: str) -> Path | None:
    """The file of a quantization; without one, the only file of a repository that has no other weights."""
    snapshots, label = hub_snapshots(source), split_label(source)[1].lower()
    models = gguf_models(*snapshots)
    if label:
        return next((path for each, path in models.items() if each.lower() == label), None)
    has_others = any(path for each in snapshots for path in each.glob("*.safetensors"))
    return None if has_others else chosen_model(source, models)


def lm_studio_models() -> dict[str, Path]:
    """The folders of models of LM Studio, by publisher/model."""
    folders = [folder for root in _lm_studio_folders() for folder in sorted(root.glob("*/*")) if folder.is_dir()]
    return {"/".join(folder.parts[-2:]): folder for folder in reversed(folders)}


def _lm_studio_folders() -> list[Path]:
    """The folders with models, each as publisher/model."""
    folders = [Path(each).expanduser() for each in LM_STUDIO_FOLDERS]
    try:
        home = Path(LM_STUDIO_POINTER).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        home = ""
    candidates = [*folders, Path(home, "models")] if home else folders
    return list(dict.fromkeys(folder.resolve() for folder in candidates if folder.is_dir()))


def _find_lm_studio(source: str) -> Path:
    """A file of LM Studio: by publisher/model or model, and by label where there are several."""
    wanted, known = split_label(source.removeprefix(LM_STUDIO_PREFIX))[0].lower(), lm_studio_models()
    folders = [folder for name, folder in known.items() if wanted in (name.lower(), folder.name.lower())]
    file = chosen_model(source, gguf_models(*folders)) if len(folders) == 1 else None
    if file is None:
        names = ", ".join(sorted(known)[:8]) or "none"
        raise ModelError(f"{source}: LM Studio has no such GGUF model here, or several; it has {names}")
    return file


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
