"""`python -m specchat.hub.probe torch|bitsandbytes|native_ops`: does this package work? Prints one JSON object.

Runs in a subprocess, because a broken installation may hang, print, or end the process that imports it.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from specchat.errors import last_output_line

PROBE_TIMEOUT_SECONDS = 60.0


def probe(package: str) -> dict[str, Any]:
    """Run one of PROBES in a subprocess; returns {"error": ...} when it fails."""
    command = [sys.executable, "-m", "specchat.hub.probe", package]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_SECONDS, check=False)
        if process.returncode:
            return {"error": last_output_line(process.stderr, "the subprocess ended without a message")}
        return json.loads(process.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": f"no result after {PROBE_TIMEOUT_SECONDS:.0f} seconds"}
    except (OSError, ValueError, IndexError) as error:
        return {"error": f"its output is not readable ({type(error).__name__})"}


def _torch() -> dict[str, Any]:
    import torch

    gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    memory = [torch.cuda.mem_get_info(index) for index in range(len(gpus))]
    weight = torch.ones(8, 8, dtype=torch.bfloat16)
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "computes": float((weight @ weight).sum()) == 8 * 8 * 8,
        "gpus": [
            {"name": gpu.name, "free": free, "total": total, "capability": f"{gpu.major}.{gpu.minor}"}
            for gpu, (free, total) in zip(gpus, memory, strict=True)
        ],
    }


def _bitsandbytes() -> dict[str, Any]:
    """Quantize a weight to NF4 and dequantize it, on the default device."""
    import bitsandbytes
    import torch
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    device = "cuda" if torch.cuda.is_available() else "cpu"
    weight = torch.linspace(-1, 1, 64 * 64).reshape(64, 64).to(device, torch.bfloat16)
    packed, state = quantize_4bit(weight, quant_type="nf4")
    error = float((dequantize_4bit(packed, state) - weight).abs().max())
    return {"version": bitsandbytes.__version__, "device": device, "computes": error < 0.2}


def _native_ops() -> dict[str, Any]:
    """Compile the native ops unless they are cached, and compare them with torch."""
    import torch

    from specchat.forward.fused_ops import AttentionDimensions, NativeOps, matches_torch
    from specchat.forward.native_ops import native_kernels

    kernels = native_kernels()
    if kernels.library is None:
        return {"error": kernels.missing_reason}
    ops = NativeOps(AttentionDimensions(heads=4, kv_heads=2, head_size=64, epsilon=1e-6), kernels, torch.float32)
    return {"computes": matches_torch(ops, torch.float32)}


PROBES: Mapping[str, Callable[[], dict[str, Any]]] = {
    "torch": _torch,
    "bitsandbytes": _bitsandbytes,
    "native_ops": _native_ops,
}

if __name__ == "__main__":
    print(json.dumps(PROBES[sys.argv[1]]()))
