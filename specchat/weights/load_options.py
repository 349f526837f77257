"""How to load a model: device and dtype, resolved without torch."""

from dataclasses import dataclass
from pathlib import Path

from specchat.devices import FLOAT_FORMAT

EMBEDDED = Path(__file__).parents[1] / "embedded"
KEPT_FORMATS = ("int8", "nf4", "nf4-double")  # kept on the disk once they were quantized; the most precise first
STORED_DTYPE = "auto"  # the dtype of the stored weights


@dataclass(frozen=True)
class LoadOptions:
    """How to load a model. `auto` depends on the device and on the dtype of the stored weights."""

    dtype: str = "auto"
    device: str = "auto"
    context_window: int | None = None  # maximum length, in tokens
    exact: bool = False
    quant_format: str = FLOAT_FORMAT  # of the linear layers
    embedding_device: str = "auto"  # of the input embeddings: auto, device or cpu
    kv_cache: str = FLOAT_FORMAT  # one of KV_CACHE_FORMATS
    maps_weights: bool = False  # quantized weights stay on the disk: the memory does not hold them
    cpu_layers: int = 0  # the first layers, in main memory beside a GPU
    gpu_layers: tuple[int, ...] = ()  # how many of the next ones are on the second GPU, the third, ...

    @property
    def places(self) -> list[tuple[str, int]]:
        """The other devices of the first layers, and how many each has."""
        others = [(f"cuda:{number}", count) for number, count in enumerate(self.gpu_layers, 1)]
        return [(device, count) for device, count in (("cpu", self.cpu_layers), *others) if count]


def cpu_format(quant_format: str) -> str:
    """The format of layers in main memory beside a GPU whose layers have this one.

    CPUs multiply 8 bits faster than these, for several rows everywhere, and some dequantize them in every pass.
    """
    return "int8" if quant_format in ("fp8", "nf4", "nf4-double") else quant_format


def resolve_dtype(dtype: str, folder: Path | None, device: str, *, has_cpu_bf16: bool) -> str:
    """The dtype for `auto`: the stored one, or float32 on a CPU that computes bf16 slowly."""
    if dtype != "auto":
        return dtype
    if device == "cpu" and folder is not None and folder.is_relative_to(EMBEDDED):
        return "float32"  # small enough for float32, which is exact
    if device == "cpu" and not has_cpu_bf16:
        return "float32"  # bf16 without hardware support is slower than float32
    return STORED_DTYPE
