"""What passes of a model took on this machine, as the engine stored it; `chooser.costs` writes these files.

Reads JSON only: no torch, so that `specchat models recommend` answers at once.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.hub.machine import Device
from specchat.paths import cache_folder, read_json_object

FORMAT_NAMES = {"bf16": ("float", "torch.bfloat16"), "float32": ("float", "torch.float32")}


@dataclass(frozen=True)
class MeasuredPasses:
    """Seconds by rows of a pass, and of each drafter by depth, at the shortest context that was measured."""

    passes: Mapping[int, float]
    drafts: Mapping[str, Mapping[int, float]]


def measured_passes(
    target: str, quant_format: str, device: Device, folder: Path | None = None
) -> MeasuredPasses | None:
    """The newest measurements of this model in this format on this device; None without any."""
    weights, dtype = FORMAT_NAMES.get(quant_format, (quant_format, ""))
    name = device.name if device.is_gpu else f"{platform.machine()} {platform.node()}"
    files = (folder or cache_folder() / "costs").glob("*.json")
    for path in sorted(files, key=lambda each: -each.stat().st_mtime):
        content = read_json_object(path)
        identity: Any = content.get("identity")
        if not isinstance(identity, dict) or identity.get("device") != name:
            continue
        if str(identity.get("target")).startswith(f"{target} {weights} ") and dtype in ("", identity.get("dtype")):
            return _parsed(content)
    return None


def _parsed(content: Mapping[str, Any]) -> MeasuredPasses | None:
    try:
        drafts = {name: _shortest(curves) for name, curves in content["drafts"].items()}
        passes = _shortest(content["passes"])
        return MeasuredPasses(passes, drafts) if len(passes) > 1 and passes.get(1, 0) > 0 else None
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def _shortest(curves: Mapping[str, Mapping[str, float]]) -> dict[int, float]:
    return {int(count): float(seconds) for count, seconds in curves[min(curves, key=int)].items()}


def seconds_at(points: Mapping[int, float], count: int) -> float:
    """Seconds for this count: linear between the measured points, and on with the slope of the last two."""
    counts = sorted(points)
    if count in points or len(counts) == 1:
        return points.get(count, points[counts[0]] * count / counts[0])
    above = next((index for index, each in enumerate(counts) if each > count), len(counts) - 1)
    low, high = counts[max(above - 1, 0)], counts[max(above, 1)]
    return points[low] + (points[high] - points[low]) * (count - low) / (high - low)
