"""Quantizes the weights of a network of transformers while it is loaded, one after the other.

transformers reads a tensor, converts it to the layout of its network, and gives it to the quantizer of this file, which
puts a `QuantWeight` where the parameter was. So at most one weight (of all experts of a layer, where a tensor holds
them all) is in memory as floats.

| weights | stay |
|---|---|
| matrices of `Linear` and `Conv1D` and of stacked experts in the text decoder, and the LM head | quantized |
| embeddings, norms, convolutions, biases, and encoders of images and sound | float |
| routers: matrices with as many outputs as the network has experts | float: a rounding chooses other experts |
| matrices of less than 1/32 of the square of the hidden size, as gates have | float: no memory to gain |
| weights that the code uses otherwise than in a product with rows | float, from the second load on |

Knows transformers and tensors; knows no family and no pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from torch import Tensor, nn
from transformers.core_model_loading import ConversionOps
from transformers.pytorch_utils import Conv1D
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING, AUTO_QUANTIZER_MAPPING
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from specchat.errors import ModelError
from specchat.forward.linear.expert_linear import ExpertLinear
from specchat.forward.linear.linear import QuantLinear, WeightSource
from specchat.forward.linear.quant_linear import can_quantize, quant_linear
from specchat.paths import read_json_object, remember, remembered_file
from specchat.weights.tensor_files import is_finite
from specchat_hybrids.quant_weight import FLOAT, TRANSPOSED, QuantExperts, QuantMatrix, WeightUses

METHOD = "specchat"  # the name of our quantizer in transformers
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)  # have weights of three dimensions, as experts have
SMALL_SHARE = 32  # of the square of the hidden size; smaller matrices stay float
NUMBERS = re.compile(r"\d+")


class NetworkQuantization(QuantizationConfigMixin):
    """How to quantize a network, and what is found out about its code. `from_pretrained` takes it."""

    quant_method: Any = METHOD

    def __init__(self, quant_format: str, device: torch.device, folder: Path) -> None:
        self.quant_format, self.device, self._uses_file = quant_format, device, _uses_file(folder)
        self.known_uses = {name: str(use) for name, use in read_json_object(self._uses_file).items()}  # by pattern
        self.uses = WeightUses()
        self.damaged = list[str]()  # names of weights with NaN or infinite values
        self.failure: Exception | None = None  # transformers goes on after one, and forgets which it was

    def __deepcopy__(self, _memo: object) -> NetworkQuantization:
        return self  # the copy in the config of the network must note its uses here

    def has_learnt(self) -> bool:
        """Remember what the passes so far have found out: if it is anything, the network has to be loaded again.

        A use is noted once for a name, or once more as FLOAT, so that this comes to an end.
        """
        found = {use_pattern(name): use for name, use in sorted(self.uses.by_name.items())}
        if found:
            self.known_uses, self.uses = self.known_uses | found, WeightUses()
            remember(self._uses_file, self.known_uses)
        return bool(found)


def _uses_file(folder: Path) -> Path:
    """How the code uses weights depends on the config and the version of transformers only."""
    config = (folder / "config.json").read_text(encoding="utf-8")
    return remembered_file("weight-uses", [config, transformers.__version__])


class NetworkQuantizer(HfQuantizer):
    """Quantizes the matrices of a text decoder. transformers calls its methods while it loads a network."""

    def __init__(self, quantization_config: Any, **options: Any) -> None:
        super().__init__(quantization_config, **options)
        self.settings = cast("NetworkQuantization", quantization_config)
        self.transposed_by_name = dict[str, bool]()  # of the weights to quantize

    def param_needs_quantization(self, model: Any, param_name: str, **_options: Any) -> bool:
        return param_name in self.transposed_by_name

    def get_quantize_ops(self) -> ConversionOps:
        return _Quantize(self)

    def is_serializable(self) -> Any:
        return False

    @property
    def is_trainable(self) -> Any:
        return False

    def put(self, network: Any, name: str, weight: Tensor) -> bool:
        """Replace a parameter by its quantized weight; False where it must stay float."""
        settings, (path, _, attribute) = self.settings, name.rpartition(".")
        if not is_finite(weight):
            settings.damaged.append(name)
            return False
        module, is_transposed = network.get_submodule(path), self.transposed_by_name[name]
        like = weight.new_empty(1, device=settings.device).expand(weight.shape)  # without its memory
        make: Any = QuantExperts if weight.dim() == 3 else QuantMatrix
        linear = self._linear(weight, is_transposed)
        delattr(module, attribute)  # a parameter cannot be replaced by another kind of tensor
        setattr(module, attribute, make.make(linear, like, name, settings.uses, is_transposed))
        return True

    def _linear(self, weight: Tensor, is_transposed: bool) -> QuantLinear | ExpertLinear:
        parts = weight if weight.dim() == 3 else (weight,)
        linears = tuple(quant_linear(self._source(part, is_transposed), self.settings.quant_format) for part in parts)
        return ExpertLinear(linears) if weight.dim() == 3 else linears[0]

    def _source(self, weight: Tensor, is_transposed: bool) -> WeightSource:
        rows, device = weight.T if is_transposed else weight, self.settings.device
        shape = rows.shape[0], rows.shape[1]
        return WeightSource(shape, lambda first, last: rows[first:last].to(device).contiguous(), device)

    def _process_model_before_weight_loading(self, model: Any, **_options: Any) -> Any:
        tied, known = {*model.all_tied_weights_keys, *model.all_tied_weights_keys.values()}, self.settings.known_uses
        for name, is_transposed in _matrices(model, self.settings.quant_format):
            use = known.get(use_pattern(name))
            if name not in tied and use != FLOAT:
                self.transposed_by_name[name] = is_transposed or use == TRANSPOSED
        return model

    def _process_model_after_weight_loading(self, model: Any, **_options: Any) -> Any:
        """Quantize the LM head that is the embedding, too: the embedding stays float for lookups."""
        head = model.get_output_embeddings()
        name = next(name for name, module in model.named_modules(remove_duplicate=False) if module is head) + ".weight"
        is_matrix = type(head) is nn.Linear and isinstance(head.weight, nn.Parameter)
        if is_matrix and self.settings.known_uses.get(use_pattern(name)) != FLOAT:
            weight = head.weight.data
            if can_quantize(weight.shape[0], weight.shape[1], self.settings.quant_format):
                self.transposed_by_name[name] = False
                self.put(model, name, weight)
        self.remove_quantization_config(model)
        return model


class _Quantize(ConversionOps):
    """Puts each weight in its place; what it returns is put there as float by transformers."""

    def __init__(self, quantizer: NetworkQuantizer) -> None:
        self.quantizer = quantizer

    def convert(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, input_dict: dict[str, Any], *, model: Any, missing_keys: set[str] | None = None, **_options: Any
    ) -> dict[str, Any]:
        floats = dict[str, Any]()
        for name in list(input_dict):
            value = input_dict.pop(name)
            tensor = value[0] if isinstance(value, list) else value
            is_as_expected = tensor.shape == model.get_parameter_or_buffer(name).shape
            is_quantized = name in self.quantizer.transposed_by_name and is_as_expected
            if not is_quantized or not self._put(model, name, tensor):
                floats[name] = tensor
            elif missing_keys is not None:
                missing_keys.discard(name)
        return floats

    def _put(self, network: Any, name: str, weight: Tensor) -> bool:
        try:
            return self.quantizer.put(network, name, weight)
        except (ModelError, RuntimeError, ValueError) as error:
            self.quantizer.settings.failure = error
            raise


def _matrices(network: Any, quant_format: str) -> Iterator[tuple[str, bool]]:
    """The weights of the text decoder that can be quantized, and whether they are [in, out]."""
    decoder, head = network.get_decoder(), network.get_output_embeddings()
    experts, hidden_size = _expert_counts(decoder), network.config.get_text_config(decoder=True).hidden_size
    of_text = {id(module) for module in decoder.modules()} | {id(head)}
    for path, module in network.named_modules():
        if id(module) not in of_text:
            continue
        for attribute, weight in module.named_parameters(recurse=False):
            is_transposed = isinstance(module, Conv1D) or bool(getattr(module, "is_transposed", False))
            is_matrix = weight.dim() == 2 and attribute == "weight" and isinstance(module, (nn.Linear, Conv1D))
            is_stack = weight.dim() == 3 and not isinstance(module, CONVOLUTIONS)
            if not is_matrix and not is_stack:
                continue
            outputs, inputs = reversed(weight.shape[-2:]) if is_transposed else weight.shape[-2:]
            is_small = outputs * inputs * SMALL_SHARE <= hidden_size**2
            if not is_small and outputs not in experts and can_quantize(outputs, inputs, quant_format):
                yield f"{path}.{attribute}", is_transposed


def _expert_counts(decoder: nn.Module) -> set[int]:
    """How many experts its mixtures have, stacked in a tensor or in a list of modules."""
    stacked = {
        len(weight)
        for module in decoder.modules()
        for weight in module.parameters(recurse=False)
        if weight.dim() == 3 and not isinstance(module, CONVOLUTIONS)
    }
    return stacked | {
        len(module) for name, module in decoder.named_modules()
        if isinstance(module, nn.ModuleList) and "expert" in name.rpartition(".")[2]
    }  # fmt: skip


def use_pattern(name: str) -> str:
    """The name of a weight in any layer.

    >>> use_pattern("model.layers.12.self_attn.kv_b_proj.weight")
    'model.layers.*.self_attn.kv_b_proj.weight'
    """
    return NUMBERS.sub("*", name)


# What transformers' decorators do, which refuse a module that is imported again.
cast("dict[str, Any]", AUTO_QUANTIZATION_CONFIG_MAPPING)[METHOD] = NetworkQuantization
cast("dict[str, Any]", AUTO_QUANTIZER_MAPPING)[METHOD] = NetworkQuantizer
