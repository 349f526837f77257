"""Which pair of the catalog to take for so much free memory, and why. A pure function of a device and a wish.

The choice is a rule of thumb, written as one product in `_worth`, and every factor is a constant with its reason here.
Memory is counted, not guessed: weights, drafter, keys and values of a full context, workspace. Speed is estimated only
where a bandwidth was measured, and called an estimate.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import Any

from specchat.hub.architecture import Architecture
from specchat.hub.catalog import GPU_SIZES_GB, CatalogEntry, catalog, head_architecture
from specchat.hub.machine import Device, simulated_gpu
from specchat.hub.memory_plan import (
    GIB,
    LLAMA_LIKE_FAMILIES,
    QUANTIZED_FORMATS,
    SCRATCH_ROWS,
    MemoryPlan,
    QuantizedModel,
    plan_memory,
    weight_bytes,
)
from specchat.hub.pairing import MAX_DRAFT_SHARE, PairMember, pair_warnings
from specchat.profile import Limits, Models
from specchat.profile.validation import key_info

PURPOSES = ("chat", "code", "edit")
FORMAT_QUALITY = {
    "bf16": 1.0,
    "float32": 1.0,
    "int8": 0.97,
    "nf4-double": 0.75,
}  # of a parameter: 14B in 4 bits is like 11B
SECONDARY_PURPOSE_FACTOR = 0.6  # a model that is made for something else is worth as much as one of 0.6 times its size
YEARLY_IMPROVEMENT = 1.25  # newer models of the same size are better by about so much
GATED_FACTOR = 0.6  # somebody must sign in, accept a licence and wait
DRAFTER_FACTOR = {
    "eagle3": 1.15,
    "dflash": 1.1,
    "draft": 1.0,
    "": 0.85,
}  # a head costs one layer, a draft all of its own
SINGLE_LANGUAGE_FACTOR = 0.8  # a head that was trained on one language, which may not be yours
OVERSIZED_DRAFT_FACTOR = 0.8  # a draft that is too large for its target: rather nobody
CPU_EMBEDDING_FACTOR = 0.5  # embeddings on the CPU: passes are not recorded then
GPU_MEMORY_SHARE = 0.98  # of what is free
MAIN_MEMORY_SHARE = 0.75  # of free main memory: the rest is for everybody else
READING_TOKENS_PER_SECOND = 8.0  # tokens a second that a person reads; slower is a loss that grows fast
DEFAULT_BYTES_PER_SECOND = 20e9  # a second, of main memory that nobody measured: two slow channels
CPU_BANDWIDTH_SHARE = 0.6  # of the bandwidth of main memory that passes on a CPU reach
DEFAULT_CONTEXT_TOKENS = 8192  # exactly one bucket of keys and values
SHORT_CONTEXT_TOKENS = 4096
TIGHT_MEMORY_SHARE = 0.94
BASE_YEAR = 2024


@dataclass(frozen=True)
class PairRequirements:
    """What a pair is to do, and in how much text."""

    purpose: str = "chat"
    context_tokens: int = DEFAULT_CONTEXT_TOKENS


@dataclass(frozen=True)
class DrafterChoice:
    """Who drafts: a head, a model, or nobody but the text itself."""

    kind: str = ""  # "eagle3", "dflash", "draft"; "" for nobody
    id: str = ""
    model: QuantizedModel | None = None
    language: str = ""  # the one language that it was trained on


@dataclass(frozen=True)
class ModelPair:
    """A target, how it is held, and who drafts for it: one way to use a device."""

    entry: CatalogEntry
    quant_format: str
    drafter: DrafterChoice
    context_tokens: int
    device: Device
    embeddings_on_cpu: bool = False
    bytes_per_second: float | None = None  # of the device's memory, where it was measured
    score: float = 0.0

    @cached_property
    def memory_plan(self) -> MemoryPlan:
        """Bytes that it takes with a full context. All rows are kept, so that guesses can be taken back."""
        target = QuantizedModel(self.entry.architecture, self.quant_format, self.embeddings_on_cpu)
        rows = self.context_tokens + SCRATCH_ROWS
        return plan_memory(target, self.drafter.model, rows, on_gpu=self.device.is_gpu, uses_sliding_windows=False)

    @property
    def is_memory_tight(self) -> bool:
        """Whether it takes nearly all that is free."""
        return self.memory_plan.total_bytes > TIGHT_MEMORY_SHARE * _memory_budget(self.device)

    @property
    def plain_tokens_per_second(self) -> float | None:
        """Tokens a second without guesses, at best: every pass reads the weights once. None: nothing was measured."""
        if self.bytes_per_second is None:
            return None
        share = self.entry.active_parameters / self.entry.architecture.parameters
        return (
            CPU_BANDWIDTH_SHARE
            * self.bytes_per_second
            / (weight_bytes(self.entry.architecture, self.quant_format) * share)
        )


def recommend(
    device: Device,
    requirements: PairRequirements | None = None,
    cpu_features: Sequence[str] = (),
    bytes_per_second: float | None = None,
) -> list[ModelPair]:
    """The best pair of every model that fits, the best first; empty when only the embedded models fit.

    `bytes_per_second` is that of main memory; where a CPU computes and nobody measured it, a slow one is assumed.
    """
    requirements = requirements or PairRequirements()
    if not device.is_gpu:
        bytes_per_second = bytes_per_second or DEFAULT_BYTES_PER_SECOND
    best = dict[str, ModelPair]()
    for entry in catalog().values():
        for pair in _fitting_pairs(entry, device, requirements, cpu_features, bytes_per_second):
            if entry.id not in best or pair.score > best[entry.id].score:
                best[entry.id] = pair
    return sorted(best.values(), key=lambda pair: -pair.score)


def fitting_gpu_sizes(entry: CatalogEntry, purpose: str = "chat") -> tuple[int, ...]:
    """The sizes of cards, in GB, on which this model finds room in some way."""
    return tuple(
        card
        for card in GPU_SIZES_GB
        if any(_fitting_pairs(entry, simulated_gpu(card), PairRequirements(purpose), (), None))
    )


def reasons(pair: ModelPair) -> Iterator[str]:
    """Why this one, in words and numbers."""
    anatomy, sizes = pair.entry.architecture, pair.memory_plan
    held = {"bf16": "as it was saved", "float32": "in float32"}.get(pair.quant_format, f"held in {pair.quant_format}")
    yield f"{anatomy.parameters / 1e9:.1f} B parameters {held}: {format_gib(sizes.weight_bytes)}"
    match pair.drafter.kind:
        case "":
            yield "nobody else drafts: repeats of the text are copied (lookup, suffix), which costs no memory"
        case "draft":
            yield f"{pair.drafter.id} drafts: {format_gib(sizes.drafter_bytes)}, {_draft_share(pair):.0%} of its target"
            beside, draft = (
                PairMember(
                    name,
                    each.parameters,
                    each.layers,
                    pair.entry.token_family,
                    has_cuda_graphs=each.family in LLAMA_LIKE_FAMILIES,
                )
                for name, each in ((pair.entry.id, anatomy), (pair.drafter.id, _drafter_architecture(pair)))
            )
            yield from (f"beware: {line}" for line in pair_warnings(draft, beside, on_gpu=pair.device.is_gpu))
        case kind:
            layers = _drafter_architecture(pair).layers
            yield (
                f"{pair.drafter.id} drafts ({kind}): {format_gib(sizes.drafter_bytes)}, {layers} layer{'s' * (layers > 1)}"
                f"{f', trained on {pair.drafter.language}' * bool(pair.drafter.language)}"
            )
    yield f"a text of {pair.context_tokens} tokens: {format_gib(sizes.kv_cache_bytes)}; workspace {format_gib(sizes.workspace_bytes)}"
    room = _memory_budget(pair.device)
    yield f"together {format_gib(sizes.total_bytes)} of {format_gib(room)}{' (tight)' * pair.is_memory_tight}"
    if pair.embeddings_on_cpu:
        yield "its embeddings stay in main memory, or it would not fit; a few KB a token cross over"
    if pair.entry.is_gated:
        yield f"gated: accept its licence ({pair.entry.licence}) on the hub first"
    if (speed := pair.plain_tokens_per_second) is not None and pair.bytes_per_second:
        yield f"about {speed:.2g} tokens/s without guesses, estimated from {pair.bytes_per_second / 1e9:.0f} GB/s" + (
            "; slower than one reads" if speed < READING_TOKENS_PER_SECOND else ""
        )


def profile_text(pair: ModelPair, name: str) -> str:
    """The profile that uses this pair, as TOML with a comment above every key."""
    tables = (
        ("models", _models_table(pair), key_info(Models)),
        ("limits", {"context": pair.context_tokens}, key_info(Limits)),
    )
    lines = [f"# {pair.entry.id} on {pair.device.name}, chosen by 'specchat models recommend'.", ""]
    lines += ["# How the profile is called.", f"name = {json.dumps(name)}"]
    lines += ["# One line for lists of profiles.", f"description = {json.dumps(_description(pair))}"]
    lines += ["# Everything that is not said here is taken from this profile.", 'extends = "chat"']
    for table, keys, known in tables:
        lines += ["", f"[{table}]"]
        for key, value in keys.items():
            lines += [f"# {known[key].description}", f"{key} = {json.dumps(value)}"]
    return "\n".join(lines) + "\n"


def drafter_quant_format(quant_format: str, *, on_gpu: bool = True) -> str:
    """How a draft model is held beside a target that is held so: small enough for bf16 unless memory is scarce.

    On a CPU int8 reads half as many bytes for a guess, as for a word of the target.
    """
    return quant_format if quant_format.startswith("nf4") or (quant_format == "int8" and not on_gpu) else "bf16"


def format_gib(count: float) -> str:
    """Bytes as people say them: "8.5 GiB", "45 MiB"."""
    return f"{count / GIB:.1f} GiB" if count >= GIB / 10 else f"{count / 2**20:.0f} MiB"


def _models_table(pair: ModelPair) -> dict[str, Any]:
    """The keys of [models]."""
    drafting = pair.drafter
    keys: dict[str, Any] = {"target": pair.entry.id, "draft": drafting.id if drafting.kind == "draft" else ""}
    keys["heads"] = [drafting.id] if drafting.kind not in ("", "draft") else []
    if pair.quant_format in QUANTIZED_FORMATS:
        keys["weights"] = pair.quant_format
    else:
        keys["dtype"] = "float32" if pair.quant_format == "float32" else "bfloat16"
    if drafting.model is not None and drafting.kind == "draft" and drafting.model.quant_format in QUANTIZED_FORMATS:
        keys["draft_weights"] = drafting.model.quant_format
    if pair.embeddings_on_cpu:
        keys["embedding"] = "cpu"
    if not pair.device.is_gpu:
        keys["device"] = "cpu"
    return keys


def _description(pair: ModelPair) -> str:
    drafted = f" with {pair.drafter.id.partition('/')[2]}" if pair.drafter.kind else ""
    return f"{pair.entry.name} ({pair.quant_format}){drafted}, {format_gib(pair.memory_plan.total_bytes)}"


def _drafter_architecture(pair: ModelPair) -> Architecture:
    assert pair.drafter.model is not None
    return pair.drafter.model.architecture


def _draft_share(pair: ModelPair) -> float:
    return _drafter_architecture(pair).parameters / pair.entry.architecture.parameters


def _memory_budget(device: Device) -> float:
    """What a pair may take."""
    return device.free_bytes * (GPU_MEMORY_SHARE if device.is_gpu else MAIN_MEMORY_SHARE)


def _fitting_pairs(
    entry: CatalogEntry,
    device: Device,
    requirements: PairRequirements,
    cpu_features: Sequence[str],
    bytes_per_second: float | None,
) -> Iterator[ModelPair]:
    """Every way to use a model here that fits, with the context that is wished for; the usual one may be shortened."""
    can_part = device.is_gpu and entry.architecture.family in LLAMA_LIKE_FAMILIES and not entry.architecture.is_tied
    places = (False, True) if can_part else (False,)
    shorter = (
        SHORT_CONTEXT_TOKENS if requirements.context_tokens == DEFAULT_CONTEXT_TOKENS else requirements.context_tokens
    )
    for context in dict.fromkeys((requirements.context_tokens, shorter)):
        found = False
        for way in _quant_formats(entry, device, cpu_features):
            for drafting in _drafter_choices(entry, way, on_gpu=device.is_gpu):
                for is_away in places:
                    pair = ModelPair(entry, way, drafting, context, device, is_away, bytes_per_second)
                    if (
                        context <= entry.architecture.max_position_embeddings
                        and pair.memory_plan.total_bytes <= _memory_budget(device)
                    ):
                        found = True
                        yield replace(pair, worth=_score(pair, requirements))
                        break
        if found:
            return


def _quant_formats(entry: CatalogEntry, device: Device, cpu_features: Sequence[str]) -> Iterator[str]:
    """How its weights can be held here, the most faithful first."""
    is_dense = entry.architecture.family in LLAMA_LIKE_FAMILIES
    yield "bf16" if device.is_gpu or "BF16" in cpu_features else "float32"
    if is_dense and (device.is_gpu or "VNNI" in cpu_features):
        yield "int8"
    if is_dense and device.is_gpu:
        yield "nf4-double"


def _drafter_choices(entry: CatalogEntry, quant_format: str, *, on_gpu: bool) -> Iterator[DrafterChoice]:
    """Who could draft for it: its first head, its drafts, nobody."""
    if entry.heads:
        head = entry.heads[0]
        yield DrafterChoice(
            head.kind, head.id, QuantizedModel(head_architecture(entry.id, head.kind), "bf16"), head.language
        )
    for name in entry.draft_models:
        yield DrafterChoice(
            "draft",
            name,
            QuantizedModel(catalog()[name].architecture, drafter_quant_format(quant_format, on_gpu=on_gpu)),
        )
    yield DrafterChoice()


def _score(pair: ModelPair, requirements: PairRequirements) -> float:
    """How good an answer is expected to be, and how soon: billions of parameters, weighed."""
    entry = pair.entry
    wanted = "code" if requirements.purpose == "edit" else requirements.purpose
    made_for = 1.0 if entry.purposes[0] == wanted else SECONDARY_PURPOSE_FACTOR if wanted in entry.purposes else 0.0
    worth = (
        sqrt(entry.architecture.parameters * entry.active_parameters)
        / 1e9
        * FORMAT_QUALITY[pair.quant_format]
        * made_for
    )
    worth *= YEARLY_IMPROVEMENT ** (entry.year - BASE_YEAR) * (GATED_FACTOR if entry.is_gated else 1.0)
    worth *= 1.0 if requirements.purpose == "edit" and not pair.drafter.kind else DRAFTER_FACTOR[pair.drafter.kind]
    worth *= 1.0 if pair.drafter.kind != "draft" or _draft_share(pair) <= MAX_DRAFT_SHARE else OVERSIZED_DRAFT_FACTOR
    worth *= SINGLE_LANGUAGE_FACTOR if pair.drafter.language else 1.0
    worth *= CPU_EMBEDDING_FACTOR if pair.embeddings_on_cpu else 1.0
    speed = pair.plain_tokens_per_second
    return worth if speed is None else worth * min(1.0, speed / READING_TOKENS_PER_SECOND) ** 2
