"""Recommends a target and drafter of the catalog for the memory of a device. A pure function; `pair_text.py` says why.

The total memory counts, without a reserve for other programs: what is free at the moment changes, and the choice should
not. A line says when less is free than a pair needs.

The choice is a heuristic: what answers are worth (`_quality`) times what their speed is worth (`_pace`). Memory is
computed: weights, drafter, KV cache of a full context, workspace. Speed is estimated for the passes that the model
would have here: bytes by the memory bandwidth, or, without CUDA graphs, the kernels that a GPU is given one by one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from math import ceil, sqrt

from specchat.devices import CUDA, DeviceKind
from specchat.engine.cache_sizes import SCRATCH_ROWS
from specchat.hub.architecture import EMBEDDING, OUTPUT
from specchat.hub.catalog import GPU_SIZES_GB, CatalogEntry, catalog, head_architecture
from specchat.hub.machine import Bandwidth, Device, Machine, gpu_bandwidth, simulated_gpu
from specchat.hub.memory_plan import (
    BF16_BYTES,
    GIB,
    MemoryPlan,
    QuantizedModel,
    can_quantize,
    has_kv_arena,
    has_own_passes,
    plan_memory,
    usable_gpu_bytes,
    weight_bytes,
)
from specchat.plugins.discovery import find_extensions

# The value of a parameter in this format: 14B in 4 bits is like 12B.
FORMAT_QUALITY = {"bf16": 1.0, "float32": 1.0, "int8": 0.97, "nf4-double": 0.85}
CODE_ONLY_FACTOR = 0.6  # a model for code alone is like one of 0.6 times its size
# A model of a year later is like one of so many times its size: in the Intelligence Index of Artificial Analysis of
# March 2026, Qwen3.5-2B has 16 points and Qwen3-VL-8B, which is ten months older in its text part, 17.
YEARLY_IMPROVEMENT = 4.0
GPU_MEMORY_SHARE = 0.95  # of the memory beside the display: the allocator needs some
MAIN_MEMORY_SHARE = 0.75  # of the memory beside other programs
OTHER_PROGRAMS_BYTES = 2 * GIB  # the reserve of main memory
READING_TOKENS_PER_SECOND = 8.0  # a person reads so fast; below, the score falls with the square of the speed
HALF_WORTH_TOKENS_PER_SECOND = 20.0  # at this speed, more speed is worth half of what it is worth near zero
FASTEST_SHARE = 1.05  # of the time of a token in the fastest format: such a format is not slower
DEFAULT_BYTES_PER_SECOND = 20e9  # of main memory when it is not measured: two slow channels
# The share of the bandwidth that passes reach: on a CPU, and by format as measured on an H200 (docs/gpu.md), of 4 bits
# as estimated for GPUs with slower memory.
CPU_BANDWIDTH_SHARE = 0.6
GPU_BANDWIDTH_SHARES = {"bf16": 0.85, "int8": 0.48, "nf4-double": 0.6}
# A GPU without graphs: 75 to 95 kernels for a layer, and three for each expert of a token, launched one by one.
LAYER_LAUNCH_SECONDS, EXPERT_LAUNCH_SECONDS = 0.8e-3, 0.03e-3
EXPERTS_IN_GRAPH_SECONDS = 0.1e-3  # of a layer with experts beside its bytes, measured on an H200 (docs/gpu.md)
MAX_DRAFT_SHARE = 0.20  # of the target's parameters, for a draft model: four draft tokens of more cost most of a pass
ROW_COST = 0.1  # of a plain pass, for each draft token that it verifies, as the chooser assumes before it measures
DEFAULT_CONTEXT_TOKENS = 8192  # exactly one bucket of the KV cache
SHORT_CONTEXT_TOKENS = 4096
TIGHT_MEMORY_SHARE = 0.94
FITS, TIGHT, TOO_LARGE = "fits", "tight", "no"
BASE_DATE = date(2025, 1, 1)
DAYS_OF_YEAR = 365.25


@dataclass(frozen=True)
class DrafterChoice:
    kind: str = ""  # "eagle3", "mtp", "draft"; "" for none
    id: str = ""
    model: QuantizedModel | None = None
    language: str = ""  # of a head that was trained on one language only
    tokens_per_step: float = 0.0  # published; 0: unknown


@dataclass(frozen=True)
class ModelPair:
    entry: CatalogEntry
    quant_format: str
    drafter: DrafterChoice
    context_tokens: int
    device: Device
    bandwidth: Bandwidth | None = None  # of the memory of the device; None: unknown
    score: float = 0.0

    @cached_property
    def memory_plan(self) -> MemoryPlan:
        """The bytes with a full context."""
        target = QuantizedModel(self.entry.architecture, self.quant_format)
        rows = self.context_tokens + (0 if self.has_graphs else SCRATCH_ROWS)
        return plan_memory(target, self.drafter.model, rows, kind=self.device.kind)

    @property
    def has_graphs(self) -> bool:
        return has_kv_arena(self.entry.architecture, kind=self.device.kind)

    @property
    def drafter_name(self) -> str:
        if self.drafter.id == self.entry.id:
            return f"its own {self.drafter.kind} head"
        return self.drafter.id or "prompt lookup"

    @property
    def names(self) -> list[str]:
        """What is downloaded."""
        return [name for name in (self.entry.id, self.separate_drafter_id) if name]

    @property
    def separate_drafter_id(self) -> str:
        """What is downloaded beside the target; "" where the head is in its checkpoint, or for none."""
        return "" if self.drafter.id == self.entry.id else self.drafter.id

    @property
    def download_bytes(self) -> int:
        """About what is downloaded: published weights are mostly in bf16."""
        drafter = self.drafter.model.architecture if self.drafter.model else None
        sizes = (weight_bytes(each, "bf16") for each in (self.entry.architecture, drafter) if each is not None)
        return self.entry.package.wheel_bytes if self.entry.package else sum(sizes)

    @property
    def plain_seconds(self) -> float | None:
        """The estimated time of a pass over one token; None where the bandwidth is unknown."""
        if self.bandwidth is None:
            return None
        entry, architecture = self.entry, self.entry.architecture
        share = GPU_BANDWIDTH_SHARES[self.quant_format] if self.device.is_gpu else CPU_BANDWIDTH_SHARE
        active_share = entry.active_parameters / architecture.parameters
        read_bytes = weight_bytes(architecture, self.quant_format) * active_share
        reading_seconds = read_bytes / (share * self.bandwidth.bytes_per_second)
        if not self.device.is_gpu:
            return reading_seconds
        if self.has_graphs:
            return reading_seconds + (architecture.layers * EXPERTS_IN_GRAPH_SECONDS if entry.selected_experts else 0)
        launches = architecture.layers * (LAYER_LAUNCH_SECONDS + entry.selected_experts * EXPERT_LAUNCH_SECONDS)
        return max(reading_seconds, launches)

    @property
    def lacks_plugin(self) -> bool:
        """Whether drafts need a plugin that is not installed: transformers computes its recurrent layers here."""
        architecture = self.entry.architecture
        is_stepped = architecture.recurrent_elements > 0 and not has_own_passes(architecture, self.device.kind)
        return is_stepped and bool(self.drafter.kind) and not find_extensions("decoding_forms")

    @property
    def drafted_seconds(self) -> float | None:
        """The estimated time of a token with the drafter; an MTP head uses the target's output matrix, too."""
        tokens, model, architecture = self.drafter.tokens_per_step, self.drafter.model, self.entry.architecture
        if not tokens or model is None or self.bandwidth is None or self.plain_seconds is None or self.lacks_plugin:
            return None
        read_bytes = model.weight_bytes(kind=self.device.kind)
        if self.drafter.kind == "mtp":
            read_bytes += BF16_BYTES * architecture.parameters_of_kind(EMBEDDING if architecture.is_tied else OUTPUT)
        share = GPU_BANDWIDTH_SHARES["bf16"] if self.device.is_gpu else CPU_BANDWIDTH_SHARE
        draft = read_bytes / (share * self.bandwidth.bytes_per_second)
        return (self.plain_seconds + ceil(tokens) * (ROW_COST * self.plain_seconds + draft)) / tokens

    @property
    def token_seconds(self) -> float | None:
        """The estimated time of a token; a drafter that gains nothing is not used."""
        return min(filter(None, (self.plain_seconds, self.drafted_seconds)), default=None)


def recommend(
    device: Device, machine: Machine | None = None, context_tokens: int = DEFAULT_CONTEXT_TOKENS
) -> list[ModelPair]:
    """The best pair of every model that fits, best first; empty when only the embedded models fit.

    The machine of the device tells the features and the bandwidth of a CPU; one of unknown bandwidth is slow.
    """
    features = machine.cpu_features if machine else ()
    main_memory = (machine and machine.bytes_per_second) or DEFAULT_BYTES_PER_SECOND
    bandwidth = gpu_bandwidth(device) if device.is_gpu else Bandwidth(main_memory)
    recommended = [entry for entry in catalog().values() if not entry.not_recommended]
    by_entry = (list(_fitting_pairs(entry, device, context_tokens, features, bandwidth)) for entry in recommended)
    return sorted((_best(pairs) for pairs in by_entry if pairs), key=lambda pair: -pair.score)


def _best(pairs: Sequence[ModelPair]) -> ModelPair:
    """The best pair of one model: a more precise format only where it is not slower."""
    fastest = min(pair.token_seconds or 0 for pair in pairs)
    return max(
        (each for each in pairs if (each.token_seconds or 0) <= FASTEST_SHARE * fastest), key=lambda pair: pair.score
    )


def fitting_gpu_sizes(entry: CatalogEntry) -> tuple[int, ...]:
    """The sizes of GPUs, in GB, on which this model fits in some format."""
    fits = lambda size: any(_fitting_pairs(entry, simulated_gpu(size), DEFAULT_CONTEXT_TOKENS, (), None))
    return tuple(filter(fits, GPU_SIZES_GB))


def drafter_quant_format(quant_format: str, *, kind: DeviceKind = CUDA) -> str:
    """The weight format of a draft model for the format of its target: bf16 unless memory is scarce.

    On a CPU, int8 halves the bytes that a draft token reads.
    """
    return quant_format if quant_format.startswith("nf4") or (quant_format == "int8" and not kind.is_gpu) else "bf16"


def format_gib(count: float) -> str:
    """Format bytes in binary units: "8.5 GiB", "45 MiB"."""
    return f"{count / GIB:.1f} GiB" if count >= GIB / 10 else f"{count / 2**20:.0f} MiB"


def fit_label(needed_bytes: float, available_bytes: float) -> str:
    """Whether the bytes fit: FITS, TIGHT or TOO_LARGE."""
    if needed_bytes > available_bytes:
        return TOO_LARGE
    return TIGHT if needed_bytes > TIGHT_MEMORY_SHARE * available_bytes else FITS


def memory_budget(device: Device) -> float:
    """The bytes that models may take on a device, whatever other programs take at the moment."""
    if device.is_gpu:
        return GPU_MEMORY_SHARE * usable_gpu_bytes(device.total_bytes / GIB)
    return MAIN_MEMORY_SHARE * max(device.total_bytes - OTHER_PROGRAMS_BYTES, 0)


def _fitting_pairs(
    entry: CatalogEntry, device: Device, context_tokens: int, cpu_features: Sequence[str], bandwidth: Bandwidth | None
) -> Iterator[ModelPair]:
    """Every format and drafter of a model that fits, with the required context.

    The default context is halved where nothing fits, and for a drafter where none fits beside the model.
    """

    def pairs_with(context: int) -> Iterator[ModelPair]:
        for quant_format in _quant_formats(entry, device, cpu_features):
            for drafter in _drafter_choices(entry, quant_format, kind=device.kind):
                pair = ModelPair(entry, quant_format, drafter, context, device, bandwidth)
                if pair.memory_plan.total_bytes <= memory_budget(device):
                    yield replace(pair, score=_quality(pair) * _pace(pair))

    contexts = [context_tokens]
    contexts += [SHORT_CONTEXT_TOKENS] if contexts == [DEFAULT_CONTEXT_TOKENS] else []
    fitting = list[ModelPair]()
    for context in contexts:
        if context <= entry.architecture.max_position_embeddings:
            fitting += [pair for pair in pairs_with(context) if pair.drafter.kind or not fitting]
        if any(pair.drafter.kind for pair in fitting):
            break
    yield from fitting


def _quant_formats(entry: CatalogEntry, device: Device, cpu_features: Sequence[str]) -> Iterator[str]:
    """The weight formats that this device supports for a model, the most precise first."""
    can_choose = can_quantize(entry.architecture, device.kind)
    yield "bf16" if device.is_gpu or "BF16" in cpu_features else "float32"
    if can_choose and (device.is_gpu or "VNNI" in cpu_features):
        yield "int8"
    if can_choose and device.is_gpu and "nf4-double" in device.kind.weight_formats:
        yield "nf4-double"


def _drafter_choices(entry: CatalogEntry, quant_format: str, *, kind: DeviceKind) -> Iterator[DrafterChoice]:
    """The drafters of a model: its first head that the engine runs, its draft models that are small enough, none."""
    if entry.usable_heads:
        head = entry.usable_heads[0]
        model = QuantizedModel(head_architecture(entry.id, head.kind), "bf16")
        yield DrafterChoice(head.kind, head.id, model, head.language, head.tokens_per_step)
    draft_format = drafter_quant_format(quant_format, kind=kind)
    for name in entry.draft_models:
        draft = catalog()[name].architecture
        if draft.parameters <= MAX_DRAFT_SHARE * entry.architecture.parameters:
            yield DrafterChoice("draft", name, QuantizedModel(draft, draft_format))
    yield DrafterChoice()


def _quality(pair: ModelPair) -> float:
    """What its answers are worth: billions of parameters, times factors. No model was compared with another here."""
    entry = pair.entry
    size = sqrt(entry.architecture.parameters * entry.active_parameters) / 1e9 * FORMAT_QUALITY[pair.quant_format]
    fit = 1.0 if entry.purposes[0] == "chat" else CODE_ONLY_FACTOR
    return size * fit * YEARLY_IMPROVEMENT ** ((entry.released - BASE_DATE).days / DAYS_OF_YEAR)


def _pace(pair: ModelPair) -> float:
    """What its speed is worth, below 1; without a known bandwidth all pairs are equally fast."""
    if (seconds := pair.token_seconds) is None:
        return 1.0
    speed = 1 / seconds
    return speed / (speed + HALF_WORTH_TOKENS_PER_SECOND) * min(1.0, speed / READING_TOKENS_PER_SECOND) ** 2
