"""What can be recognised and not be computed yet, and what is no head but a way to use the target: early exit."""

from __future__ import annotations

from specchat.heads.formats.head_checkpoint import HeadCheckpoint
from specchat.heads.spec import EARLY_EXIT, HeadSpec

BLOCK_DRAFTERS = {
    "markov_head.": ("dspark", "DSpark"),
    "domino": ("domino", "Domino"),
    "mask_hidden": ("peagle", "P-EAGLE"),
}


def detect_block_drafter(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """DFlash's relatives, which draft a block of tokens in one pass and then correct it."""
    said = (checkpoint.speculators_type or "", checkpoint.architecture.lower())
    for mark, (kind, name) in BLOCK_DRAFTERS.items():
        if checkpoint.first_match(mark.replace(".", r"\.")) or any(kind in word for word in said):
            return _unsupported_head(checkpoint, kind, name, f"{mark} or its name in config.json")
    return None


def detect_other_speculators(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """Further kinds of vLLM's library, by the name in their config."""
    kind = checkpoint.speculators_type
    if kind is None or kind in ("eagle", "eagle3", "mtp"):
        return None
    why = f"no network of ours computes {kind}"
    return HeadSpec(
        kind, f"speculators {kind}", checkpoint.tensors, (f"speculators_model_type is {kind}",), unsupported_reason=why
    )


def detect_assistant(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """A small model that reads the keys and values of its target, as Gemma-4 has them."""
    kind = str(checkpoint.config.get("model_type") or "")
    if not kind.endswith("_assistant"):
        return None
    why = "it reads the keys and values of its target"
    return HeadSpec(
        "assistant", f"{kind} of transformers", checkpoint.tensors, (f"model_type is {kind}",), unsupported_reason=why
    )


def detect_early_exit(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """LayerSkip: an ordinary checkpoint whose own first layers draft. No tensor tells; its name does."""
    names = f"{checkpoint.config.get('_name_or_path')} {checkpoint.tensors.source}".lower()
    if "layerskip" not in names or not checkpoint.first_match(r"model\.layers\.0\."):
        return None
    return HeadSpec(
        EARLY_EXIT,
        "LayerSkip",
        checkpoint.tensors,
        ("a whole model whose name says layerskip: its own first layers draft, with its own norm and output",),
        hidden_state_layers=(),
        target_hidden_size=int(checkpoint.text_config.get("hidden_size") or 0),
        target_vocab_size=int(checkpoint.text_config.get("vocab_size") or 0),
    )


def _unsupported_head(checkpoint: HeadCheckpoint, kind: str, name: str, evidence: str) -> HeadSpec:
    return HeadSpec(
        kind, name, checkpoint.tensors, (evidence,), unsupported_reason="what it does to a block it has drafted"
    )
