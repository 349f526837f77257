"""Heads that are recognized but not supported, and early exit, which needs no head."""

from specchat.drafters.heads.head_checkpoint import HeadCheckpoint
from specchat.drafters.heads.spec import EARLY_EXIT, HeadSpec


def detect_domino(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """Domino: a block like DFlash's, which a recurrent network then corrects."""
    names = f"{checkpoint.speculators_type} {checkpoint.architecture}".lower()
    if not checkpoint.first_match("domino") and "domino" not in names:
        return None
    evidence, reason = ("domino or its name in config.json",), "the correction of a drafted block"
    return HeadSpec("domino", "Domino", checkpoint.tensors, evidence, unsupported_reason=reason)


def detect_hydra(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """Hydra, whose format and network are a plugin's."""
    if "hydra_num_heads" not in checkpoint.config and not checkpoint.first_match("hydra_"):
        return None
    reason = "Hydra, which the plugin specchat-heads computes"
    return HeadSpec("hydra", "Hydra", checkpoint.tensors, ("its name",), unsupported_reason=reason)


def detect_other_speculators(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """Other types of vLLM's speculators library, by the name in the config."""
    kind = checkpoint.speculators_type
    if kind is None or kind in ("eagle", "eagle3", "mtp"):
        return None
    evidence, reason = (f"speculators_model_type is {kind}",), f"the type {kind}"
    return HeadSpec(kind, f"speculators {kind}", checkpoint.tensors, evidence, unsupported_reason=reason)


def detect_early_exit(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """LayerSkip: an ordinary checkpoint whose first layers draft, recognized by its name."""
    names = f"{checkpoint.config.get('_name_or_path')} {checkpoint.tensors.source}".lower()
    if "layerskip" not in names or not checkpoint.first_match(r"model\.layers\.0\."):
        return None
    return HeadSpec(
        EARLY_EXIT,
        "LayerSkip",
        checkpoint.tensors,
        ("a complete model with 'layerskip' in its name: its first layers draft, with its own final norm and LM head",),
        hidden_state_layers=(),
        uses_target_tables=False,
        target_hidden_size=int(checkpoint.text_config.get("hidden_size") or 0),
        target_vocab_size=int(checkpoint.text_config.get("vocab_size") or 0),
    )
