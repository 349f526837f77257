"""A recommended pair in words: two lines, the command that downloads it, and the profile that uses it.

Chooses nothing. A speed says whether it was measured here or is an estimate.
"""

import json
from collections.abc import Iterator
from math import ceil
from typing import Any

from specchat.hub.disk_space import format_bytes
from specchat.hub.machine import Device
from specchat.hub.measured_passes import MeasuredPasses, measured_passes
from specchat.hub.memory_plan import GIB, QUANTIZED_FORMATS
from specchat.hub.pairing import catalog_member, pair_warnings
from specchat.hub.recommend import READING_TOKENS_PER_SECOND, ModelPair, format_gib
from specchat.profile import Limits, Models
from specchat.profile.validation import key_info


def describe_device(device: Device) -> str:
    return f"{device.name}: {device.free_bytes / GIB:.1f} of {device.total_bytes / GIB:.1f} GiB free"


def describe_pair(pair: ModelPair) -> str:
    """Two lines: what it is and what is downloaded; memory and speed. Then one for each warning."""
    return "\n".join(_lines(pair))


def _lines(pair: ModelPair) -> Iterator[str]:
    language = f" trained on {pair.drafter.language}" * bool(pair.drafter.language)
    download = f"about {format_bytes(pair.download_bytes)} to download, licence {pair.entry.licence}"
    yield f"{pair.entry.id} ({pair.quant_format}) with {pair.drafter_name}{language}; {download}"
    tight = " (tight)" * pair.is_memory_tight
    memory = f"{format_gib(pair.memory_plan.total_bytes)} of {format_gib(pair.memory_budget)}{tight}"
    speed = describe_speed(pair, measured_passes(pair.entry.id, pair.quant_format, pair.device))
    yield f"    {memory} with {pair.context_tokens} tokens of context; {speed}"
    yield from (f"    {line}" for line in _warnings(pair))


def pull_command(pair: ModelPair) -> str:
    drafter = f" --draft {pair.separate_drafter_id}" if pair.separate_drafter_id else ""
    return f"specchat models pull {pair.entry.id}{drafter}"


def describe_speed(pair: ModelPair, measured: MeasuredPasses | None = None) -> str:
    """Tokens per second without and with the drafter, and where the numbers are from."""
    plain_seconds = measured.plain_seconds if measured else pair.plain_seconds
    if plain_seconds is None:
        return f"speed: nothing is known of {pair.device.name}; 'specchat bench' measures it"
    plain = 1 / plain_seconds
    source = "measured on this machine" if measured else f"estimated from {pair.bandwidth}"
    slow = ", slower than reading speed" * (plain < READING_TOKENS_PER_SECOND)
    return (
        f"{'' if measured else 'about '}{_rounded(plain)} tokens/s ({source}{slow}), {_speedup(pair, plain, measured)}"
    )


def _speedup(pair: ModelPair, plain: float, measured: MeasuredPasses | None) -> str:
    if not pair.drafter.kind:
        return "more where text repeats"
    tokens = pair.drafter.tokens_per_step
    if measured:
        depth, drafts = ceil(tokens), measured.drafts.get(pair.drafter.kind)
        draft = drafts.seconds_at(depth) if drafts else None
        step = (measured.passes.seconds_at(depth + 1) or 1 / plain) + (
            depth * pair.draft_seconds if draft is None else draft
        )
        seconds = step / tokens if tokens else None
    else:
        seconds = pair.drafted_seconds(1 / plain, pair.draft_seconds)
    if seconds is None:
        return "speed-up by drafts: unknown"
    return f"about {_rounded(1 / seconds)} with drafts" if 1 / seconds > plain else "no gain expected by drafts"


def _rounded(speed: float) -> str:
    """With two digits: 8.3, 44, 130."""
    return f"{float(f'{speed:.2g}'):g}"


def _warnings(pair: ModelPair) -> Iterator[str]:
    if pair.memory_plan.total_bytes > pair.device.free_bytes:
        free = format_gib(pair.device.free_bytes)
        yield f"warning: only {free} are free now; end other programs before it is loaded, or choose a smaller model"
    if pair.entry.is_gated:
        yield f"gated: accept its licence ({pair.entry.licence}) on the hub first"
    if pair.drafter.kind == "draft" and pair.drafter.model is not None:
        family, drafter = pair.entry.token_family, pair.drafter.model.architecture
        target = catalog_member(pair.entry.id, pair.entry.architecture, family)
        lines = pair_warnings(catalog_member(pair.drafter.id, drafter, family), target, kind=pair.device.kind)
        yield from (f"warning: {line}" for line in lines)


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
