"""Detect the head in a folder or a file: by its tensors first, by its config second.

The order of HEAD_DETECTORS matters: the most specific format comes first. Detection reads names, shapes and the table
of the draft vocabulary; the weights are read when the head is loaded. Some heads are recognized only.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from specchat.drafters.eagle.eagle3_format import detect_eagle3
from specchat.drafters.eagle.mtp_format import detect_mtp
from specchat.drafters.heads.head_checkpoint import HeadCheckpoint
from specchat.drafters.heads.spec import HeadSpec, TargetDimensions
from specchat.errors import ModelError, PluginError
from specchat.hub.config_architecture import dimensions_from_config
from specchat.hub.safetensors_headers import read_config
from specchat.plugins.discovery import find_extensions, print_warning
from specchat.plugins.own_plugins import install_line
from specchat.weights.gguf.gguf_tensors import GgufTensorFiles
from specchat.weights.tensor_files import PICKLE_SUFFIXES, TensorFiles


def inspect_head(source: Path) -> HeadSpec:
    """The head in this folder or file; ModelError when there is none, or when it is incomplete."""
    files = GgufTensorFiles.from_folder(source) or TensorFiles.from_files(source, _weight_files(source))
    checkpoint = HeadCheckpoint(files, read_config(source))
    try:
        for detect in (*_detectors_of_plugins(), *HEAD_DETECTORS):
            if spec := detect(checkpoint):
                return spec
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{source}: config.json has an invalid value: {error}") from error
    raise ModelError(f"{source}: not a head: {_describe_contents(checkpoint)}")


def _detectors_of_plugins() -> Iterator[Callable[[HeadCheckpoint], HeadSpec | None]]:
    """Those of plugins that can be imported; the others are reported once."""
    for extension in find_extensions("heads").values():
        try:
            yield extension.load()
        except PluginError as error:
            print_warning(str(error))


def target_dimensions(folder: Path) -> TargetDimensions:
    """What the config of a target says, which is not loaded."""
    target = dimensions_from_config(read_config(folder), str(folder))
    return TargetDimensions(target.hidden_size, target.layers, target.vocab_size)


def _weight_files(source: Path) -> list[Path]:
    """The files with the tensors; pickles only when there are no safetensors."""
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise ModelError(f"{source}: no such folder or file")
    safe = sorted(source.glob("*.safetensors"))
    pickles = sorted(path for path in source.iterdir() if path.suffix in PICKLE_SUFFIXES)
    if not safe and not pickles:
        raise ModelError(f"{source}: not a head: it has no *.safetensors, *.bin or *.pt file")
    return safe or pickles


def _describe_contents(checkpoint: HeadCheckpoint) -> str:
    if checkpoint.first_match(r"(model\.)?layers\.0\.") or checkpoint.first_match(r"model\."):
        return "it looks like a complete language model; use it as a target, or as a draft model (--draft)"
    names = sorted(checkpoint.tensors.locations)
    return f"its tensors ({', '.join(names[:3])}, …) have no known format" if names else "its files are empty"


def detect_other_head(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """A head whose format and network are those of our plugin, or of none, by the names in its files."""
    names = [*checkpoint.tensors.locations, *checkpoint.config, *map(str.lower, checkpoint.type_names)]
    for kind, (title, pattern) in OTHER_HEADS.items():
        if any(re.match(pattern, name) for name in names):
            return _unsupported(checkpoint, kind, title)
    return None


def detect_eagle1(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """EAGLE-1, which has no name that other heads lack, so all others are asked before."""
    return _unsupported(checkpoint, "eagle", "EAGLE-1") if checkpoint.first_match(r"(fusion_)?fc\.weight$") else None


def _unsupported(checkpoint: HeadCheckpoint, kind: str, title: str) -> HeadSpec:
    reason = f"{title} is of a plugin; {install_line('heads')} installs it"
    reason = "the correction of a drafted block" if kind == DOMINO else reason
    return HeadSpec(kind, title, checkpoint.tensors, ("its names",), unsupported_reason=reason)


def detect_other_speculators(checkpoint: HeadCheckpoint) -> HeadSpec | None:
    """Other types of vLLM's speculators library, by the name in the config."""
    kind = checkpoint.speculators_type
    if kind is None or kind in ("eagle", "eagle3", "mtp"):
        return None
    evidence, reason = (f"speculators_model_type is {kind}",), f"the type {kind}"
    return HeadSpec(kind, f"speculators {kind}", checkpoint.tensors, evidence, unsupported_reason=reason)


DOMINO = "domino"  # a block like DFlash's, which a recurrent network then corrects
OTHER_HEADS = {  # by kind: a title, and names of tensors, keys of the config and types that no other head has
    "hydra": ("Hydra", r"hydra_"),
    "assistant": ("Gemma 4 assistant", r"pre_projection\.|gemma4\w*assistant"),
    "medusa": ("Medusa", r"medusa_num_heads|(medusa_head\.)?\d+\.\d+\.linear\."),
    "peagle": ("P-EAGLE", r"mask_hidden$|.*peagle"),
    "dflash2": ("DFlash-2", r"candidate_selector\.|layers\.\d+\.(attention|mlp)_conv\.|.*dflash2"),
    "dspark": ("DSpark", r"(markov|confidence)_head\."),
    DOMINO: ("Domino", r".*domino"),
    "mtp": ("MTP of MiMo and speculators", r"(model\.)?mtp_layers\."),
    "dflash": ("DFlash", r"hidden_norm\.weight$|.*(dflash|dspark)"),
}
HEAD_DETECTORS = (detect_other_head, detect_mtp, detect_eagle3, detect_other_speculators, detect_eagle1)
