"""The plan of loading a profile: every model, head, device, dtype and weight format, resolved before loading.

`fitted_plan` makes it fit the memory. `load_engine` loads exactly that; `--dry-run` and `specchat doctor` print it.
A draft model or a head that does not fit the target is left out, by their config.json and tokenizer.json. Whatever
these leave open counts as a fit, and so does a folder that is not on this disk: loading reads the tensors and reports
what is wrong with them. Imports no torch.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from specchat.devices import CPU, FLOAT_FORMAT, GGUF_FORMAT, INT8_KV, kind_of, missing_triton, resolve_device
from specchat.errors import ModelError
from specchat.hub.architecture import FLOAT_FORMATS, Architecture
from specchat.hub.catalog import find_entry, head_parameters
from specchat.hub.draft_on_disk import draft_on_disk
from specchat.hub.find_models import HEAD_ROLE, find_local_model
from specchat.hub.machine import Device, Machine
from specchat.hub.memory_plan import (
    BF16_BYTES,
    KEPT_CHECKPOINTS,
    STORAGE_FORMATS,
    MemoryPlan,
    QuantizedModel,
    can_quantize,
    keeps_blocks,
    plan_memory,
)
from specchat.hub.recommend import FITS, TIGHT, TOO_LARGE, fit_label, format_gib
from specchat.hub.safetensors_headers import own_head_bytes, read_architecture
from specchat.paths import read_json_object, read_text_config
from specchat.profile.keys import AUTO, Models, Profile
from specchat.profile.shipped_drafters import with_shipped_drafters
from specchat.weights.gguf.gguf_file import read_gguf, shard_paths, size_and_time
from specchat.weights.gguf.gguf_heads import has_drafting_layer
from specchat.weights.gguf.gguf_manifest import GgufManifest
from specchat.weights.gguf.gguf_sources import local_gguf
from specchat.weights.load_options import STORED_DTYPE, LoadOptions, cpu_format, resolve_dtype

Fetch = Callable[[str, str], Path]  # source and role → the folder of a model
RECOMMEND_HINT = "'specchat models recommend' names drafters that fit"
EMBEDDED_HEADS = ("embedded/eagle3", "embedded/mtp")


@dataclass(frozen=True)
class ComputeFeatures:
    default_device: str  # what "auto" means
    has_cpu_bf16: bool
    has_fast_gguf_blocks: bool = False  # the CPU multiplies them faster than floats

    @classmethod
    def of_machine(cls, machine: Machine) -> ComputeFeatures:
        features = machine.cpu_features
        return cls(machine.best_device.kind.name, "BF16" in features, "AVX2" in features)


@dataclass(frozen=True)
class ModelPlan:
    source: str  # as in the profile
    folder: Path | None  # None: not on this disk, or a GGUF file that is not prepared yet
    options: LoadOptions  # device and dtype are resolved
    gguf: Path | None = None  # the file that the folder is made from, and that has the weights

    @property
    def is_local(self) -> bool:
        """Whether it is on this disk."""
        return self.folder is not None or self.gguf is not None

    @property
    def files(self) -> tuple[Path, ...]:
        """Those that hold the weights."""
        return shard_paths(self.gguf) if self.gguf else tuple(self.folder.glob("*.safetensors") if self.folder else ())

    @property
    def stored_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files)

    def architecture(self) -> Architecture | None:
        """Its sizes; those of the catalog when it is not on this disk, and None for one that is not known."""
        if (path := self.gguf or self.folder) is not None:
            return _read_once(path, tuple(map(size_and_time, self.files)))
        entry = find_entry(self.source)
        return entry.architecture if entry else None

    def with_options(self, **values: Any) -> ModelPlan:
        """The same model, loaded with these of `LoadOptions`."""
        return replace(self, options=replace(self.options, **values))

    @property
    def memory_format(self) -> str:
        """The format of its weights in memory, in the terms of `hub.memory_plan`."""
        if self.options.quant_format == FLOAT_FORMAT and (stored := self._kept_format()):
            return stored
        if self.options.quant_format == GGUF_FORMAT and self.gguf and self.options.device == "cpu":
            name = read_gguf(self.gguf).quantization
            return next((f"gguf{bits}" for bits in "456" if f"Q{bits}" in name), "gguf8")
        known = self.architecture() if self.options.quant_format == GGUF_FORMAT else None
        if known is not None and keeps_blocks(known, kind_of(self.options.device)):
            return GGUF_FORMAT
        if self.options.quant_format not in (FLOAT_FORMAT, GGUF_FORMAT):
            return self.options.quant_format
        return "float32" if self.options.dtype == "float32" else "bf16"

    @property
    def cpu_memory_format(self) -> str:
        """That of its layers in main memory beside a GPU."""
        return self.with_options(device=CPU.name, quant_format=cpu_format(self.options.quant_format)).memory_format

    def _kept_format(self) -> str:
        """The format that the weights are published in, where passes compute with it; "" for floats."""
        sizes = self.architecture()
        if sizes is None or sizes.stored_format in FLOAT_FORMATS:
            return ""
        if can_quantize(sizes, kind := kind_of(self.options.device)):  # our own passes read it
            return KEPT_CHECKPOINTS.get(sizes.stored_format, "") if kind.has_kernels else ""
        return sizes.stored_format if sizes.stored_format in STORAGE_FORMATS else ""

    def describe(self) -> str:
        options = self.options
        dtype = "stored dtype" if options.dtype == STORED_DTYPE else options.dtype
        weights = "" if options.quant_format == FLOAT_FORMAT else f"{options.quant_format} weights, "
        kv_cache = "" if options.kv_cache == FLOAT_FORMAT else f", {options.kv_cache} KV cache"
        named = [f"{count} layers {'in main memory' if on == CPU.name else f'on {on}'}" for on, count in options.places]
        layers = f", the first {', the next '.join(named)}" if named else ""
        place = f"{_location(self.source, self.gguf)} (GGUF)" if self.gguf else _location(self.source, self.folder)
        return f"{place}: {weights}{dtype} on {options.device}{layers}{kv_cache}"


@dataclass(frozen=True)
class HeadPlan:
    source: str
    path: Path | None  # folder or file, of a GGUF file what was prepared from it; None: not on this disk
    is_in_target: bool = False  # layers for multi-token prediction in the files of the target
    is_named: bool = True  # by the user or the catalog; else it was found in the target's file

    @property
    def files(self) -> tuple[Path, ...]:
        if self.path is None or self.path.is_file():
            return (self.path,) if self.path else ()
        manifest = GgufManifest.from_folder(self.path)
        return tuple(each.path for each in manifest.files) if manifest else tuple(self.path.glob("*.safetensors"))

    @property
    def stored_bytes(self) -> int:
        """Those of its files; as published when it is not on this disk."""
        if self.path is None:
            return BF16_BYTES * head_parameters(self.source)
        has_more = self.is_in_target or GgufManifest.from_folder(self.path) is not None
        return own_head_bytes(self.path) if has_more else sum(file.stat().st_size for file in self.files)

    def describe(self) -> str:
        location = _location(self.source, self.path)
        return (
            f"a layer in the target's file, for multi-token prediction: {location}" if self.is_in_target else location
        )


@dataclass(frozen=True)
class LeftOutDrafter:
    """A draft model or a head of the profile that does not fit the target, so it is not loaded."""

    role: str  # draft or head
    source: str
    reason: str
    alternative: str  # what would fit

    def describe(self) -> str:
        """One line: source, reason and what to use instead."""
        return f"{self.source} is left out: {self.reason}; {self.alternative}"


@dataclass(frozen=True)
class PlanLine:
    role: str
    text: str
    is_local: bool = True
    is_left_out: bool = False


@dataclass(frozen=True)
class MemoryFit:
    """The memory that models take, and the device that is to hold them, with what is for the first layers."""

    memory: MemoryPlan
    device: Device
    main_memory: Device
    other_gpus: tuple[Device, ...] = ()

    @property
    def needs(self) -> list[tuple[int, Device]]:
        """The bytes on each device."""
        others = zip(self.memory.other_gpu_bytes, self.other_gpus, strict=False)
        return [(self.memory.total_bytes, self.device), *others, (self.memory.main_memory_bytes, self.main_memory)]

    @property
    def label(self) -> str:
        labels = (fit_label(needed, device.free_bytes) for needed, device in self.needs if needed)
        return max(labels, key=(FITS, TIGHT, TOO_LARGE).index)

    def describe(self) -> str:
        memory, words = self.memory, {FITS: "fits", TIGHT: "fits tightly", TOO_LARGE: "does not fit"}
        free, beside = f"{format_gib(self.device.free_bytes)} are free on {self.device.name}", ""
        for number, (needed, gpu) in enumerate(self.needs[1:-1], 1):
            beside += f", {format_gib(needed)} on {gpu.kind.name}:{number}" if needed else ""
            free += f", {format_gib(gpu.free_bytes)} on {gpu.kind.name}:{number}" if needed else ""
        if memory.main_memory_bytes:
            beside = f", {format_gib(memory.main_memory_bytes)} in main memory"
            free = f"{free} and {format_gib(self.main_memory.free_bytes)} there"
        return (
            f"{format_gib(memory.total_bytes)}: weights {format_gib(memory.weight_bytes)}, drafter "
            f"{format_gib(memory.drafter_bytes)}, KV cache {format_gib(memory.kv_cache_bytes)}, workspace "
            f"{format_gib(memory.workspace_bytes)}{beside}; {words[self.label]}, {free}"
        )


@dataclass(frozen=True)
class LoadPlan:
    target: ModelPlan
    draft: ModelPlan | None
    heads: tuple[HeadPlan, ...]
    context_tokens: int
    left_out: tuple[LeftOutDrafter, ...] = ()
    may_offer_draft: bool = False  # there is no drafter to load, and the user has not said that there be none
    given_way: str = ""  # what `fitted_plan` changed so that it fits; "" for nothing
    refusal: str = ""  # why it cannot be loaded: it does not fit; "" when it can

    def check(self) -> None:
        """ModelError when it cannot be loaded."""
        if self.refusal:
            raise ModelError(self.refusal)

    def with_context(self, tokens: int) -> LoadPlan:
        """The same plan for conversations of at most so many tokens."""
        draft = self.draft.with_options(context_window=tokens) if self.draft else None
        target = self.target.with_options(context_window=tokens)
        return replace(self, target=target, draft=draft, context_tokens=tokens)

    @property
    def is_draft_beside_target(self) -> bool:
        """Whether there is a draft model that takes memory of the target's device."""
        return self.draft is not None and kind_of(self.draft.options.device) is kind_of(self.target.options.device)

    @property
    def files(self) -> tuple[Path, ...]:
        """The weights of all models."""
        return tuple(file for each in (self.target, self.draft, *self.heads) if each for file in each.files)

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know about this plan: a line for everything that is left out, and what gave way."""
        return (*(f"{each.role} {each.describe()}" for each in self.left_out), *filter(None, [self.given_way]))

    def offered_draft(self) -> str:
        """One line about a smaller model on this disk that could draft, "" for none; vocabularies are read for it."""
        path = self.target.gguf or self.target.folder
        may_offer = self.may_offer_draft and not (self.refusal or self.given_way)
        name = draft_on_disk(path) if may_offer and path is not None else None
        if name is None:
            return ""
        option = f"--draft {shlex.quote(name)}"
        return f"{name} is on this disk, has the same tokens and can draft: {option} takes it, --draft '' offers none"

    def lines(self) -> Iterator[PlanLine]:
        yield PlanLine("target", self.target.describe(), self.target.is_local)
        if self.draft is not None:
            yield PlanLine("draft", self.draft.describe(), self.draft.is_local)
        yield from (PlanLine("head", head.describe(), head.path is not None) for head in self.heads)
        yield from (PlanLine(each.role, each.describe(), is_left_out=True) for each in self.left_out)

    def memory(self) -> MemoryPlan | None:
        """The memory of all models with a full context; None if the sizes of the target are not known."""
        target, draft = self.target.architecture(), None
        if target is None:
            return None
        if self.is_draft_beside_target and self.draft and (architecture := self.draft.architecture()) is not None:
            draft = QuantizedModel(architecture, self.draft.memory_format)
        kind = kind_of(self.target.options.device)
        options = self.target.options
        on_cpu, has_int8_kv = options.embedding_device == "cpu", options.kv_cache == INT8_KV
        quantized = QuantizedModel(
            target, self.target.memory_format, on_cpu, has_int8_kv, options.maps_weights, options.cpu_layers,
            self.target.cpu_memory_format, options.gpu_layers,
        )  # fmt: skip
        tokens = min(self.context_tokens, target.max_position_embeddings or self.context_tokens)
        memory = plan_memory(quantized, draft, tokens, kind=kind)
        return replace(memory, drafter_bytes=memory.drafter_bytes + sum(head.stored_bytes for head in self.heads))

    def fit(self, machine: Machine) -> MemoryFit | None:
        """The memory beside what is free for it on this machine; None if the sizes of the target are not known."""
        memory = self.memory()
        device, *others = machine.devices_of(self.target.options.device)
        return MemoryFit(memory, device, machine.cpu, tuple(others)) if memory else None

    def text(self, machine: Machine) -> str:
        rows = [f"{line.role:<8}{line.text}" for line in self.lines()]
        if offered := self.offered_draft():
            rows.append(f"{'draft':<8}{offered}")
        rows.append(f"{'context':<8}{self.context_tokens} tokens")
        if fit := self.fit(machine):
            rows.append(f"{'memory':<8}{fit.describe()}")
        rows += [f"{role:<8}{line}" for role, line in (("fitted", self.given_way), ("refused", self.refusal)) if line]
        return "\n".join(rows)


@lru_cache(maxsize=8)
def _read_once(path: Path, _files: tuple[tuple[int, int], ...]) -> Architecture:
    """Read headers; sizes and modification times are part of the cache key."""
    return read_architecture(path)


def plan_load(profile: Profile, features: ComputeFeatures, fetch: Fetch | None = None) -> LoadPlan:
    """Resolve a profile. With `fetch`, missing models are downloaded and prepared; else their folder is None."""
    has_choice, uses_own_head = profile.models.draft == AUTO, AUTO in profile.models.heads
    profile = replace(profile, models=with_shipped_drafters(profile.models))
    models = profile.models
    if models.is_on_server:
        raise ModelError(
            f"profile {profile.name!r} uses a server; this command loads the model here, so choose another --profile"
        )
    find: Callable[[str, str], Path | None] = fetch or find_local_model
    folder = find(models.target, "target")
    target = ModelPlan(models.target, folder, _target_options(profile, folder, features), local_gguf(models.target))
    draft = _plan_draft(profile, folder, features, find)
    heads = [*_plan_heads(models, folder, find)]
    if uses_own_head and target.gguf and folder and has_drafting_layer(read_text_config(folder)):
        heads.append(HeadPlan(models.target, folder, is_in_target=True, is_named=False))
    left_out = tuple(each for each in (draft, *heads) if isinstance(each, LeftOutDrafter))
    planned_draft = draft if isinstance(draft, ModelPlan) else None
    planned_heads = tuple(each for each in heads if isinstance(each, HeadPlan))
    may_offer = has_choice and not planned_heads and planned_draft is None
    return LoadPlan(target, planned_draft, planned_heads, profile.limits.context, left_out, may_offer)


def check_named_drafters(profile: Profile, *, names_draft: bool, names_heads: bool) -> None:
    """ModelError when a draft or a head that the user has named for this target does not fit it."""
    if profile.models.is_on_server or not (names_draft or names_heads):
        return
    target, heads = profile.models.target, profile.models.heads
    if names_heads and "embedded" in heads and target != "embedded":
        raise ModelError(f"head embedded does not fit {target}: it is for the embedded target; leave --head out")
    for each in plan_load(profile, ComputeFeatures(CPU.name, has_cpu_bf16=False)).left_out:
        if names_draft if each.role == "draft" else names_heads:
            raise ModelError(
                f"{each.role} {each.source} does not fit {target}: {each.reason}; {each.alternative}, or leave "
                f"--{each.role} out"
            )


def _plan_draft(
    profile: Profile, target: Path | None, features: ComputeFeatures, find: Callable[[str, str], Path | None]
) -> ModelPlan | LeftOutDrafter | None:
    """The draft model. One that the user chose may have other tokens, for a plugin, not the embedded one."""
    source = profile.models.draft
    if not source:
        return None
    folder = find(source, "draft")
    if source == "embedded" and (reason := embedded_draft_mismatch(target, folder)):
        return LeftOutDrafter("draft", source, reason, drafters_that_fit(profile.models.target))
    return ModelPlan(source, folder, _draft_options(profile, folder, features), local_gguf(source))


def _plan_heads(
    models: Models, target: Path | None, find: Callable[[str, str], Path | None]
) -> Iterator[HeadPlan | LeftOutDrafter]:
    for source in _head_sources(models):
        path = find(source, HEAD_ROLE)
        if reason := head_mismatch(target, path):
            yield LeftOutDrafter("head", source, reason, drafters_that_fit(models.target))
        else:
            yield HeadPlan(source, path, is_in_target=path is not None and path == target)


def _target_options(profile: Profile, folder: Path | None, features: ComputeFeatures) -> LoadOptions:
    models = profile.models
    device = resolve_device(models.device, default=features.default_device)
    return LoadOptions(
        resolve_dtype(models.dtype, folder, device, has_cpu_bf16=features.has_cpu_bf16),
        device,
        profile.limits.context,
        profile.speculation.exact,
        quant_format=_resolve_weights(models, models.weights, local_gguf(models.target), device, features),
        embedding_device=models.embedding_device,
        kv_cache=models.kv_cache,
        cpu_layers=models.cpu_layers if kind_of(device).is_gpu else 0,
        gpu_layers=models.gpu_layers if kind_of(device).has_graphs else (),
    )


def _draft_options(profile: Profile, folder: Path | None, features: ComputeFeatures) -> LoadOptions:
    models = profile.models
    device = models.device if models.draft_device == "auto" else models.draft_device
    device = resolve_device(device, default=features.default_device)
    dtype = resolve_dtype(models.dtype, folder, device, has_cpu_bf16=features.has_cpu_bf16)
    weights = _resolve_weights(models, models.draft_weights, local_gguf(models.draft), device, features)
    return LoadOptions(dtype, device, profile.limits.context, quant_format=weights)


def _resolve_weights(models: Models, weights: str, gguf: Path | None, device: str, features: ComputeFeatures) -> str:
    """The format for `auto`: the blocks of a GGUF file where they are fast, unless the user chose a dtype."""
    if weights != AUTO:
        return weights
    on_gpu = kind_of(device).has_kernels and not missing_triton()
    are_fast = features.has_fast_gguf_blocks if device == "cpu" else on_gpu
    return GGUF_FORMAT if gguf is not None and are_fast and models.dtype == AUTO else FLOAT_FORMAT


def _head_sources(models: Models) -> Iterator[str]:
    for source in models.heads:
        if source != "embedded":
            yield source
        elif models.target == "embedded":
            yield from EMBEDDED_HEADS


def _location(source: str, path: Path | None) -> str:
    if path is None:
        return f"{source} is not on this disk; specchat models pull {source}"
    return str(path) if source == str(path) else f"{source} ({path})"


def embedded_draft_mismatch(target: Path | None, draft: Path | None) -> str:
    """Why the embedded draft model does not fit: it speaks the tokens of the embedded target, and those of a copy."""
    if target is None or draft is None:
        return ""
    ours, theirs = (read_json_object(folder / "tokenizer.json").get("model") for folder in (target, draft))
    return "" if ours == theirs else "its tokens are not those of the target"


def head_mismatch(target: Path | None, head: Path | None) -> str:
    """Why a head was not trained for a target of these sizes; "" when the configs agree."""
    if target is None or head is None:
        return ""
    target_sizes, head_sizes = _sizes(read_text_config(target)), _head_sizes(head)
    for name, size in head_sizes.items():
        if name in target_sizes and size != target_sizes[name]:
            return f"it is for a target with {name} {size}, and this one has {target_sizes[name]}"
    return ""


def drafters_that_fit(target: str) -> str:
    """What to use instead: the published drafters of a target of the catalog, or where to look for one."""
    entry = find_entry(Path(target).name) or find_entry(target)
    published = [*(head.id for head in entry.usable_heads), *entry.draft_models] if entry else []
    return f"{published[0]} fits ('specchat models recommend' names more)" if published else RECOMMEND_HINT


def _head_sizes(head: Path) -> dict[str, int]:
    """The sizes of the target that a head names in its config; heads of other widths have `target_hidden_size`."""
    config = read_json_object((head if head.is_dir() else head.parent) / "config.json")
    layers = config.get("transformer_layer_config")
    sizes = _sizes({**config, **layers} if isinstance(layers, dict) else config)
    if isinstance(width := config.get("target_hidden_size"), int):
        sizes["hidden_size"] = width
    return sizes


def _sizes(config: Mapping[str, Any]) -> dict[str, int]:
    names = ("hidden_size", "vocab_size")
    return {name: config[name] for name in names if isinstance(config.get(name), int)}
