"""Identifies a target, so that a head can store which target it was trained for."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

SAMPLES, SAMPLE_BYTES = 16, 65_536  # per file of weights


def fingerprint(folder: Path) -> str:
    """A hash of the config and of samples of the weights of a target."""
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
    """The fingerprint of the target that a head was trained for; "" when its config has none."""
    path = folder / "config.json"
    table = json.loads(path.read_text(encoding="utf-8")).get("specchat") if path.is_file() else None
    return str(table.get("target_fingerprint", "")) if isinstance(table, dict) else ""
