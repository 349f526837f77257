"""Which files of a hub id are needed, and their hashes.

Loading, `models pull` and size estimates all use this list of files.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from specchat.errors import ModelError
from specchat.weights.gguf.gguf_labels import chosen_model, labelled_models, parts_of, split_label

MODEL_FILE_PATTERNS: tuple[str, ...] = ("*.json", "*.safetensors", "*.jinja", "*.model")
PICKLE_PATTERNS: tuple[str, ...] = ("*.bin", "*.pt")  # pickles can contain code: only for heads without safetensors
# Some repositories hold the weights twice, the second time under Mistral's names.
MODEL_SAFETENSORS, CONSOLIDATED_SAFETENSORS = "model*.safetensors", "consolidated*.safetensors"
SHA256_DIGITS = 64
HASH_PATTERN = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def needed_files(source: str, names: Sequence[str], *, is_draft: bool = False) -> list[str]:
    """The files that loading reads: safetensors, or one GGUF model; pickles only for a head without safetensors.

    A repository without tokenizer.json is a head. With `is_draft`, one with a tokenizer may be a head, too.
    """
    required = sorted(without_consolidated(_matching(names, MODEL_FILE_PATTERNS)))
    has_label = bool(split_label(source)[1])
    if not has_label and any(name.endswith(".safetensors") for name in required):
        return required
    pickles = sorted(_matching(names, PICKLE_PATTERNS))
    if pickles and not has_label and (is_draft or "tokenizer.json" not in names):
        return required + pickles
    if gguf := chosen_model(source, labelled_models({name: name for name in names})):
        return parts_of(source, gguf, names)
    problem = "its weights are pickles, which can contain code" if pickles else "it has no *.safetensors"
    raise ModelError(f"{source}: {problem}; look for a copy with *.safetensors or *.gguf")


def without_consolidated(names: Sequence[str]) -> list[str]:
    """Remove consolidated*.safetensors when model*.safetensors exist: they hold the same weights."""
    has_model_files = any(fnmatch(_base_name(name), MODEL_SAFETENSORS) for name in names)
    return [name for name in names if not (has_model_files and fnmatch(_base_name(name), CONSOLIDATED_SAFETENSORS))]


def is_digest(text: str) -> bool:
    return HASH_PATTERN.fullmatch(text) is not None


def digest_like(digest: str, path: Path) -> str:
    """The hash of a file, of the same kind as `digest`: sha256 as for large files of the hub, else git's sha1."""
    with path.open("rb") as content:
        if len(digest) == SHA256_DIGITS:
            return hashlib.file_digest(content, "sha256").hexdigest()
        small = content.read()
    return hashlib.sha1(b"blob %d\0" % len(small) + small, usedforsecurity=False).hexdigest()


def _matching(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    return [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]


def _base_name(name: str) -> str:
    return PurePosixPath(name).name
