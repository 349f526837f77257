"""Tiny random networks for every weight format: their rows are whole blocks of NF4."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from specchat.forward.batch import BatchLimits
from specchat.forward.llama.llama import LlamaModel
from specchat.weights.llama_weights import load_llama
from tests.tiny import SIZES

_FOLDER = TemporaryDirectory(prefix="specchat-quantized-")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@lru_cache
def saved_network(layers: int = 3, tied: bool = False) -> Path:
    """The folder of a network of 64 numbers a row, with biases before its attention."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    folder = Path(_FOLDER.name, f"{layers}-{tied}")
    torch.manual_seed(layers)
    sizes = SIZES | {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": layers, "head_dim": 16}
    config = Qwen3Config(**sizes, tie_word_embeddings=tied, attention_bias=True)
    network = Qwen3ForCausalLM(config)
    for name, bias in network.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(bias, std=0.1)
    network.save_pretrained(folder)
    return folder


def quantized_target(
    weights: str, dtype: str = "float32", exact: bool = True, layers: int = 3, tied: bool = False, device: str = "cpu"
) -> LlamaModel:
    """A network in `forward.llama.llama`; its small prefill chunks test chunking."""
    shape = BatchLimits(prefill_chunk=16, max_rows=32, exact=exact)
    return load_llama(
        saved_network(layers, tied), DTYPES[dtype], torch.device(device), 1024, shape, quant_format=weights
    )
