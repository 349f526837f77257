"""DSpark and DFlash-2: the tensors of DFlash, with those that correct a slot by the token before it.

Of DeepSpec, z-lab and vLLM's speculators. DSpark has a Markov head and a confidence head, and each slot predicts the
next position. DFlash-2 has convolutions in its layers and a candidate selector. The canonical names:

    markov.embeddings       rows of a token, and projection, which makes a bias of them; gate or joint
    confidence              state of a slot -> probability that its token is accepted
    selector.predecessors   rows of the token before, successors of a candidate, and projection of the state
    layers.{i}.*_conv       convolutions around attention and mlp: base_kernel and kernel_projection
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from specchat.drafters.heads.head_checkpoint import HeadCheckpoint, require_tensors
from specchat.drafters.heads.spec import HeadDimensions, HeadSpec
from specchat.errors import ModelError
from specchat.weights.tensor_files import TensorFiles
from specchat_heads.block_correction import DSparkHead
from specchat_heads.block_spec import BlockSpec, has_type
from specchat_heads.candidate_selector import DFlash2Head
from specchat_heads.dflash_format import (
    BlockFormat,
    block_setting,
    block_spec,
    is_block_head,
    samples_from_anchor,
    unsupported_block,
)

DFLASH2, DSPARK = "dflash2", "dspark"
DSPARK_FORMAT = BlockFormat(
    DSPARK,
    "DSpark",
    DSparkHead,
    {
        "markov_head.markov_w1.": "markov.embeddings.",
        "markov_head.markov_w2.": "markov.projection.",
        "markov_head.gate_proj.": "markov.gate.",
        "markov_head.joint_proj.": "markov.joint.",
        "confidence_head.proj.": "confidence.",
    },
    token_tables=("markov.embeddings.weight",),
    samples_from_anchor=True,
)
DFLASH2_FORMAT = BlockFormat(
    DFLASH2,
    "DFlash-2",
    tensor_names={
        "candidate_selector.predecessor_codebook": "selector.predecessors",
        "candidate_selector.successor_codebook": "selector.successors",
        "candidate_selector.hidden_projection.": "selector.projection.",
    },
    token_tables=("selector.predecessors",),
    has_non_causal_windows=True,
)
DEFAULT_CANDIDATES = 16
PROJECTION = "kernel_projection.weight"  # of a convolution
SELECTOR_PARTS = ("selector.predecessors", "selector.successors", "selector.projection.weight")


def _kind(checkpoint: HeadCheckpoint) -> str | None:
    """Which of the two it is, by its tensors first; None for another head."""
    if not is_block_head(checkpoint):
        return None
    if checkpoint.first_match(r"(markov|confidence)_head\."):
        return DSPARK
    parts = r"candidate_selector\.|layers\.\d+\.(attention|mlp)_conv\."
    return DFLASH2 if checkpoint.first_match(parts) or has_type(checkpoint, "dflash2") else None


def detect_dspark(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    if _kind(checkpoint) != DSPARK:
        return None
    own = DSPARK_FORMAT
    if checkpoint.first_match(r"markov_head\.joint_proj\.") and not samples_from_anchor(checkpoint, own):
        reason = "DSpark's recurrent Markov head with slots that predict their own position"
        return unsupported_block(checkpoint, own, reason)
    spec = block_spec(checkpoint, own)
    if spec.unsupported_reason is None:
        _require_correction_shapes(checkpoint, spec)
    return spec


def detect_dflash2(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    if _kind(checkpoint) != DFLASH2:
        return None
    candidates = int(block_setting(checkpoint, "selector_top_k") or DEFAULT_CANDIDATES)
    own = replace(DFLASH2_FORMAT, network=partial(DFlash2Head, candidates=candidates))
    if "d2t" in checkpoint.tensors:
        return unsupported_block(checkpoint, own, "DFlash-2 with a draft vocabulary")
    spec = block_spec(checkpoint, own)
    if spec.unsupported_reason is None:
        assert isinstance(spec, BlockSpec), "a block head without a block"
        _require_selector_shapes(spec.tensors, spec.dimensions.hidden_size, spec.target_vocab_size)
        _require_convolution_shapes(spec.tensors, spec.dimensions, spec.block_config.block_size)
    return replace(spec, evidence=(*spec.evidence, f"{candidates} candidates in each slot"))


def _require_correction_shapes(checkpoint: HeadCheckpoint, spec: HeadSpec) -> None:
    """ModelError when the Markov head or the confidence head lacks a part or has other sizes than the head."""
    tensors, hidden_size = spec.tensors, spec.dimensions.hidden_size
    expected: dict[str, tuple[int, ...]] = {}
    rank = 0
    if checkpoint.first_match(r"markov_head\."):
        require_tensors(tensors, ("markov.embeddings.weight", "markov.projection.weight"))
        rank = tensors.shape("markov.embeddings.weight")[-1]
        expected = {"embeddings": (spec.target_vocab_size, rank), "projection": (spec.draft_vocab_size, rank)}
        expected |= {"gate": (rank, hidden_size + rank), "joint": (3 * rank, 2 * rank + hidden_size)}
        expected = {f"markov.{part}.weight": shape for part, shape in expected.items()}
    _require_shapes(tensors, expected)
    confidence = "confidence.weight"
    if confidence in tensors and tensors.shape(confidence) not in ((1, hidden_size), (1, hidden_size + rank)):
        found = list(tensors.shape(confidence))
        raise ModelError(f"{tensors.source}: the confidence head {found} reads neither a state nor a state and a token")


def _require_shapes(tensors: TensorFiles, expected: Mapping[str, tuple[int, ...]]) -> None:
    """ModelError for a tensor of another shape. Missing ones are left to the caller."""
    for name, shape in expected.items():
        if name in tensors and tensors.shape(name) != shape:
            found = list(tensors.shape(name))
            raise ModelError(
                f"{tensors.source}: {name} has the shape {found}, but the rest of the head needs {list(shape)}"
            )


def _require_selector_shapes(tensors: TensorFiles, hidden_size: int, vocab_size: int) -> None:
    """ModelError when the candidate selector lacks a part or has other sizes than the head."""
    require_tensors(tensors, SELECTOR_PARTS)
    rank = (tensors.shape(SELECTOR_PARTS[0]) or (0,))[-1]
    shapes = ((vocab_size, rank), (vocab_size, rank), (rank, hidden_size))
    _require_shapes(tensors, dict(zip(SELECTOR_PARTS, shapes, strict=True)))


def _require_convolution_shapes(tensors: TensorFiles, dimensions: HeadDimensions, block_size: int) -> None:
    """ModelError when a convolution is missing or has another size, or more taps than a block has slots."""
    modules = [f"layers.{index}.{part}_conv" for index in range(dimensions.layers) for part in ("attention", "mlp")]
    require_tensors(tensors, (f"{module}.{part}" for module in modules for part in ("base_kernel", PROJECTION)))
    base, projection = (tensors.shape(f"{modules[0]}.{part}") for part in ("base_kernel", PROJECTION))
    taps, rows, width = base[1] if len(base) == 3 else 0, (projection or (0,))[0], dimensions.hidden_size
    groups = rows // (2 * taps) if taps else 0
    if taps > block_size or not groups or rows != 2 * taps * groups or width % groups:
        reason = f"{taps} taps and {rows} kernel numbers fit neither a block of {block_size} nor the size {width}"
        raise ModelError(f"{tensors.source}: the convolutions' {reason}")
    for module in modules:
        _require_shapes(tensors, {f"{module}.base_kernel": (2, taps, width), f"{module}.{PROJECTION}": (rows, width)})
