"""A recommended pair in words: its reasons, its speed, the command that downloads it, and the profile that uses it.

Chooses nothing. A line about speed says whether its number was measured here or is an estimate.
"""

import json
from collections.abc import Iterator
from math import ceil
from typing import Any

from specchat.hub.gpu_bandwidth import gpu_bandwidth
from specchat.hub.machine import Device
from specchat.hub.measured_passes import MeasuredPasses, measured_passes
from specchat.hub.memory_plan import GIB, QUANTIZED_FORMATS
from specchat.hub.pairing import catalog_member, pair_warnings
from specchat.hub.recommend import READING_TOKENS_PER_SECOND, ModelPair, format_gib
from specchat.profile import Limits, Models
from specchat.profile.validation import key_info

ROW_COST = 0.1  # of a plain pass, for each draft token that it verifies, as the chooser assumes before it measures


def describe_device(device: Device) -> str:
    return f"{device.name}: {device.free_bytes / GIB:.1f} of {device.total_bytes / GIB:.1f} GiB free"


def describe_pair(pair: ModelPair) -> Iterator[str]:
    """A pair in one line, and the reasons below it."""
    yield f"{pair.entry.id} ({pair.quant_format}) with {pair.drafter_name}"
    measured = measured_passes(pair.entry.id, pair.quant_format, pair.device)
    yield from (f"    {line}" for line in reasons(pair, measured))
    yield f"    licence: {pair.entry.licence}"


def pull_command(pair: ModelPair) -> str:
    drafter = f" --draft {pair.separate_drafter_id}" if pair.separate_drafter_id else ""
    return f"specchat models pull {pair.entry.id}{drafter}"


def reasons(pair: ModelPair, measured: MeasuredPasses | None = None) -> Iterator[str]:
    architecture, memory = pair.entry.architecture, pair.memory_plan
    yield f"{architecture.parameters / 1e9:.1f} B parameters in {pair.quant_format}: {format_gib(memory.weight_bytes)}"
    match pair.drafter.kind:
        case "":
            yield "no draft model or head: the drafters lookup and suffix copy from the text, which takes no memory"
        case "draft":
            size = format_gib(memory.drafter_bytes)
            yield f"draft model {pair.drafter.id}: {size}, {pair.draft_share:.0%} of the target"
            target = catalog_member(pair.entry.id, architecture, pair.entry.token_family)
            draft = catalog_member(pair.drafter.id, pair.drafter_architecture, pair.entry.token_family)
            yield from (f"warning: {line}" for line in pair_warnings(draft, target, kind=pair.device.kind))
        case kind:
            layers, language = pair.drafter_architecture.layers, pair.drafter.language
            size = f"{format_gib(memory.drafter_bytes)}, {layers} layer{'s' * (layers > 1)}"
            name = "in its own checkpoint" if not pair.separate_drafter_id else pair.drafter.id
            yield f"{kind} head {name}: {size}{f', trained on {language}' * bool(language)}"
    kv_cache, workspace = format_gib(memory.kv_cache_bytes), format_gib(memory.workspace_bytes)
    yield f"KV cache of {pair.context_tokens} tokens: {kv_cache}; workspace {workspace}"
    available = format_gib(pair.memory_budget)
    reserve = "the display" if pair.device.is_gpu else "other programs"
    tight = " (tight)" * pair.is_memory_tight
    yield f"total {format_gib(memory.total_bytes)} of {available}{tight}; the rest is a reserve for {reserve}"
    if memory.total_bytes > pair.device.free_bytes:
        free = format_gib(pair.device.free_bytes)
        yield f"warning: only {free} are free now; end other programs before it is loaded, or choose a smaller model"
    if pair.entry.is_gated:
        yield f"gated: accept its licence ({pair.entry.licence}) on the hub first"
    yield from speed_lines(pair, measured)


def speed_lines(pair: ModelPair, measured: MeasuredPasses | None = None) -> Iterator[str]:
    """Tokens per second without and with the drafter. Each line says whether its number was measured here."""
    if measured is not None:
        plain, source = 1 / measured.plain_seconds, "measured on this machine"
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
    plain, drafts = measured.plain_seconds, measured.drafts.get(pair.drafter.kind)
    draft_seconds = drafts.seconds_at(depth) if drafts else None
    draft_cost = depth * pair.draft_cost if draft_seconds is None else draft_seconds / plain
    return draft_cost + (measured.passes.seconds_at(depth + 1) or plain) / plain


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
            lines += [known[key].comment, f"{key} = {json.dumps(value)}"]
    return "\n".join(lines) + "\n"


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
    if not pair.device.is_gpu:
        keys["device"] = "cpu"
    return keys


def _description(pair: ModelPair) -> str:
    drafter = f" with {pair.drafter_name.rpartition('/')[2]}" if pair.drafter.kind else ""
    return f"{pair.entry.name} ({pair.quant_format}){drafter}, {format_gib(pair.memory_plan.total_bytes)}"
