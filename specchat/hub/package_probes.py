"""Does a package work here? A program that prints one JSON object about the package in its argument, a name of PROBES.

`machine.py` runs it in a process of its own.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from specchat.devices import CPU, GPU_KINDS, default_device, device_count, device_name, gpu_memory, kind_of, platform_of


def _torch() -> dict[str, Any]:
    import torch

    names = [(kind, f"{kind.name}:{index}") for kind in GPU_KINDS for index in range(device_count(kind))]
    weight = torch.ones(8, 8, dtype=torch.bfloat16)
    return {
        "version": torch.__version__,
        "platform": next(filter(None, map(platform_of, GPU_KINDS)), ""),
        "threads": torch.get_num_threads(),
        "computes": float((weight @ weight).sum()) == 8 * 8 * 8,
        "gpus": [
            {"kind": kind.name, "name": device_name(name), "free": memory.free_bytes, "total": memory.total_bytes}
            for kind, name in names
            for memory in [gpu_memory(name)]
        ],
    }


def _bitsandbytes() -> dict[str, Any]:
    """Import it and, on a GPU, quantize a weight to NF4 and dequantize it: on CPUs its operations are those of torch.

    Without torch.compile, whose import takes several times as long as all else, and which bitsandbytes can do without.
    """
    import torch

    setattr(torch, "compile", lambda function, **_options: function)  # noqa: B010 - another type

    import bitsandbytes
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    kind, error = kind_of(default_device()), 0.0
    if uses_gpu := kind.is_gpu and kind.has_bitsandbytes:
        weight = torch.linspace(-1, 1, 64 * 64).reshape(64, 64).to(kind.name, torch.bfloat16)
        packed, state = quantize_4bit(weight, quant_type="nf4")
        error = float((dequantize_4bit(packed, state) - weight).abs().max())
    device = kind.name if uses_gpu else CPU.name
    return {"version": bitsandbytes.__version__, "device": device, "computes": error < 0.2}


def _native_ops() -> dict[str, Any]:
    """Load the native ops, compiled if necessary, and compare them with torch."""
    import torch

    from specchat.forward.fused_ops import AttentionDimensions, NativeOps, matches_torch
    from specchat.forward.native.native_ops import native_kernels

    kernels = native_kernels()
    if kernels.library is None:
        return {"error": kernels.missing_reason}
    ops = NativeOps(AttentionDimensions(heads=4, kv_heads=2, head_size=64, epsilon=1e-6), kernels, torch.float32)
    return {"computes": matches_torch(ops, torch.float32), "origin": kernels.origin}


def _triton_kernels() -> dict[str, Any]:
    """Compile the kernels for the first GPU that can have them, and compare them with torch."""
    import logging

    import torch

    from specchat.devices import missing_triton
    from specchat.forward.fused_ops import AttentionDimensions, select_fused_ops
    from specchat.forward.linear.block_linear import block_matmul
    from specchat.forward.linear.int4_linear import int4_matmul

    kind, lines = kind_of(default_device()), list[str]()
    if not kind.has_kernels:
        return {"error": f"{kind.title}s have none"}
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("specchat.forward").addHandler(handler)
    device = torch.device(kind.name)
    like = torch.zeros(1, dtype=torch.bfloat16, device=device)
    ops = select_fused_ops(AttentionDimensions(heads=4, kv_heads=2, head_size=64, epsilon=1e-6), like)
    if not ops.reads_cache_rows:
        return {"error": lines[0] if lines else missing_triton()}
    has_blocks = all(block_matmul(device, torch.bfloat16, name) for name in ("Q4_K", "Q6_K"))  # of most files
    return {"computes": True, "has_int4": int4_matmul(device, torch.bfloat16) is not None, "has_blocks": has_blocks}


PROBES: Mapping[str, Callable[[], dict[str, Any]]] = {
    "torch": _torch,
    "bitsandbytes": _bitsandbytes,
    "native_ops": _native_ops,
    "triton_kernels": _triton_kernels,
}

if __name__ == "__main__":
    print(json.dumps(PROBES[sys.argv[1]]()))
