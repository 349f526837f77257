"""What lies beside the weights of a finished head: its config for others, a model card, and how a profile names it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specchat.train.compare_heads import DRAFT_LENGTH, HeadComparison
from specchat.train.export_weights import write_json

EMBEDDED_ONLY_KEYS = ("early_exit_layers",)  # of the embedded models only
SPECIAL_TOKEN_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id")
FORMAT_BY_KIND = {
    "eagle3": "SafeAILab EAGLE-3 (`midlayer.*`, `d2t`, `t2d`); vLLM and SGLang load it as method `eagle3`",
    "eagle": "SafeAILab EAGLE-1/EAGLE-2 (`fc`, `layers.0.*`); vLLM and SGLang load it as method `eagle`",
    "medusa": "Medusa with residual blocks (`{k}.0.linear.*`) over the target's output matrix",
    "mtp": "DeepSeek-V3 MTP (`model.layers.{n}.*`); servers take such a block inside its target's own checkpoint",
    "draft": "a small Llama with the target's tokens, for AutoModelForCausalLM and as the draft model of any server",
}


@dataclass(frozen=True)
class HeadSummary:
    """What is to be said of a finished head."""

    kind: str
    target: str  # as it was named
    fingerprint: str  # of the target
    initial_head: str  # the head it began from, or ""
    baseline: str  # what it was tried against
    training_prompts: int  # questions
    answer_tokens: int  # of answers
    trained_tokens: int
    minutes: float
    seed: int
    comparison: HeadComparison


def finish_config(folder: Path, target: Mapping[str, Any], summary: HeadSummary) -> None:
    """Take what only holds for the embedded models out of a head's config, and say which target it belongs to."""
    path = folder / "config.json"
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    kept = {key: value for key, value in config.items() if key not in (*EMBEDDED_ONLY_KEYS, *SPECIAL_TOKEN_KEYS)}
    kept |= {key: target[key] for key in SPECIAL_TOKEN_KEYS if target.get(key) is not None}
    if "base_model_name_or_path" in kept:
        kept["base_model_name_or_path"] = summary.target
    write_json(path, kept | {"specchat": {"target": summary.target, "target_fingerprint": summary.fingerprint}})


def write_model_card(folder: Path, summary: HeadSummary) -> None:
    """README.md: what this is, of which target, learned from how much, and how well it did."""
    verdict, began = (
        summary.comparison,
        f"continued from `{summary.initial_head}`" if summary.initial_head else "trained anew",
    )
    (folder / "README.md").write_text(
        f"""---
library_name: specchat
tags: [speculative-decoding, {summary.kind}]
---

# {_title(summary.kind)} for {summary.target}

{FORMAT_BY_KIND[summary.kind]}.

| | |
|---|---|
| target | `{summary.target}`, fingerprint `{summary.fingerprint}` |
| made | {datetime.now(UTC).date().isoformat()}, {began}, seed {summary.seed} |
| lessons | {summary.training_prompts} questions, {summary.answer_tokens} tokens of the target's own greedy answers |
| training | {summary.trained_tokens} tokens seen in {summary.minutes:.1f} minutes, with test-time training |
| tried against | {summary.baseline} |
| acceptance before | {verdict.baseline_acceptance:.3f} |
| acceptance now | {verdict.new_acceptance:.3f} |
| difference | {verdict.new_acceptance - verdict.baseline_acceptance:+.3f}, 95 % interval {verdict.interval_low:+.3f} to {verdict.interval_high:+.3f} |
| held-out turns | {verdict.turn_count}, of sources that no lesson came from |

Acceptance is the share that held of {DRAFT_LENGTH} guesses for every pass of the target, greedy, as a chain. The head was trained on one machine from
what was asked there; nothing was sent anywhere. It can only guess what its lessons held: whoever has the head can find
out something of them.
""",
        encoding="utf-8",
    )


def _title(kind: str) -> str:
    return "A small draft" if kind == "draft" else f"{'An' if kind.startswith('e') else 'A'} {kind} head"


def profile_line(kind: str, folder: Path) -> str:
    """What a profile says to use this head or draft."""
    if kind == "draft":
        return f"draft = {json.dumps(str(folder.absolute()))}"
    return f"heads = [{json.dumps(str(folder.absolute()))}]"
