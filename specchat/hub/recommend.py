"""Recommends a target and drafter of the catalog for the memory of a device. A pure function; `pair_text.py` says why.

The total memory counts, without a reserve for other programs: what is free at the moment changes, and the choice should
not. A reason says when less is free than a pair needs.

The choice is a heuristic: what answers are worth (`_quality`) times what their speed is worth (`_pace`). Memory is
computed: weights, drafter, KV cache of a full context, workspace. Speed is estimated from the memory bandwidth, and
marked as an estimate.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from math import sqrt

from specchat.devices import CUDA, DeviceKind
from specchat.hub.architecture import EMBEDDING, OUTPUT, Architecture
from specchat.hub.catalog import GPU_SIZES_GB, CatalogEntry, catalog, head_architecture
from specchat.hub.machine import Device, Machine, simulated_gpu
from specchat.hub.memory_plan import (
    BF16_BYTES,
    GIB,
    SCRATCH_ROWS,
    MemoryPlan,
    QuantizedModel,
    can_quantize,
    has_kv_arena,
    plan_memory,
    usable_gpu_bytes,
    weight_bytes,
)
from specchat.hub.pairing import MAX_DRAFT_SHARE

PURPOSES = ("chat", "code", "edit")
# The value of a parameter in this format: 14B in 4 bits is like 11B.
FORMAT_QUALITY = {"bf16": 1.0, "float32": 1.0, "int8": 0.97, "nf4-double": 0.75}
SECONDARY_PURPOSE_FACTOR = 0.6  # a model for another purpose is like one of 0.6 times its size
# A model of a year later is like one of so many times its size: in the Intelligence Index of Artificial Analysis of
# March 2026, Qwen3.5-2B has 16 points and Qwen3-VL-8B, which is ten months older in its text part, 17.
YEARLY_IMPROVEMENT = 4.0
NO_DRAFTER_FACTOR = 0.6  # of its speed, where nothing drafts; edits repeat their text, which is copied
GPU_MEMORY_SHARE = 0.95  # of the memory beside the display: the allocator needs some
MAIN_MEMORY_SHARE = 0.75  # of the memory beside other programs
OTHER_PROGRAMS_BYTES = 2 * GIB  # the reserve of main memory
READING_TOKENS_PER_SECOND = 8.0  # a person reads so fast; below, the score falls with the square of the speed
DEFAULT_BYTES_PER_SECOND = 20e9  # of main memory when it is not measured: two slow channels
BANDWIDTH_SHARE = 0.6  # that passes reach; on GPUs an assumption
DEFAULT_CONTEXT_TOKENS = 8192  # exactly one bucket of the KV cache
SHORT_CONTEXT_TOKENS = 4096
TIGHT_MEMORY_SHARE = 0.94
BASE_DATE = date(2025, 1, 1)
DAYS_OF_YEAR = 365.25


@dataclass(frozen=True)
class PairRequirements:
    purpose: str = "chat"
    context_tokens: int = DEFAULT_CONTEXT_TOKENS


@dataclass(frozen=True)
class DrafterChoice:
    kind: str = ""  # "eagle3", "dflash", "draft"; "" for none
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
    bytes_per_second: float | None = None  # memory bandwidth of the device; None: unknown
    score: float = 0.0

    @cached_property
    def memory_plan(self) -> MemoryPlan:
        """The bytes with a full context. All KV rows are stored, so that draft tokens can be rolled back."""
        target = QuantizedModel(self.entry.architecture, self.quant_format)
        has_arena = has_kv_arena(self.entry.architecture, kind=self.device.kind)
        rows = self.context_tokens + (0 if has_arena else SCRATCH_ROWS)
        return plan_memory(target, self.drafter.model, rows, kind=self.device.kind, uses_sliding_windows=False)

    @property
    def drafter_name(self) -> str:
        if self.drafter.id == self.entry.id:
            return f"its own {self.drafter.kind} head"
        return self.drafter.id or "prompt lookup"

    @property
    def separate_drafter_id(self) -> str:
        """What is downloaded beside the target; "" where the head is in its checkpoint, or for none."""
        return "" if self.drafter.id == self.entry.id else self.drafter.id

    @property
    def drafter_architecture(self) -> Architecture:
        """Of a pair that has a drafter."""
        assert self.drafter.model is not None
        return self.drafter.model.architecture

    @property
    def draft_share(self) -> float:
        """The parameters of the drafter by those of the target."""
        return self.drafter_architecture.parameters / self.entry.architecture.parameters

    @property
    def memory_budget(self) -> float:
        return _memory_budget(self.device)

    @property
    def is_memory_tight(self) -> bool:
        return self.memory_plan.total_bytes > TIGHT_MEMORY_SHARE * self.memory_budget

    @property
    def plain_tokens_per_second(self) -> float | None:
        """Upper estimate of plain decoding: every pass reads the weights once. None: the bandwidth is unknown."""
        return None if self.bytes_per_second is None else self.tokens_per_second(self.bytes_per_second)

    def tokens_per_second(self, bytes_per_second: float) -> float:
        """Upper estimate of plain decoding with this bandwidth."""
        return BANDWIDTH_SHARE * bytes_per_second / self.active_bytes

    @property
    def active_bytes(self) -> float:
        share = self.entry.active_parameters / self.entry.architecture.parameters
        return weight_bytes(self.entry.architecture, self.quant_format) * share

    @property
    def draft_cost(self) -> float:
        """The bytes of a draft token relative to those of a plain pass; an MTP head uses the target's output matrix."""
        model = self.drafter.model
        if model is None:
            return 0.0
        target, draft_bytes = self.entry.architecture, float(model.weight_bytes(kind=self.device.kind))
        if self.drafter.kind == "mtp":
            draft_bytes += BF16_BYTES * target.parameters_of_kind(EMBEDDING if target.is_tied else OUTPUT)
        return draft_bytes / self.active_bytes


def recommend(
    device: Device,
    requirements: PairRequirements | None = None,
    cpu_features: Sequence[str] = (),
    bytes_per_second: float | None = None,
) -> list[ModelPair]:
    """The best pair of every model that fits, best first; empty when only the embedded models fit.

    `bytes_per_second` is the bandwidth of main memory; None assumes a slow one on a CPU.
    """
    requirements = requirements or PairRequirements()
    if not device.is_gpu:
        bytes_per_second = bytes_per_second or DEFAULT_BYTES_PER_SECOND
    best = dict[str, ModelPair]()
    for entry in catalog().values():
        if entry.not_recommended:
            continue
        for pair in _fitting_pairs(entry, device, requirements, cpu_features, bytes_per_second):
            if entry.id not in best or pair.score > best[entry.id].score:
                best[entry.id] = pair
    return sorted(best.values(), key=lambda pair: -pair.score)


def recommend_for_device(device: Device, requirements: PairRequirements, machine: Machine | None) -> list[ModelPair]:
    """The pairs that fit, the best first. The bandwidth is that of main memory, so it is not used for a GPU."""
    features = machine.cpu_features if machine else ()
    bandwidth = machine.bytes_per_second if machine and not device.is_gpu else None
    return recommend(device, requirements, features, bandwidth)


def fitting_gpu_sizes(entry: CatalogEntry, purpose: str = "chat") -> tuple[int, ...]:
    """The sizes of GPUs, in GB, on which this model fits in some format."""
    requirements = PairRequirements(purpose)
    return tuple(
        size for size in GPU_SIZES_GB if any(_fitting_pairs(entry, simulated_gpu(size), requirements, (), None))
    )


def drafter_quant_format(quant_format: str, *, kind: DeviceKind = CUDA) -> str:
    """The weight format of a draft model for the format of its target: bf16 unless memory is scarce.

    On a CPU, int8 halves the bytes that a draft token reads.
    """
    return quant_format if quant_format.startswith("nf4") or (quant_format == "int8" and not kind.is_gpu) else "bf16"


def format_gib(count: float) -> str:
    """Format bytes in binary units: "8.5 GiB", "45 MiB"."""
    return f"{count / GIB:.1f} GiB" if count >= GIB / 10 else f"{count / 2**20:.0f} MiB"


def _memory_budget(device: Device) -> float:
    if device.is_gpu:
        return GPU_MEMORY_SHARE * usable_gpu_bytes(device.total_bytes / GIB)
    return MAIN_MEMORY_SHARE * max(device.total_bytes - OTHER_PROGRAMS_BYTES, 0)


def _fitting_pairs(
    entry: CatalogEntry,
    device: Device,
    requirements: PairRequirements,
    cpu_features: Sequence[str],
    bytes_per_second: float | None,
) -> Iterator[ModelPair]:
    """Every format and drafter of a model that fits, with the required context.

    The default context is halved where nothing fits, and for a drafter where none fits beside the model.
    """

    def pairs_with(context: int) -> Iterator[ModelPair]:
        for quant_format in _quant_formats(entry, device, cpu_features):
            for drafter in _drafter_choices(entry, quant_format, kind=device.kind):
                pair = ModelPair(entry, quant_format, drafter, context, device, bytes_per_second)
                if pair.memory_plan.total_bytes <= _memory_budget(device):
                    yield replace(pair, score=_quality(pair, requirements.purpose) * _pace(pair, requirements.purpose))

    contexts = [requirements.context_tokens]
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
    can_choose = can_quantize(entry.architecture)
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


def _quality(pair: ModelPair, purpose: str) -> float:
    """What its answers are worth: billions of parameters, times factors. No model was compared with another here."""
    entry, asked = pair.entry, "code" if purpose == "edit" else purpose
    size = sqrt(entry.architecture.parameters * entry.active_parameters) / 1e9 * FORMAT_QUALITY[pair.quant_format]
    fit = 1.0 if entry.purposes[0] == asked else SECONDARY_PURPOSE_FACTOR if asked in entry.purposes else 0.0
    return size * fit * YEARLY_IMPROVEMENT ** ((entry.released - BASE_DATE).days / DAYS_OF_YEAR)


def _pace(pair: ModelPair, purpose: str) -> float:
    """What its speed is worth, at most 1."""
    drafted = 1.0 if pair.drafter.kind or purpose == "edit" else NO_DRAFTER_FACTOR
    speed = pair.plain_tokens_per_second
    return drafted if speed is None else drafted * min(1.0, speed / READING_TOKENS_PER_SECOND) ** 2
