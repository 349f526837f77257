"""Identifies a target, so that a head can store which target it was trained for.

Only what the target computes counts: weights, and numbers of its config that no weight shows. The same model in other
files (sharded, converted, with another config.json) has the same fingerprint.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from specchat.forward.llama.rope import Rope
from specchat.weights.gguf.gguf_tensors import GgufTensorFiles
from specchat.weights.tensor_files import TensorFiles

SAMPLED_TENSORS, SAMPLED_ROWS = 16, 64
ROPE_NAMES = ("rope_type", "type", "rope_theta")  # in `Rope.scaling`, where they may be missing


def fingerprint(folder: Path) -> str:
    """A hash of the weights' names, of samples of the weights, and of the config."""
    files = GgufTensorFiles.from_folder(folder) or TensorFiles.from_files(folder, sorted(folder.glob("*.safetensors")))
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = sorted(files.locations)
    digest = hashlib.sha256(json.dumps([_config_numbers(config), names]).encode())
    for name in names[:: max(1, len(names) // SAMPLED_TENSORS)]:
        shape = files.shape(name)
        sample = files.read_rows(name, 0, min(SAMPLED_ROWS, shape[0])) if shape else files.read_tensor(name)
        digest.update(f"{name} {shape} {sample.dtype}".encode())
        digest.update(sample.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _config_numbers(config: dict[str, Any]) -> list[Any]:
    """The numbers that no weight shows; rounded, as some formats store them as float32."""
    rope = Rope.from_config(config)
    scaling = sorted((name, str(value)) for name, value in rope.scaling.items() if name not in ROPE_NAMES)
    eps = config.get("rms_norm_eps") or 0.0
    return [config.get("num_attention_heads"), f"{eps:.4g}", f"{rope.theta:.6g}", rope.rope_type, scaling]


def trained_target_fingerprint(folder: Path) -> str:
    """The fingerprint of the target that a head was trained for; "" when its config has none."""
    path = folder / "config.json"
    table = json.loads(path.read_text(encoding="utf-8")).get("specchat") if path.is_file() else None
    return str(table.get("target_fingerprint", "")) if isinstance(table, dict) else ""
