"""Recommends a target and drafter of the catalog for the memory of a device, with reasons. A pure function.

The total memory counts, without a reserve for other programs: what is free at the moment changes, and the choice should
not. A reason says when less is free than a pair needs.

The choice is a heuristic: the product in `_score`, whose factors are the constants below. Memory is computed: weights,
drafter, KV cache of a full context, workspace. Speed is estimated from the memory bandwidth, and marked as an estimate.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from math import ceil, sqrt
from typing import Any

from specchat.devices import CUDA, DeviceKind
from specchat.hub.architecture import EMBEDDING, OUTPUT, Architecture
from specchat.hub.catalog import GPU_SIZES_GB, CatalogEntry, catalog, head_architecture
from specchat.hub.gpu_bandwidth import gpu_bandwidth
from specchat.hub.machine import Device, simulated_gpu
from specchat.hub.measured_passes import MeasuredPasses, seconds_at
from specchat.hub.memory_plan import (
    BF16_BYTES,
    GIB,
    QUANTIZED_FORMATS,
    SCRATCH_ROWS,
    MemoryPlan,
    QuantizedModel,
    can_quantize,
    has_kv_arena,
    plan_memory,
    usable_gpu_bytes,
    weight_bytes,
)
from specchat.hub.pairing import MAX_DRAFT_SHARE, catalog_member, pair_warnings
from specchat.profile import Limits, Models
from specchat.profile.validation import key_info
from specchat.weights.llama_families import GPU_FAMILIES

PURPOSES = ("chat", "code", "edit")
# The value of a parameter in this format: 14B in 4 bits is like 11B.
FORMAT_QUALITY = {"bf16": 1.0, "float32": 1.0, "int8": 0.97, "nf4-double": 0.75}
SECONDARY_PURPOSE_FACTOR = 0.6  # a model for another purpose is like one of 0.6 times its size
# A model of a year later is like one of so many times its size: in the Intelligence Index of Artificial Analysis of
# March 2026, Qwen3.5-2B has 16 points and Qwen3-VL-8B, which is ten months older in its text part, 17.
YEARLY_IMPROVEMENT = 4.0
GATED_FACTOR = 0.6  # the user must sign in and accept a licence
# A head computes one layer, a draft more.
DRAFTER_FACTOR = {"eagle3": 1.15, "mtp": 1.15, "dflash": 1.1, "draft": 1.0, "": 0.7}
SINGLE_LANGUAGE_FACTOR = 0.8  # a head that was trained on one language only
OVERSIZED_DRAFT_FACTOR = 0.8  # a draft that is too large for its target: below no drafter
CPU_EMBEDDING_FACTOR = 0.5  # with embeddings on the CPU, there are no CUDA graphs
GPU_MEMORY_SHARE = 0.95  # of the memory beside the display: the allocator needs some
MAIN_MEMORY_SHARE = 0.75  # of the memory beside other programs
OTHER_PROGRAMS_BYTES = 2 * GIB  # the reserve of main memory
READING_TOKENS_PER_SECOND = 8.0  # a person reads so fast; below, the score falls with the square of the speed
DEFAULT_BYTES_PER_SECOND = 20e9  # of main memory when it is not measured: two slow channels
BANDWIDTH_SHARE = 0.6  # that passes reach; on GPUs an assumption
ROW_COST = 0.1  # of a plain pass, for each draft token that it verifies, as the chooser assumes before it measures
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
    embeddings_on_cpu: bool = False
    bytes_per_second: float | None = None  # memory bandwidth of the device; None: unknown
    score: float = 0.0

    @cached_property
    def memory_plan(self) -> MemoryPlan:
        """The bytes with a full context. All KV rows are stored, so that draft tokens can be rolled back."""
        target = QuantizedModel(self.entry.architecture, self.quant_format, self.embeddings_on_cpu)
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
    def is_memory_tight(self) -> bool:
        return self.memory_plan.total_bytes > TIGHT_MEMORY_SHARE * _memory_budget(self.device)

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


def fitting_gpu_sizes(entry: CatalogEntry, purpose: str = "chat") -> tuple[int, ...]:
    """The sizes of GPUs, in GB, on which this model fits in some format."""
    requirements = PairRequirements(purpose)
    return tuple(
        size for size in GPU_SIZES_GB if any(_fitting_pairs(entry, simulated_gpu(size), requirements, (), None))
    )


def reasons(pair: ModelPair, measured: MeasuredPasses | None = None) -> Iterator[str]:
    architecture, memory = pair.entry.architecture, pair.memory_plan
    yield f"{architecture.parameters / 1e9:.1f} B parameters in {pair.quant_format}: {format_gib(memory.weight_bytes)}"
    match pair.drafter.kind:
        case "":
            yield "no draft model or head: the drafters lookup and suffix copy from the text, which takes no memory"
        case "draft":
            size = format_gib(memory.drafter_bytes)
            yield f"draft model {pair.drafter.id}: {size}, {_draft_share(pair):.0%} of the target"
            target = catalog_member(pair.entry.id, architecture, pair.entry.token_family)
            draft = catalog_member(pair.drafter.id, _drafter_architecture(pair), pair.entry.token_family)
            yield from (f"warning: {line}" for line in pair_warnings(draft, target, kind=pair.device.kind))
        case kind:
            layers, language = _drafter_architecture(pair).layers, pair.drafter.language
            size = f"{format_gib(memory.drafter_bytes)}, {layers} layer{'s' * (layers > 1)}"
            name = "in its own checkpoint" if not pair.separate_drafter_id else pair.drafter.id
            yield f"{kind} head {name}: {size}{f', trained on {language}' * bool(language)}"
    kv_cache, workspace = format_gib(memory.kv_cache_bytes), format_gib(memory.workspace_bytes)
    yield f"KV cache of {pair.context_tokens} tokens: {kv_cache}; workspace {workspace}"
    available = format_gib(_memory_budget(pair.device))
    reserve = "the display" if pair.device.is_gpu else "other programs"
    tight = " (tight)" * pair.is_memory_tight
    yield f"total {format_gib(memory.total_bytes)} of {available}{tight}; the rest is a reserve for {reserve}"
    if memory.total_bytes > pair.device.free_bytes:
        free = format_gib(pair.device.free_bytes)
        yield f"warning: only {free} are free now; end other programs before it is loaded, or choose a smaller model"
    if pair.embeddings_on_cpu:
        yield "its embeddings stay in main memory, as it does not fit otherwise; this copies a few KB per token"
    if pair.entry.is_gated:
        yield f"gated: accept its licence ({pair.entry.licence}) on the hub first"
    yield from speed_lines(pair, measured)


def speed_lines(pair: ModelPair, measured: MeasuredPasses | None = None) -> Iterator[str]:
    """Tokens per second without and with the drafter. Each line says whether its number was measured here."""
    if measured is not None:
        plain, source = 1 / measured.passes[1], "measured on this machine"
    elif pair.bytes_per_second is not None:
        plain = pair.tokens_per_second(pair.bytes_per_second)
        source = f"estimated from {pair.bytes_per_second / 1e9:.0f} GB/s"
    elif known := gpu_bandwidth(pair.device):
        plain = pair.tokens_per_second(known.bytes_per_second)
        source = f"estimated from {known.bytes_per_second / 1e9:.0f} GB/s ({known.gpu})"
    else:
        yield f"speed: nothing is known of {pair.device.name}; 'specchat bench' measures it"
        return
    slow = "; slower than reading speed" * (plain < READING_TOKENS_PER_SECOND)
    yield f"{'' if measured else 'about '}{plain:.2g} tokens/s in plain decoding, {source}{slow}"
    if not pair.drafter.kind:
        yield "faster only where text repeats, by copied draft tokens; 'specchat bench' measures by how much"
    elif tokens := pair.drafter.tokens_per_step:
        speed = tokens * plain / _step_cost(pair, ceil(tokens), measured)
        passes = " and passes measured here" if measured else ""
        published = f"estimated from {tokens:g} tokens/step published for it{passes}"
        gain = f"about {speed:.2g} tokens/s" if speed > plain else "no gain expected"
        yield f"{gain} with {pair.drafter_name}, {published}"
    else:
        yield f"with {pair.drafter_name}: no acceptance is published, so no estimate; 'specchat bench' measures it"


def _step_cost(pair: ModelPair, depth: int, measured: MeasuredPasses | None) -> float:
    """The time of a step with so many draft tokens, relative to a plain pass."""
    if measured is None:
        return 1 + depth * (ROW_COST + pair.draft_cost)
    plain, drafts = measured.passes[1], measured.drafts.get(pair.drafter.kind)
    draft_cost = seconds_at(drafts, depth) / plain if drafts else depth * pair.draft_cost
    return draft_cost + seconds_at(measured.passes, depth + 1) / plain


def profile_text(pair: ModelPair, name: str) -> str:
    """The profile that uses this pair, as TOML with a comment above every key."""
    tables = (
        ("models", _models_table(pair), key_info(Models)),
        ("limits", {"context": pair.context_tokens}, key_info(Limits)),
    )
    lines = [f"# {pair.entry.id} on {pair.device.name}, chosen by 'specchat models recommend'.", ""]
    lines += ["# The name of the profile.", f"name = {json.dumps(name)}"]
    lines += ["# One line for lists of profiles.", f"description = {json.dumps(_description(pair))}"]
    lines += ["# All other keys have the values of this profile.", 'extends = "chat"']
    for table, keys, known in tables:
        lines += ["", f"[{table}]"]
        for key, value in keys.items():
            lines += [f"# {known[key].description}", f"{key} = {json.dumps(value)}"]
    return "\n".join(lines) + "\n"


def drafter_quant_format(quant_format: str, *, kind: DeviceKind = CUDA) -> str:
    """The weight format of a draft model for the format of its target: bf16 unless memory is scarce.

    On a CPU, int8 halves the bytes that a draft token reads.
    """
    return quant_format if quant_format.startswith("nf4") or (quant_format == "int8" and not kind.is_gpu) else "bf16"


def format_gib(count: float) -> str:
    """Format bytes in binary units: "8.5 GiB", "45 MiB"."""
    return f"{count / GIB:.1f} GiB" if count >= GIB / 10 else f"{count / 2**20:.0f} MiB"


def _models_table(pair: ModelPair) -> dict[str, Any]:
    drafter = pair.drafter
    keys: dict[str, Any] = {"target": pair.entry.id, "draft": drafter.id if drafter.kind == "draft" else ""}
    keys["heads"] = [drafter.id] if drafter.kind not in ("", "draft") else []
    if pair.quant_format in QUANTIZED_FORMATS:
        keys["weights"] = pair.quant_format
    else:
        keys["dtype"] = "float32" if pair.quant_format == "float32" else "bfloat16"
    if drafter.model is not None and drafter.kind == "draft" and drafter.model.quant_format in QUANTIZED_FORMATS:
        keys["draft_weights"] = drafter.model.quant_format
    if pair.embeddings_on_cpu:
        keys["embedding_device"] = "cpu"
    if not pair.device.is_gpu:
        keys["device"] = "cpu"
    return keys


def _description(pair: ModelPair) -> str:
    drafter = f" with {pair.drafter_name.rpartition('/')[2]}" if pair.drafter.kind else ""
    return f"{pair.entry.name} ({pair.quant_format}){drafter}, {format_gib(pair.memory_plan.total_bytes)}"


def _drafter_architecture(pair: ModelPair) -> Architecture:
    assert pair.drafter.model is not None
    return pair.drafter.model.architecture


def _draft_share(pair: ModelPair) -> float:
    return _drafter_architecture(pair).parameters / pair.entry.architecture.parameters


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
                for embeddings_on_cpu in (False, True) if can_split else (False,):
                    pair = ModelPair(entry, quant_format, drafter, context, device, embeddings_on_cpu, bytes_per_second)
                    if pair.memory_plan.total_bytes <= _memory_budget(device):
                        yield replace(pair, score=_score(pair, requirements))
                        break

    can_split = device.is_gpu and entry.architecture.family in GPU_FAMILIES and not entry.architecture.is_tied
    contexts = [requirements.context_tokens]
    contexts += [SHORT_CONTEXT_TOKENS] if contexts == [DEFAULT_CONTEXT_TOKENS] else []
    fitting = list[ModelPair]()
    for context in contexts:
        if context <= entry.architecture.max_position_embeddings:
            fitting += [pair for pair in pairs_with(context) if pair.drafter.kind or not fitting]
        if any(pair.drafter.kind and not pair.embeddings_on_cpu for pair in fitting):
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
    """The drafters of a model: its first head that the engine runs, its draft models, none."""
    if entry.usable_heads:
        head = entry.usable_heads[0]
        model = QuantizedModel(head_architecture(entry.id, head.kind), "bf16")
        yield DrafterChoice(head.kind, head.id, model, head.language, head.tokens_per_step)
    draft_format = drafter_quant_format(quant_format, kind=kind)
    for name in entry.draft_models:
        yield DrafterChoice("draft", name, QuantizedModel(catalog()[name].architecture, draft_format))
    yield DrafterChoice()


def _score(pair: ModelPair, requirements: PairRequirements) -> float:
    """Expected quality and speed of answers: billions of parameters, times factors."""
    entry = pair.entry
    purpose = "code" if requirements.purpose == "edit" else requirements.purpose
    score = sqrt(entry.architecture.parameters * entry.active_parameters) / 1e9 * FORMAT_QUALITY[pair.quant_format]
    score *= 1.0 if entry.purposes[0] == purpose else SECONDARY_PURPOSE_FACTOR if purpose in entry.purposes else 0.0
    years = (entry.released - BASE_DATE).days / DAYS_OF_YEAR
    score *= YEARLY_IMPROVEMENT**years * (GATED_FACTOR if entry.is_gated else 1.0)
    score *= 1.0 if requirements.purpose == "edit" and not pair.drafter.kind else DRAFTER_FACTOR[pair.drafter.kind]
    score *= 1.0 if pair.drafter.kind != "draft" or _draft_share(pair) <= MAX_DRAFT_SHARE else OVERSIZED_DRAFT_FACTOR
    score *= SINGLE_LANGUAGE_FACTOR if pair.drafter.language else 1.0
    score *= CPU_EMBEDDING_FACTOR if pair.embeddings_on_cpu else 1.0
    speed = pair.plain_tokens_per_second
    return score if speed is None else score * min(1.0, speed / READING_TOKENS_PER_SECOND) ** 2
