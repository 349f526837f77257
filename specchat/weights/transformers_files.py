"""Loads the files of a model into a network of transformers, and refuses what it would fill in or drop silently.

The passes of the network are those of its decoding form, which a probe finds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from specchat.devices import FLOAT_FORMAT
from specchat.engine.model import Model
from specchat.forward.batch import BatchLimits
from specchat.forward.transformers.decoding_probe import RECURRENT, build_model, missing_plugin_line
from specchat.forward.transformers.transformers_model import OWN_CACHE, DecodingForm
from specchat.plugins.discovery import find_extensions, print_warning
from specchat.plugins.own_plugins import install_line
from specchat.weights.decoding_forms import decoding_form
from specchat.weights.tensor_files import is_finite

if TYPE_CHECKING:
    from transformers import PreTrainedModel

OTHER_SHAPE = "{} has the shape {}, and config.json means {}"
NAMED_TENSORS = 3  # of those that a refusal counts
NO_TEXT_CLASS = "Unrecognized configuration class"  # in the message of transformers
# Tensors that a text network may leave in the files: parts for images and sound, drafting layers that were published
# with the model, and buffers that a network computes itself.
OTHER_PARTS = re.compile(
    r"(^|[._])(visual|vision|audio|image|speech|mtp|multi_modal|multimodal|mm_projector|embed_vision|embed_audio)"
)
COMPUTED_BUFFERS = re.compile(r"(inv_freq|masked_bias|attn\.bias|attention\.bias|position_ids|rope_freqs)$")
LAYER_NUMBER = re.compile(r"(?:layers|h|blocks)\.(\d+)\.")


class NetworkQuantization(Protocol):
    """How a plugin quantizes a network (`register_network_quantizers`), and what it finds out meanwhile."""

    @property
    def damaged(self) -> list[str]:
        """Names of weights with NaN or infinite values."""
        ...

    @property
    def failure(self) -> Exception | None:
        """What stopped it: transformers goes on after an error, and forgets which it was."""
        ...

    @property
    def known_uses(self) -> Mapping[str, str]:
        """Which weights the code of the network uses in its own way, as far as earlier loads found out."""
        ...

    def has_learnt(self) -> bool:
        """Remember what the passes so far have found out: if it is anything, the network has to be loaded again."""
        ...


def check_shapes(folder: Path, shapes: Mapping[str, Sequence[int]]) -> None:
    """ValueError for a tensor of another shape than config.json means; experts that a network stacks are not seen."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with _stops_as_value_errors(), torch.device("meta"):
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        network = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    for name, tensor in network.state_dict().items():
        if (expected := list(tensor.shape)) != (actual := list(shapes.get(name, expected))):
            raise ValueError(OTHER_SHAPE.format(name, actual, expected))


def load_with_transformers(
    folder: Path,
    device: torch.device,
    dtype: torch.dtype | None,
    context_window: int | None,
    limits: BatchLimits,
    quant_format: str = FLOAT_FORMAT,
) -> Model:
    """Load a folder, and choose the passes that give the logits of a whole pass."""
    _check_quantization(json.loads((folder / "config.json").read_text(encoding="utf-8")), quant_format)
    network, form = _load_and_probe(folder, device, dtype, limits, quant_format)
    if form.has_own_cache and limits.exact:
        raise ValueError("it decodes over its own cache, which rounds one token differently: turn exact mode off")
    model = build_model(network, form, context_window, limits)
    if (limitation := model.limitation) and (model.max_rows == 1 or form.reason != RECURRENT):
        plugin = missing_plugin_line() if form.name == OWN_CACHE else ""
        print_warning(f"{folder.name}: {limitation}{f'; {plugin} brings drafts' if plugin else ''}")
    return model


def _load_and_probe(
    folder: Path, device: torch.device, dtype: torch.dtype | None, limits: BatchLimits, quant_format: str
) -> tuple[PreTrainedModel, DecodingForm]:
    """A network and its decoding form.

    The passes that find the form show which quantized weights the code uses in its own way. Then it is loaded again.
    """
    if quant_format == FLOAT_FORMAT:
        network = _load_network(folder, device, dtype, None)
        return network, decoding_form(folder, network, limits, quant_format, {})
    quantizer = next(iter(find_extensions("network_quantizers").values()), None)
    if quantizer is None:
        raise ValueError(f"its weights in {quant_format} need a plugin: {install_line('hybrids')}; or --weights float")
    quantization: NetworkQuantization = quantizer.call(quant_format, device, folder)
    while True:
        network = _load_network(folder, device, dtype, quantization)
        form = decoding_form(folder, network, limits, quant_format, quantization.known_uses)
        if not quantization.has_learnt():
            return network, form
        del network


def _check_quantization(config: Mapping[str, Any], quant_format: str) -> None:
    """ValueError for a `quant_method` that transformers does not know: it would load such weights as floats."""
    quantization = config.get("quantization_config")
    if not quantization:
        return
    if quant_format != FLOAT_FORMAT:
        raise ValueError(f"its files are quantized already; use --weights {FLOAT_FORMAT}, or its checkpoint in 16 bits")
    from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

    method = quantization.get("quant_method") if isinstance(quantization, dict) else quantization
    if quantization.get("load_in_4bit") or quantization.get("load_in_8bit"):
        return  # bitsandbytes, whose older files name no method
    if method not in AUTO_QUANTIZER_MAPPING:
        raise ValueError(
            f"quantization_config has the quant_method {method!r}, which transformers does not know; choose another "
            "checkpoint of this model"
        )


def _load_network(
    folder: Path, device: torch.device, dtype: torch.dtype | None, quantization: NetworkQuantization | None
) -> PreTrainedModel:
    """The network of a folder. ValueError when its files lack tensors, or hold some that it has no place for."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.utils import logging

    logging.disable_progress_bar()  # stdout is for the answer, stderr for our messages
    logging.set_verbosity_error()
    try:
        network, report = _from_pretrained(AutoModelForCausalLM, folder, dtype, quantization)
    except ValueError as error:
        if NO_TEXT_CLASS not in str(error):
            raise
        network, report = _from_pretrained(AutoModelForImageTextToText, folder, dtype, quantization)
    # Otherwise transformers fills missing tensors with random numbers, and a table tells about it.
    for name, actual, expected in sorted(report["mismatched_keys"]):
        raise ValueError(OTHER_SHAPE.format(name, list(actual), list(expected)))
    if missing := sorted(report["missing_keys"]):
        raise ValueError(f"no file holds {_named(missing)}")
    layers = getattr(network.config.get_text_config(decoder=True), "num_hidden_layers", None)
    if unknown := [name for name in sorted(report["unexpected_keys"]) if not _may_be_left(name, layers)]:
        raise ValueError(f"its network has no place for {_named(unknown)}: config.json is of another model")
    damaged = (name for name, parameter in network.named_parameters() if not is_finite(parameter))
    if name := next(chain(quantization.damaged if quantization else (), damaged), None):
        raise ValueError(f"{name} contains NaN or infinite values")
    return network.to(device)


def _from_pretrained(
    network_class: Any, folder: Path, dtype: torch.dtype | None, quantization: NetworkQuantization | None
) -> Any:
    # The loop over the experts of a pass multiplies with one expert at a time, which quantized experts need.
    options = {} if quantization is None else {"quantization_config": quantization, "experts_implementation": "eager"}
    try:
        with _stops_as_value_errors():
            return network_class.from_pretrained(
                folder, dtype=dtype or "auto", local_files_only=True, use_safetensors=True, trust_remote_code=False,
                ignore_mismatched_sizes=True, output_loading_info=True, **options,
            )  # fmt: skip
    except RuntimeError as error:
        if quantization is None or quantization.failure is None:
            raise
        raise quantization.failure from error


@contextmanager
def _stops_as_value_errors() -> Generator[None]:
    """transformers trusts a config, and stops with errors of any kind."""
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError) as error:
        raise ValueError(f"transformers stops with {type(error).__name__}: {error}") from error


def _named(names: Iterable[str]) -> str:
    """How many tensors, and the first of them by name."""
    first, count = list(names)[:NAMED_TENSORS], len(list(names))
    if count == 1:
        return f"the tensor {first[0]}"
    return f"{count} tensors: {', '.join(first)}{', ...' if count > len(first) else ''}"


def _may_be_left(name: str, layers: int | None) -> bool:
    number = LAYER_NUMBER.search(name)
    is_drafting_layer = number is not None and layers is not None and int(number.group(1)) >= layers
    return is_drafting_layer or bool(OTHER_PARTS.search(name) or COMPUTED_BUFFERS.search(name))
