"""Heads that are recognized but not supported."""

from specchat.drafters.heads.head_checkpoint import HeadCheckpoint
from specchat.drafters.heads.spec import HeadSpec


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
