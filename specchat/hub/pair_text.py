"""A recommended pair in words: two lines, the command that downloads it, and the profile that uses it.

Chooses and estimates nothing.
"""

import json
from collections.abc import Iterator
from typing import Any

from specchat.hub.disk_space import format_bytes
from specchat.hub.local_models import cached_folder
from specchat.hub.machine import Bandwidth, Device
from specchat.hub.memory_plan import GIB, QUANTIZED_FORMATS, lacks_quantizer
from specchat.hub.recommend import READING_TOKENS_PER_SECOND, TIGHT, ModelPair, fit_label, format_gib, memory_budget
from specchat.paths import hub_repo_folder
from specchat.plugins.own_plugins import install_line, missing_variant
from specchat.profile.keys import AUTO, Limits, Models
from specchat.profile.validation import key_info

USUAL_BYTES_PER_SECOND = 100e6 / 8  # of a download: 100 Mbit/s


def describe_device(device: Device, bandwidth: Bandwidth | None = None) -> str:
    """Its memory, and what the speeds of its pairs are estimated from."""
    free = f"{device.name}: {device.free_bytes / GIB:.1f} of {device.total_bytes / GIB:.1f} GiB free"
    return f"{free}; speeds are estimated from {bandwidth}" if bandwidth else free


def describe_pair(pair: ModelPair) -> Iterator[str]:
    """Two lines: what it is and what is downloaded; memory, speed and drafter. Then one for each warning."""
    yield f"{pair.entry.id}: {_describe_download(pair)}, licence {pair.entry.licence}"
    language = f" trained on {pair.drafter.language}" * bool(pair.drafter.language)
    drafter = f"; with {pair.drafter_name}{language}" if pair.drafter.kind and not pair.lacks_plugin else ""
    needed, budget = pair.memory_plan.total_bytes, memory_budget(pair.device)
    memory = f"{format_gib(needed)} of {format_gib(budget)}{' (tight)' * (fit_label(needed, budget) == TIGHT)}"
    context = f"in {pair.quant_format} with {pair.context_tokens} tokens"
    yield f"{memory} {context}; {describe_speed(pair)}{drafter}"
    yield from _warnings(pair)


def downloaded_part(pair: ModelPair) -> int:
    """The bytes of a download that was begun and is not complete; 0 for none."""
    folders = [hub_repo_folder(name) for name in pair.names if not cached_folder(name)]
    return sum(path.stat().st_size for folder in folders for path in folder.glob("blobs/*"))


def _describe_download(pair: ModelPair) -> str:
    if all(map(cached_folder, pair.names)):
        return "on this disk"
    size, part = format_bytes(pair.download_bytes), downloaded_part(pair)
    if part:
        return f"{format_bytes(part)} of about {size} are here"
    seconds = pair.download_bytes / USUAL_BYTES_PER_SECOND
    time = f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"
    return f"{size} to download ({time} at 100 Mbit/s)"


def pull_command(pair: ModelPair) -> str:
    drafter = f" --draft {pair.separate_drafter_id}" if pair.separate_drafter_id else ""
    return f"specchat models pull {pair.entry.id}{drafter}"


def describe_speed(pair: ModelPair) -> str:
    """Tokens per second without and with the drafter, as estimates."""
    if (seconds := pair.plain_seconds) is None:
        return f"speed: nothing is known of {pair.device.name}; 'specchat bench drafters' measures it"
    is_slow = 1 / seconds < READING_TOKENS_PER_SECOND
    plain = f"about {_rounded(1 / seconds)} tokens/s{', slower than reading speed' * is_slow}"
    if not pair.drafter.kind:
        return plain + ", more where text repeats" * (not is_slow)
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
    parts = ["drafts"] * pair.lacks_plugin
    if pair.quant_format in QUANTIZED_FORMATS and lacks_quantizer(pair.entry.architecture, pair.device.kind):
        parts.append(f"{pair.quant_format} weights")
    if parts:
        yield f"{' and '.join(parts)} need a plugin: {install_line('hybrids')}"
    for head in pair.entry.heads if not pair.drafter.kind else ():
        if missing := missing_variant(head.kind):
            yield f"drafts of {head.id}: {missing}"
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
    keys: dict[str, Any] = {"target": pair.entry.id, "draft": drafter.id if drafter.kind == "draft" else AUTO}
    keys["heads"] = [drafter.id if drafter.kind not in ("", "draft") else AUTO]
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
