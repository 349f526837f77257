"""What passes of a model took on this machine, as `chooser.costs` stored it.

Reads JSON only: no torch, so that `specchat models recommend` answers at once.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.chooser.curve import Curve, stored_points
from specchat.hub.machine import Device
from specchat.paths import cache_folder, read_json_object

FORMAT_NAMES = {"bf16": ("float", "torch.bfloat16"), "float32": ("float", "torch.float32")}


@dataclass(frozen=True)
class MeasuredPasses:
    """Seconds by rows of a pass, and of each drafter by depth, at the shortest context that was measured."""

    passes: Curve
    drafts: Mapping[str, Curve]

    @property
    def plain_seconds(self) -> float:
        return self.passes.points[1]


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
        drafts = {name: Curve(_shortest(curves), slope=1) for name, curves in content["drafts"].items()}
        passes = Curve(_shortest(content["passes"]))
        return MeasuredPasses(passes, drafts) if len(passes.points) > 1 and 1 in passes.points else None
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def _shortest(curves: Mapping[str, Any]) -> dict[int, float]:
    points = stored_points(curves)
    return points[min(points)]
