"""The files of a finished head besides its weights: config.json and README.md, and its profile line."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specchat_train.compare_heads import DRAFT_LENGTH, HeadComparison
from specchat_train.export_weights import write_json

EMBEDDED_ONLY_KEYS = ("early_exit_layers",)
SPECIAL_TOKEN_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id")
PRIVACY_NOTE = """The head was trained on one machine from the questions of its user; nothing was uploaded.
Its weights can reveal parts of the training data."""
FORMAT_BY_KIND = {
    "eagle3": "SafeAILab EAGLE-3 (`midlayer.*`, `d2t`, `t2d`); vLLM and SGLang load it as method `eagle3`",
    "eagle": "SafeAILab EAGLE-1/EAGLE-2 (`fc`, `layers.0.*`); vLLM and SGLang load it as method `eagle`",
    "medusa": "Medusa with residual blocks (`{k}.0.linear.*`) over the target's output matrix",
    "mtp": "DeepSeek-V3 MTP (`model.layers.{n}.*`); servers load such a block from the target's checkpoint",
    "draft": "a small Llama with the target's tokenizer, for AutoModelForCausalLM and as the draft model of any server",
}


@dataclass(frozen=True)
class HeadSummary:
    kind: str
    target: str  # its folder or hub id
    fingerprint: str  # of the target
    initial_head: str  # the head that was trained further, or ""
    baseline: str  # what it was compared with
    training_prompts: int
    answer_tokens: int
    trained_tokens: int
    minutes: float
    seed: int
    comparison: HeadComparison
    note: str = PRIVACY_NOTE  # at the end
    licence: str = ""  # of a published head


def finish_config(folder: Path, target: Mapping[str, Any], summary: HeadSummary) -> None:
    """Remove keys of the embedded models from a head's config, and add its target."""
    path = folder / "config.json"
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    finished = {key: value for key, value in config.items() if key not in (*EMBEDDED_ONLY_KEYS, *SPECIAL_TOKEN_KEYS)}
    finished |= {key: target[key] for key in SPECIAL_TOKEN_KEYS if target.get(key) is not None}
    if "base_model_name_or_path" in finished:
        finished["base_model_name_or_path"] = summary.target
    write_json(path, finished | {"specchat": {"target": summary.target, "target_fingerprint": summary.fingerprint}})


def write_model_card(folder: Path, summary: HeadSummary) -> None:
    comparison = summary.comparison
    difference = comparison.new_acceptance - comparison.baseline_acceptance
    licence = f"\nlicense: {summary.licence}" if summary.licence else ""
    origin = f"continued from `{summary.initial_head}`" if summary.initial_head else "new"
    (folder / "README.md").write_text(
        f"""---
library_name: specchat
tags: [speculative-decoding, {summary.kind}]{licence}
---

# {_title(summary.kind)} for {summary.target}

{FORMAT_BY_KIND[summary.kind]}.

| | |
|---|---|
| target | `{summary.target}`, fingerprint `{summary.fingerprint}` |
| trained | {datetime.now(UTC).date().isoformat()}, {origin}, seed {summary.seed} |
| training data | {summary.training_prompts} questions, {summary.answer_tokens} tokens of the target's greedy answers |
| training | {summary.trained_tokens} tokens in {summary.minutes:.1f} minutes, with training-time test |
| compared with | {summary.baseline} |
| acceptance before | {comparison.baseline_acceptance:.3f} |
| acceptance after | {comparison.new_acceptance:.3f} |
| difference | {difference:+.3f}, 95 % interval {comparison.interval_low:+.3f} to {comparison.interval_high:+.3f} |
| held-out turns | {comparison.turn_count}, from sources without training data |

Acceptance is the number of accepted tokens divided by {DRAFT_LENGTH} per pass of the target, greedy, with chains of
{DRAFT_LENGTH} draft tokens. {summary.note}
""",
        encoding="utf-8",
    )


def _title(kind: str) -> str:
    return "A small draft model" if kind == "draft" else f"{'An' if kind.startswith('e') else 'A'} {kind} head"


def profile_line(kind: str, folder: Path) -> str:
    if kind == "draft":
        return f"draft = {json.dumps(str(folder.absolute()))}"
    return f"heads = [{json.dumps(str(folder.absolute()))}]"
