"""Tells one target from another, so that a head can say which one it was trained for."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

SAMPLES, SAMPLE_BYTES = 16, 65_536  # of a file of weights


def fingerprint(folder: Path) -> str:
    """Of the target in a folder, without reading it all: of its config, and of samples of its files of weights."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            for sample in range(SAMPLES):
                file.seek(sample * max(size - SAMPLE_BYTES, 0) // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()[:16]


def trained_target_fingerprint(folder: Path) -> str:
    """The fingerprint of the target that a head of ours was trained for; "" for a head that says none."""
    path = folder / "config.json"
    said = json.loads(path.read_text(encoding="utf-8")).get("specchat") if path.is_file() else None
    return str(said.get("target_fingerprint", "")) if isinstance(said, dict) else ""
