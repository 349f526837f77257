"""The models that `models recommend` names first, at tiny size, in their formats: loaded, decoded plain and drafted.

The weights are noise, written to a temporary folder by transformers, as a hub stores them. Heads are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from specchat.bench.gpu.gpu_bench import GpuBench
from specchat.bench.gpu.report import Line, attempt
from specchat.devices import FLOAT_FORMAT
from specchat.drafters.draft_model import DraftModelDrafter
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.hub.catalog import GPU_SIZES_GB, CatalogEntry, catalog
from specchat.hub.machine import simulated_gpu
from specchat.hub.recommend import PURPOSES, PairRequirements, recommend
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions

# Small numbers of everything but the sizes of heads and of experts' choices, for which kernels are compiled.
TINY_SIZES: Mapping[str, Any] = {
    "hidden_size": 128, "intermediate_size": 256, "moe_intermediate_size": 128, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 4096,
    "sliding_window": 32, "num_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
    "shared_expert_intermediate_size": 128, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 512, "num_kv_shared_layers": 0,
    "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1, "q_lora_rank": 64, "kv_lora_rank": 64,
}  # fmt: skip
COMMON = {"initializer_range": 0.25, "dtype": "bfloat16", "pad_token_id": 0, "eos_token_id": 0, "bos_token_id": 0}
OWN_KEYS = ("encoder_parameters",)  # of the catalog, not of config.json
FORMAT_NAMES = {"bf16": FLOAT_FORMAT}
PROMPT, ANSWER_TOKENS, BUDGET = (5, 6, 7, 8, 9, 10) * 3, 24, 6


@dataclass(frozen=True)
class RecommendedPath:
    """What a person is told to run: a family and a format."""

    entry: CatalogEntry
    quant_format: str  # of `--weights`
    is_first: bool  # named first for some purpose and GPU


def recommended_paths() -> list[RecommendedPath]:
    """The first choices for all purposes and sizes of GPUs, then one model of each other recommended family."""
    first = dict[tuple[str, str], RecommendedPath]()
    for purpose in PURPOSES:
        for size in (*GPU_SIZES_GB, 32):
            for pair in recommend(simulated_gpu(size), PairRequirements(purpose))[:1]:
                quant_format = FORMAT_NAMES.get(pair.quant_format, pair.quant_format)
                key = str(pair.entry.config["model_type"]), quant_format
                first.setdefault(key, RecommendedPath(pair.entry, quant_format, is_first=True))
    families = {family for family, _format in first}
    others = [entry for entry in catalog().values() if not entry.not_recommended]
    by_family = {str(entry.config["model_type"]): entry for entry in others}
    rest = [RecommendedPath(entry, FLOAT_FORMAT, False) for name, entry in by_family.items() if name not in families]
    return [*first.values(), *rest]


def catalog_lines(bench: GpuBench) -> Iterator[Line]:
    for path in recommended_paths():
        name = f"{path.entry.config['model_type']} {path.quant_format} (as {path.entry.name})"
        yield attempt(name, partial(_path_line, bench, path))


def _path_line(bench: GpuBench, path: RecommendedPath) -> Line:
    with TemporaryDirectory(prefix="specchat-doctor-") as folder:
        write_tiny_model(path.entry, Path(folder))
        options = LoadOptions("bfloat16", str(bench.device), 1024, quant_format=path.quant_format)
        model = load_model(Path(folder), options)
        graphs = getattr(model, "graphs", None)
        model.capture_graphs(lambda _done, _total: None)
        plain, drafted = answer(model, Drafter()), answer(model, DraftModelDrafter(model))
    same = next((index for index, pair in enumerate(zip(plain, drafted, strict=True)) if pair[0] != pair[1]), None)
    return {
        "first choice": path.is_first, "computed by": type(model).__name__,
        "graphs": len(graphs) if graphs is not None and not graphs.is_disabled else 0,
        "trees": model.supports_trees, "claims exact": model.is_exact,
        "drafted text": "as plain" if same is None else f"differs at token {same}",
    }  # fmt: skip


@torch.inference_mode()
def write_tiny_model(entry: CatalogEntry, folder: Path) -> None:
    """A network of noise of this family, with the sizes of its heads."""
    import transformers

    config = transformers.AutoConfig.for_model(**tiny_config(entry.config))
    network: Any = transformers.AutoModelForCausalLM.from_config(config)
    network.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 0}), encoding="utf-8")


def tiny_config(config: Mapping[str, Any]) -> dict[str, Any]:
    sizes = {key: TINY_SIZES.get(key, value) for key, value in config.items() if key not in OWN_KEYS}
    if "num_global_key_value_heads" in sizes:
        sizes["num_global_key_value_heads"] = 1
    if "layer_types" in sizes:
        sizes["layer_types"] = sizes["layer_types"][: TINY_SIZES["num_hidden_layers"]]
    return sizes | COMMON


def answer(model: Model, drafter: Drafter) -> list[int]:
    """The greedy answer to one prompt."""
    generation = Generation(model, () if type(drafter) is Drafter else (drafter,))
    generation.replace_tokens(list(PROMPT))
    generation.generate(GenerationConfig(drafter, Sampler(), BUDGET, ANSWER_TOKENS))
    generation.close()
    return generation.tokens[len(PROMPT) :]


def verify_lines(bench: GpuBench) -> Iterator[Line]:
    """`specchat verify` in short: the embedded model with every drafter that it can run, greedy and at 0.8."""
    from specchat.bench.builtin_prompts import BUILTIN_REQUESTS
    from specchat.bench.lossless_check import VerifySettings, verify_lossless
    from specchat.bench.verify_prompts import tokenized_prompts
    from specchat.loading.load_engine import load_engine
    from specchat.profile import DRAFTERS, Profile

    engine = load_engine(Profile().override({"models.target": "embedded", "models.device": str(bench.device)}))
    prompts = tokenized_prompts(iter(BUILTIN_REQUESTS["chat"]), engine, 2, 32)
    variants = [name for name in DRAFTERS if name != "plain"]
    report = verify_lossless(engine, VerifySettings(prompts, variants, max_tokens=32, draws=0))
    engine.close()
    for result in report.results:
        if not result.skip_reason:
            yield {
                "what": f"{result.variant} at {result.temperature:g}", "answers": result.answers,
                "identical": result.identical_answers, "near ties": len(result.near_ties),
                "wrong": len(result.mismatches),
            }  # fmt: skip
    yield {"what": f"embedded in {report.dtype}, lossless: {'yes' if report.is_lossless else 'NO'}"}
