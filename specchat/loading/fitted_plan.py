"""A load plan that fits the memory of its device: what gives way, in which order and at which price.

Nothing changes where a plan fits. Else its parts give way in the order of `_steps`, the ones first that cost the user
least, and what need not give way comes back. A format or a place that a person chose stays. What cannot fit is refused
with what would fit, before a byte of the weights is read. Reads headers only, and imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from specchat.devices import CPU, CUDA, GGUF_FORMAT, DeviceKind, kind_of
from specchat.errors import ModelError
from specchat.hub.architecture import EXPERT, Architecture
from specchat.hub.machine import Device, Machine, gpu_bandwidth, kept_bandwidth
from specchat.hub.memory_plan import (
    QuantizedModel,
    can_quantize,
    can_split,
    has_own_passes,
    lacks_quantizer,
    layer_bytes,
    weight_bytes,
)
from specchat.hub.recommend import (
    DEFAULT_BYTES_PER_SECOND,
    DEFAULT_CONTEXT_TOKENS,
    FITS,
    GPU_BANDWIDTH_SHARES,
    SHORT_CONTEXT_TOKENS,
    TIGHT,
    format_gib,
    recommend,
)
from specchat.loading.load_plan import ComputeFeatures, Fetch, LoadPlan, ModelPlan, plan_load
from specchat.profile.keys import AUTO, Models, Profile
from specchat.weights.load_options import KEPT_FORMATS

MAX_MAPPED_SHARE = 1.5  # of the free memory, for what a token reads of weights on the disk: more would take minutes


@dataclass(frozen=True)
class _Step:
    """One part that gives way, and what that means for the user."""

    text: str
    apply: Callable[[LoadPlan], LoadPlan]
    is_last: bool = False  # applied after all others, because it depends on what they have changed


def plan_for_machine(profile: Profile, machine: Machine) -> LoadPlan:
    """What would be loaded on this machine, with what is free there now. Downloads nothing."""
    return plan_that_fits(profile, ComputeFeatures.of_machine(machine), machine.devices_of)


def plan_that_fits(
    profile: Profile,
    features: ComputeFeatures,
    devices_of: Callable[[str], Sequence[Device]],
    fetch: Fetch | None = None,
) -> LoadPlan:
    """The load plan of a profile, which fits what is free on its device and others of its kind, or has a `refusal`.

    With `fetch`, ModelError for a known model that does not fit, before it is downloaded.
    """
    plan = plan_load(profile, features)
    machine = Machine((*devices_of(plan.target.options.device), *devices_of(CPU.name)))
    fitted = fit_plan(plan, profile.models, machine)
    if fetch is None:
        return fitted
    fitted.check()
    return fit_plan(plan_load(profile, features, fetch), profile.models, machine)


def fit_plan(plan: LoadPlan, models: Models, machine: Machine) -> LoadPlan:
    """The plan as it is where it fits or nothing is known of its sizes; else with what must give way, or refused."""
    try:
        if fault := _place_fault(plan, models.place, machine):
            return replace(plan, refusal=fault)
        if plan.memory() is None or _fits(plan, machine, (FITS, TIGHT)):
            return plan
    except ModelError:  # of a damaged file: loading reads it and says what is wrong
        return plan
    taken = _fewest_steps(plan, models, machine)
    if taken is None:
        return replace(plan, refusal=_refusal(plan, models, machine))
    fitted, device = _after(plan, taken), machine.device_of(plan.target.options.device)
    changes = ", ".join(step.text for step in taken)
    sizes = f"{_total(fitted)} instead of {_total(plan)}, and {format_gib(device.free_bytes)} are free"
    return replace(fitted, given_way=f"so that it fits {device.name}: {changes}; it takes {sizes}")


def _place_fault(plan: LoadPlan, place: str, machine: Machine) -> str:
    """Why so many layers cannot be elsewhere; "" where they can, or nothing is known of the target."""
    target, options = plan.target, plan.target.options
    if not options.places or (sizes := target.architecture()) is None:
        return ""
    if not can_split(sizes, kind_of(options.device)):
        return f"{target.source}: its layers cannot be on several devices; use --place none"
    if len(options.gpu_layers) >= (count := len(machine.devices_of(options.device))):
        found = f"here {'is' if count == 1 else 'are'} {count}, and cuda:1 is the second one"
        return f"{target.source}: --place {place} names a GPU that torch does not find: {found}"
    if sum(count for _device, count in options.places) < sizes.layers:
        return ""
    has = f"it has {sizes.layers} layers, and --place {place} leaves none for the first GPU"
    return f"{target.source}: {has}; place {sizes.layers - 1} or fewer elsewhere"


def _fewest_steps(plan: LoadPlan, models: Models, machine: Machine) -> list[_Step] | None:
    """The first steps after which the plan fits, without those that are not needed beside the later ones."""
    for splits, labels in product((False, True), ((FITS,), (FITS, TIGHT))):
        taken = list[_Step]()
        for step in _steps(plan, models, machine, splits=splits):
            taken.append(step)
            if _fits(_after(plan, taken), machine, labels):
                for earlier in reversed(taken[:-1]):
                    others = [each for each in taken if each is not earlier]
                    taken = others if _fits(_after(plan, others), machine, labels) else taken
                return taken
    return None


def _steps(plan: LoadPlan, models: Models, machine: Machine, *, splits: bool) -> Iterator[_Step]:
    """What can give way, the least price first. Where it `splits` layers, passes are slow, and drafters go last."""
    target, kind = plan.target, kind_of(plan.target.options.device)
    draft, sizes = plan.draft if plan.is_draft_beside_target else None, target.architecture()
    if models.place == AUTO and sizes is not None and can_split(sizes, kind):
        yield from _gpu_steps(target, machine)
    if draft is not None and models.draft_weights == AUTO:
        for name in _smaller_formats(draft, kind):
            yield _Step(f"{name} weights of the draft", partial(_with_draft_format, quant_format=name))
    yield from _context_steps(plan, DEFAULT_CONTEXT_TOKENS)
    formats = list(_smaller_formats(target, kind)) if models.weights == AUTO else []
    for name in formats:
        text = f"{name} weights instead of {target.memory_format} (another text{_pass_price(target, name, kind)})"
        yield _Step(text, partial(_with_target, quant_format=name))
    yield from _context_steps(plan, SHORT_CONTEXT_TOKENS)
    drafters = list[_Step]()
    if draft is not None:
        drafters.append(_Step("no draft model (fewer draft tokens)", lambda each: replace(each, draft=None)))
    if plan.heads:
        drafters.append(_Step("no heads (fewer draft tokens)", lambda each: replace(each, heads=())))
    yield from drafters if not splits else ()
    if sizes is None:
        return
    # tied embeddings are the output matrix of every pass, so they stay on the device
    if models.embedding_device == AUTO and kind.is_gpu and not sizes.is_tied and has_own_passes(sizes, kind):
        yield _Step("the embedding on the CPU (slower passes)", partial(_with_target, embedding_device="cpu"))
    if splits and models.place == AUTO and can_split(sizes, kind) and not kind.shares_main_memory:
        smallest = target.with_options(quant_format=formats[-1]) if formats else target
        yield from _layer_steps(smallest, sizes, machine)
        yield from drafters
    yield from _disk_steps(target, sizes, (*formats, models.weights), machine)


def _gpu_steps(target: ModelPlan, machine: Machine) -> Iterator[_Step]:
    """One more GPU. Passes read as many bytes as on one, and copy hidden states."""
    gpus = machine.devices_of(target.options.device) if kind_of(target.options.device).has_graphs else ()
    for count in range(2, 1 + len(gpus)):
        yield _Step(f"layers split over {count} GPUs", partial(_spread, machine=machine, count=count), is_last=True)


def _disk_steps(target: ModelPlan, sizes: Architecture, formats: Sequence[str], machine: Machine) -> Iterator[_Step]:
    """Weights that stay on the disk, those of a GGUF file as they are, where a token reads few enough of them."""
    kind, is_as_in_file = kind_of(target.options.device), target.options.quant_format == GGUF_FORMAT
    kept = [target.memory_format] if is_as_in_file else [each for each in formats if each in KEPT_FORMATS]
    if kind.is_gpu or not has_own_passes(sizes, kind) or not kept:
        return
    experts = replace(sizes, matrices=tuple(each for each in sizes.matrices if each.kind == EXPERT))
    idle_bytes = (1 - sizes.expert_share) * weight_bytes(experts, kept[-1])
    read_bytes = QuantizedModel(sizes, kept[-1]).weight_bytes(kind=kind) - idle_bytes
    if read_bytes <= MAX_MAPPED_SHARE * machine.cpu.free_bytes:
        text = "weights that stay on the disk, because the memory does not hold them (very slow: a token reads"
        yield _Step(f"{text} {format_gib(read_bytes)})", partial(_with_target, maps_weights=True))


def _context_steps(plan: LoadPlan, shortest: int) -> Iterator[_Step]:
    """The context, halved again and again, down to this one."""
    tokens = plan.context_tokens
    while tokens > shortest:
        tokens = max(tokens // 2, shortest)
        text = f"a context of {tokens} tokens instead of {plan.context_tokens}"
        yield _Step(text, lambda each, tokens=tokens: each.with_context(tokens))


def _layer_steps(target: ModelPlan, sizes: Architecture, machine: Machine) -> Iterator[_Step]:
    """One more of the first layers in main memory, with what a pass takes then.

    CPU and GPU read their weights with about the same share of their bandwidth.
    """
    gpu = gpu_bandwidth(machine.device_of(target.options.device))
    slower = gpu.bytes_per_second / (kept_bandwidth() or DEFAULT_BYTES_PER_SECOND) if gpu else None
    there, here = (layer_bytes(sizes, each) for each in (target.memory_format, target.cpu_memory_format))
    all_layers = sizes.layers * weight_bytes(sizes, target.memory_format)
    experts = " with their experts" if sizes.parameters_of_kind(EXPERT) else ""
    for count in range(1, sizes.layers):
        times = 1 + count * (here * slower - there) / all_layers if slower else None
        price = f"about {times:.1f} times the time of a pass" if times else "slower passes"
        text = f"the first {count} of {sizes.layers} layers{experts} in main memory ({price})"
        yield _Step(text, partial(_with_target, cpu_layers=count))


def _spread(plan: LoadPlan, machine: Machine, count: int) -> LoadPlan:
    """The layers that are not in main memory over so many GPUs, so that each is filled to about the same share."""
    target, sizes = plan.target, plan.target.architecture()
    gpus = machine.devices_of(target.options.device)[:count]
    whole, split = (_with_target(plan, gpu_layers=(each,) * (count - 1)).memory() for each in (0, 1))
    if sizes is None or whole is None or split is None or (layers := sizes.layers - target.options.cpu_layers) < 2:
        return plan
    of_layer = (whole.total_bytes - split.total_bytes) / (count - 1)
    needed = [whole.total_bytes - (layers - 1) * of_layer, *(each - of_layer for each in split.other_gpu_bytes)]
    counts = [0] * count
    for _ in range(layers - 1):  # the first GPU computes the output, and has one layer at least
        shares = [(bytes_ + of_layer) / max(gpu.free_bytes, 1) for bytes_, gpu in zip(needed, gpus, strict=True)]
        emptiest = shares.index(min(shares))
        counts[emptiest], needed[emptiest] = counts[emptiest] + 1, needed[emptiest] + of_layer
    return _with_target(plan, gpu_layers=tuple(counts[1:]))


def _smaller_formats(model: ModelPlan, kind: DeviceKind) -> Iterator[str]:
    """The formats with fewer bytes than that of the plan, the most precise first."""
    sizes = model.architecture()
    if sizes is None or not can_quantize(sizes, kind) or lacks_quantizer(sizes, kind):
        return
    planned = weight_bytes(sizes, model.memory_format)
    yield from (each for each in KEPT_FORMATS if each in kind.weight_formats and weight_bytes(sizes, each) < planned)


def _pass_price(model: ModelPlan, quant_format: str, kind: DeviceKind) -> str:
    """The time of a pass by that in bf16, from the shares of the bandwidth that formats reached where measured."""
    if kind is not CUDA or (sizes := model.architecture()) is None:
        return ""
    shares = {**GPU_BANDWIDTH_SHARES, "nf4": GPU_BANDWIDTH_SHARES["nf4-double"]}
    before, after = (weight_bytes(sizes, each) / shares[each] for each in ("bf16", quant_format))
    return f", {after / before:.1f} times the time of a pass in bf16"


def _with_target(plan: LoadPlan, **options: Any) -> LoadPlan:
    return replace(plan, target=plan.target.with_options(**options))


def _with_draft_format(plan: LoadPlan, quant_format: str) -> LoadPlan:
    return replace(plan, draft=plan.draft.with_options(quant_format=quant_format) if plan.draft else None)


def _after(plan: LoadPlan, steps: Sequence[_Step]) -> LoadPlan:
    for step in sorted(steps, key=lambda each: each.is_last):
        plan = step.apply(plan)
    return plan


def _fits(plan: LoadPlan, machine: Machine, labels: Sequence[str]) -> bool:
    fit = plan.fit(machine)
    return fit is not None and fit.label in labels


def _total(plan: LoadPlan) -> str:
    if (memory := plan.memory()) is None:
        return format_gib(0)
    beside = f" and {format_gib(memory.main_memory_bytes)} of main memory" if memory.main_memory_bytes else ""
    if others := sum(memory.other_gpu_bytes):
        beside = f" and {format_gib(others)} on other GPUs{beside}"
    return f"{format_gib(memory.total_bytes)}{beside}"


def _refusal(plan: LoadPlan, models: Models, machine: Machine) -> str:
    """What does not fit, and what would: this model without the settings that keep it large, else another one."""
    target, device = plan.target, machine.device_of(plan.target.options.device)
    free = f"{format_gib(device.free_bytes)} are free on {device.name}"
    reason = f"{target.source}: does not fit: it takes {_total(plan)} with {target.memory_format} weights, and {free}"
    if (taken := _fewest_steps(plan, Models(models.target), machine)) is not None:
        fitted = _after(plan, taken)
        return f"{reason}; {_total(fitted)} with {', '.join(step.text for step in taken)}, which the settings exclude"
    smaller = next((each for each in recommend(device) if each.memory_plan.total_bytes <= device.free_bytes), None)
    named = f"; {smaller.entry.id} fits" if smaller else ""
    return f"{reason}{named}; 'specchat models recommend' names models that fit"
