"""A recommended pair in words: two lines, the command that downloads it, and the profile that uses it.

Chooses and estimates nothing.
"""

import json
from collections.abc import Iterator
from typing import Any

from specchat.hub.disk_space import format_bytes
from specchat.hub.machine import Device
from specchat.hub.memory_plan import GIB, QUANTIZED_FORMATS
from specchat.hub.recommend import READING_TOKENS_PER_SECOND, ModelPair, format_gib
from specchat.plugins.own_plugins import install_line
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
    yield f"    {memory} with {pair.context_tokens} tokens of context; {describe_speed(pair)}"
    yield from (f"    {line}" for line in _warnings(pair))


def pull_command(pair: ModelPair) -> str:
    drafter = f" --draft {pair.separate_drafter_id}" if pair.separate_drafter_id else ""
    return f"specchat models pull {pair.entry.id}{drafter}"


def describe_speed(pair: ModelPair) -> str:
    """Tokens per second without and with the drafter, as estimates."""
    if (seconds := pair.plain_seconds) is None:
        return f"speed: nothing is known of {pair.device.name}; 'specchat bench drafters' measures it"
    slow = ", slower than reading speed" * (1 / seconds < READING_TOKENS_PER_SECOND)
    plain = f"about {_rounded(1 / seconds)} tokens/s (estimated from {pair.bandwidth}{slow})"
    if not pair.drafter.kind:
        return f"{plain}, more where text repeats"
    if pair.lacks_plugin:
        return plain
    if (drafted := pair.drafted_seconds) is None:
        return f"{plain}, speed-up by drafts: unknown"
    return f"{plain}, {f'about {_rounded(1 / drafted)} with' if drafted < seconds else 'no gain expected by'} drafts"


def _rounded(speed: float) -> str:
    """With two digits: 8.3, 44, 130."""
    return f"{float(f'{speed:.2g}'):g}"


def _warnings(pair: ModelPair) -> Iterator[str]:
    if pair.memory_plan.total_bytes > pair.device.free_bytes:
        free = format_gib(pair.device.free_bytes)
        yield f"warning: only {free} are free now; end other programs before it is loaded, or choose a smaller model"
    if pair.lacks_plugin:
        yield f"decoded without drafts here; {install_line('hybrids')} brings them"
    if pair.entry.is_gated:
        yield f"gated: accept its licence ({pair.entry.licence}) on the hub first"


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
