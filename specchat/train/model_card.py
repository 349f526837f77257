"""What lies beside the weights of a finished head: its config for others, a model card, and how a profile names it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specchat.train.export_weights import write_json
from specchat.train.trial import DEPTH, Verdict

OURS = ("early_exit_layers",)  # of the embedded models only
ENDS = ("bos_token_id", "eos_token_id", "pad_token_id")
FORMS = {
    "eagle3": "SafeAILab EAGLE-3 (`midlayer.*`, `d2t`, `t2d`); vLLM and SGLang load it as method `eagle3`",
    "eagle": "SafeAILab EAGLE-1/EAGLE-2 (`fc`, `layers.0.*`); vLLM and SGLang load it as method `eagle`",
    "medusa": "Medusa with residual blocks (`{k}.0.linear.*`) over the target's output matrix",
    "mtp": "DeepSeek-V3 MTP (`model.layers.{n}.*`); servers take such a block inside its target's own checkpoint",
    "draft": "a small Llama with the target's tokens, for AutoModelForCausalLM and as the draft model of any server",
}


@dataclass(frozen=True)
class Made:
    """What is to be said of a finished head."""

    kind: str
    target: str  # as it was named
    fingerprint: str  # of the target
    began: str  # the head it began from, or ""
    against: str  # what it was tried against
    lessons: int  # questions
    lesson_tokens: int  # of answers
    tokens_seen: int
    minutes: float
    seed: int
    verdict: Verdict


def settle_config(folder: Path, target: Mapping[str, Any], made: Made) -> None:
    """Take what only holds for the embedded models out of a head's config, and say which target it belongs to."""
    path = folder / "config.json"
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    kept = {key: value for key, value in config.items() if key not in (*OURS, *ENDS)}
    kept |= {key: target[key] for key in ENDS if target.get(key) is not None}
    if "base_model_name_or_path" in kept:
        kept["base_model_name_or_path"] = made.target
    write_json(path, kept | {"specchat": {"target": made.target, "target_fingerprint": made.fingerprint}})


def write_card(folder: Path, made: Made) -> None:
    """README.md: what this is, of which target, learned from how much, and how well it did."""
    verdict, began = made.verdict, f"continued from `{made.began}`" if made.began else "trained anew"
    (folder / "README.md").write_text(
        f"""---
library_name: specchat
tags: [speculative-decoding, {made.kind}]
---

# {_name(made.kind)} for {made.target}

{FORMS[made.kind]}.

| | |
|---|---|
| target | `{made.target}`, fingerprint `{made.fingerprint}` |
| made | {datetime.now(UTC).date().isoformat()}, {began}, seed {made.seed} |
| lessons | {made.lessons} questions, {made.lesson_tokens} tokens of the target's own greedy answers |
| training | {made.tokens_seen} tokens seen in {made.minutes:.1f} minutes, with test-time training |
| tried against | {made.against} |
| acceptance before | {verdict.before:.3f} |
| acceptance now | {verdict.after:.3f} |
| difference | {verdict.after - verdict.before:+.3f}, 95 % interval {verdict.low:+.3f} to {verdict.high:+.3f} |
| held-out turns | {verdict.turns}, of sources that no lesson came from |

Acceptance is the share that held of {DEPTH} guesses for every pass of the target, greedy, as a chain. The head was trained on one machine from
what was asked there; nothing was sent anywhere. It can only guess what its lessons held: whoever has the head can find
out something of them.
""",
        encoding="utf-8",
    )


def _name(kind: str) -> str:
    return "A small draft" if kind == "draft" else f"{'An' if kind.startswith('e') else 'A'} {kind} head"


def profile_line(kind: str, folder: Path) -> str:
    """What a profile says to use this head or draft."""
    if kind == "draft":
        return f"draft = {json.dumps(str(folder.absolute()))}"
    return f"heads = [{json.dumps(str(folder.absolute()))}]"
