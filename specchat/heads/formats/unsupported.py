"""What can be recognised and not be computed yet, and what is no head but a way to use the target: early exit."""

from __future__ import annotations

from specchat.heads.formats.checkpoint_files import Found
from specchat.heads.spec import EARLY_EXIT, HeadSpec

BLOCKWISE = {
    "markov_head.": ("dspark", "DSpark"),
    "domino": ("domino", "Domino"),
    "mask_hidden": ("peagle", "P-EAGLE"),
}


def blockwise(found: Found) -> HeadSpec | None:
    """DFlash's relatives, which draft a block of tokens in one pass and then correct it."""
    said = (found.speculators_type or "", found.architecture.lower())
    for mark, (kind, name) in BLOCKWISE.items():
        if found.first(mark.replace(".", r"\.")) or any(kind in word for word in said):
            return _recognised(found, kind, name, f"{mark} or its name in config.json")
    return None


def other_speculators(found: Found) -> HeadSpec | None:
    """Further kinds of vLLM's library, by the name in their config."""
    kind = found.speculators_type
    if kind is None or kind in ("eagle", "eagle3", "mtp"):
        return None
    why = f"no network of ours computes {kind}"
    return HeadSpec(kind, f"speculators {kind}", found.tensors, (f"speculators_model_type is {kind}",), unsupported=why)


def assistant(found: Found) -> HeadSpec | None:
    """A small model that reads the keys and values of its target, as Gemma-4 has them."""
    kind = str(found.config.get("model_type") or "")
    if not kind.endswith("_assistant"):
        return None
    why = "it reads the keys and values of its target"
    return HeadSpec("assistant", f"{kind} of transformers", found.tensors, (f"model_type is {kind}",), unsupported=why)


def early_exit(found: Found) -> HeadSpec | None:
    """LayerSkip: an ordinary checkpoint whose own first layers draft. No tensor tells; its name does."""
    names = f"{found.config.get('_name_or_path')} {found.tensors.source}".lower()
    if "layerskip" not in names or not found.first(r"model\.layers\.0\."):
        return None
    return HeadSpec(
        EARLY_EXIT,
        "LayerSkip",
        found.tensors,
        ("a whole model whose name says layerskip: its own first layers draft, with its own norm and output",),
        taps=(),
        reads=int(found.text_config.get("hidden_size") or 0),
        vocabulary=int(found.text_config.get("vocab_size") or 0),
    )


def _recognised(found: Found, kind: str, name: str, evidence: str) -> HeadSpec:
    return HeadSpec(kind, name, found.tensors, (evidence,), unsupported="what it does to a block it has drafted")
