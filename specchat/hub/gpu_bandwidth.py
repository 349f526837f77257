"""The memory bandwidth of GPUs by name, from their makers' data sheets, for estimates of speed. Measures nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from specchat.devices import CUDA
from specchat.hub.machine import Device

# GB/s by words of the name that the driver reports; the first that occur in it count, so longer names stand first.
BANDWIDTHS = {
    "RTX 5090": 1792, "RTX 5080": 960, "RTX 5070 Ti": 896, "RTX 5070": 672, "RTX 5060 Ti": 448, "RTX 5060": 448,
    "RTX 4090": 1008, "RTX 4080 SUPER": 736, "RTX 4080": 717, "RTX 4070 Ti SUPER": 672, "RTX 4070": 504,
    "RTX 4060 Ti": 288, "RTX 4060": 272, "RTX 3090 Ti": 1008, "RTX 3090": 936, "RTX 3080 Ti": 912, "RTX 3080": 760,
    "RTX 3070 Ti": 608, "RTX 3070": 448, "RTX 3060 Ti": 448, "RTX 3060": 360, "RTX 2080 Ti": 616, "RTX A6000": 768,
    "RTX 6000 Ada": 960, "RTX PRO 6000": 1792, "L40S": 864, "L4": 300, "A10": 600, "A100-SXM4-80GB": 2039,
    "A100 80GB PCIe": 1935, "Tesla T4": 320, "GH200": 4000, "H200": 4800, "H100 NVL": 3938, "H100 PCIe": 2000,
    "H100": 3350, "B200": 8000,
}  # fmt: skip
# A GPU of which only the size is known (--memory): a usual one of at most this size, in GB. Larger ones are not slower.
USUAL_GPUS = {
    8: "RTX 4060", 12: "RTX 3060", 16: "RTX 5060 Ti", 24: "RTX 3090", 48: "RTX 6000 Ada", 80: "H100 PCIe", 96: "GH200",
}  # fmt: skip
SIMULATED_NAME = "a GPU with"


@dataclass(frozen=True)
class Bandwidth:
    bytes_per_second: float
    gpu: str = ""  # whose it is; "" for main memory

    def __str__(self) -> str:
        return f"{self.bytes_per_second / 1e9:.0f} GB/s{f' ({self.gpu})' * bool(self.gpu)}"


def gpu_bandwidth(device: Device) -> Bandwidth | None:
    """The bandwidth of a GPU, or of a usual one of its size where only that is known; None for an unknown one."""
    if device.kind is not CUDA:
        return None
    if device.name.startswith(SIMULATED_NAME):
        sizes = [size for size in USUAL_GPUS if size * 2**30 <= device.total_bytes]
        name = USUAL_GPUS[max(sizes)] if sizes else ""
    else:
        name = next((part for part in BANDWIDTHS if re.search(rf"\b{part}\b", device.name)), "")
    return Bandwidth(BANDWIDTHS[name] * 1e9, name) if name else None
