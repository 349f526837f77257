"""`python -m specchat.hub.probe torch|bitsandbytes|kernels`: does this work here? One JSON object on stdout.

Run in a process of its own, because a broken installation may hang, print, or end the process that imports it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from specchat.errors import last_output_line

PROBE_TIMEOUT_SECONDS = 60.0


def probe(package: str) -> dict[str, Any]:
    """What one of PROBES says of itself, from another process; {"trouble": ...} when it cannot."""
    command = [sys.executable, "-m", "specchat.hub.probe", package]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_SECONDS, check=False)
        if ran.returncode:
            return {"trouble": last_output_line(ran.stderr, "its process ended without a word")}
        return json.loads(ran.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"trouble": f"no word of it for {PROBE_TIMEOUT_SECONDS:.0f} seconds"}
    except (OSError, ValueError, IndexError) as error:
        return {"trouble": f"it said nothing that can be read ({type(error).__name__})"}


def _torch() -> dict[str, Any]:
    import torch

    cards = [torch.cuda.get_device_properties(place) for place in range(torch.cuda.device_count())]
    free = [torch.cuda.mem_get_info(place) for place in range(len(cards))]
    weight = torch.ones(8, 8, dtype=torch.bfloat16)
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "computes": float((weight @ weight).sum()) == 8 * 8 * 8,
        "cards": [
            {"name": card.name, "free": memory[0], "total": memory[1], "capability": f"{card.major}.{card.minor}"}
            for card, memory in zip(cards, free, strict=True)
        ],
    }


def _bitsandbytes() -> dict[str, Any]:
    """Hold a weight in 4 bits and multiply with it, where computing will happen."""
    import bitsandbytes
    import torch
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    device = "cuda" if torch.cuda.is_available() else "cpu"
    weight = torch.linspace(-1, 1, 64 * 64).reshape(64, 64).to(device, torch.bfloat16)
    packed, state = quantize_4bit(weight, quant_type="nf4")
    error = float((dequantize_4bit(packed, state) - weight).abs().max())
    return {"version": bitsandbytes.__version__, "device": device, "computes": error < 0.2}


def _native_kernels() -> dict[str, Any]:
    """Compile our own kernels, unless that was done before, and hold them against torch."""
    import torch

    from specchat.forward.fused_ops import AttentionDimensions, NativeOps, matches_torch
    from specchat.forward.native_ops import native_kernels

    found = native_kernels()
    if found.library is None:
        return {"trouble": found.missing_reason}
    compiled = NativeOps(AttentionDimensions(heads=4, kv_heads=2, head_size=64, epsilon=1e-6), found, torch.float32)
    return {"computes": matches_torch(compiled, torch.float32)}


PROBES: Mapping[str, Callable[[], dict[str, Any]]] = {
    "torch": _torch,
    "bitsandbytes": _bitsandbytes,
    "kernels": _native_kernels,
}

if __name__ == "__main__":
    print(json.dumps(PROBES[sys.argv[1]]()))
