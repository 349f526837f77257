"""All sections of the report of a GPU, in an order in which the most useful ones come first.

Facts of the device and what no kernel can undercut are here, and the text of whole models: the embedded one, and those
that `models recommend` names first, at tiny size. Heads are left out.
"""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from specchat import __version__
from specchat.devices import (
    CUDA,
    FLOAT_FORMAT,
    check_available,
    compute_capability,
    device_name,
    gpu_memory,
    multiprocessors,
    platform_of,
)
from specchat.drafters.draft_model import DraftModelDrafter
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.engine.sampling import Sampler
from specchat.errors import UsageError
from specchat.hub.catalog import GPU_SIZES_GB, CatalogEntry, catalog
from specchat.hub.config_architecture import ENCODER_KEY
from specchat.hub.machine import simulated_gpu
from specchat.hub.recommend import recommend
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_bench.gpu.experts import expert_pass_lines, expert_product_lines
from specchat_bench.gpu.gpu_bench import GpuBench
from specchat_bench.gpu.hybrids import hybrid_lines
from specchat_bench.gpu.kernels import block_kernels, check_lines, own_kernels, products, sampler_lines
from specchat_bench.gpu.networks import eagle_lines, graph_count, pass_lines
from specchat_bench.gpu.report import NAME, Line, Section, attempt

PACKAGES = ("torch", "triton", "triton-windows", "bitsandbytes", "transformers", "tokenizers", "gguf", "llguidance")
CLOCKS = (
    "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "clocks.max.mem", "power.draw", "power.limit",
    "temperature.gpu", "pstate",
)  # fmt: skip
FLOOR_NODES = 200
# Small numbers of everything but the sizes of heads and of experts' choices, for which kernels are compiled.
TINY_SIZES: Mapping[str, Any] = {
    "hidden_size": 128, "intermediate_size": 256, "moe_intermediate_size": 128, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 4096,
    "sliding_window": 32, "num_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
    "shared_expert_intermediate_size": 128, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 512, "num_kv_shared_layers": 0,
    "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1, "q_lora_rank": 64, "kv_lora_rank": 64,
    "num_global_key_value_heads": 1,
}  # fmt: skip
COMMON = {"initializer_range": 0.25, "dtype": "bfloat16", "pad_token_id": 0, "eos_token_id": 0, "bos_token_id": 0}
FORMAT_NAMES = {"bf16": FLOAT_FORMAT}
PROMPT, ANSWER_TOKENS, BUDGET = (5, 6, 7, 8, 9, 10) * 3, 24, 6


def device_lines(bench: GpuBench) -> Iterator[Line]:
    memory = gpu_memory(bench.device)
    facts = {
        "GPU": device_name(bench.device),
        "timed": "by events of the device" if bench.has_clock else "no: simulated, or without events; sizes are small",
        "specchat": f"{__version__} with Python {platform.python_version()} on {platform.platform()}",
        "torch computes with": platform_of(CUDA) or "no build for this GPU",
        "compute capability": ".".join(map(str, compute_capability(bench.device))),
        "memory": f"{memory.free_bytes / 2**30:.1f} GiB free of {memory.total_bytes / 2**30:.1f}",
    } | {package: _version(package) for package in PACKAGES}
    if bench.has_clock:
        facts["multiprocessors, L2"] = f"{multiprocessors(bench.device)}, {bench.cache_bytes / 2**20:.0f} MiB"
    yield from ({NAME: name, "value": value} for name, value in facts.items())
    yield attempt("clocks and power", lambda: {"value": _nvidia_smi()})


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _nvidia_smi() -> str:
    """Names and values, as the driver reports them."""
    command = ["nvidia-smi", f"--query-gpu={','.join(CLOCKS)}", "--format=csv,noheader"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()[0]
    return ", ".join(f"{name} {value.strip()}" for name, value in zip(CLOCKS, printed.split(","), strict=True))


def floor_lines(bench: GpuBench) -> Iterator[Line]:
    """What no kernel can undercut."""
    number, nodes = bench.noise(1), range(FLOOR_NODES)

    def add() -> None:
        number.add_(1)

    measures: Mapping[str, Callable[[], Line]] = {
        "copy, read and written": lambda: {"GB/s": (bench.bytes_per_second or 0) / 1e9},
        "a graph of one kernel, replayed and waited for": lambda: {
            "us": 1e6 * bench.host_seconds(bench.capture(add), rounds=51)
        },
        f"a kernel among {FLOOR_NODES} in a graph": lambda: {
            "us": 1e6 * bench.replay_seconds([add for _ in nodes]) / FLOOR_NODES
        },
        "the same kernels launched one by one": lambda: {
            "us": 1e6 * bench.host_seconds(lambda: [add() for _ in nodes]) / FLOOR_NODES
        },
    }
    for name, measure in measures.items():
        yield attempt(name, measure) if bench.has_clock else {NAME: name}


def verify_lines(bench: GpuBench) -> Iterator[Line]:
    """`specchat verify` in short: the embedded model with every drafter that it can run, greedy and at 0.8."""
    from specchat.loading.load_engine import load_engine
    from specchat.profile.drafter_names import DRAFTERS
    from specchat.profile.keys import Profile
    from specchat_bench.builtin_prompts import BUILTIN_REQUESTS
    from specchat_bench.lossless_check import VerifySettings, verify_lossless
    from specchat_bench.tokenized_prompts import fitting_prompts

    engine = load_engine(Profile().override({"models.target": "embedded", "models.device": str(bench.device)}))
    prompts = fitting_prompts(engine, iter(BUILTIN_REQUESTS["chat"]), 2, 32)
    variants = [name for name in DRAFTERS if name != "plain"]
    report = verify_lossless(engine, VerifySettings(prompts, variants, max_tokens=32, draws=0))
    engine.close()
    for result in report.results:
        if not result.skip_reason:
            yield {
                NAME: f"{result.variant} at {result.temperature:g}", "answers": result.answers,
                "identical": result.identical_answers, "near ties": len(result.near_ties),
                "wrong": len(result.mismatches),
            }  # fmt: skip
    yield {NAME: f"embedded in {report.dtype}, lossless: {'yes' if report.is_lossless else 'NO'}"}


def catalog_lines(bench: GpuBench) -> Iterator[Line]:
    """The first choices for all sizes of GPUs, then one model of each other recommended family."""
    machines = [simulated_gpu(size) for size in (*GPU_SIZES_GB, 32)]
    paths = dict[tuple[str, str], tuple[CatalogEntry, bool]]()  # by family and format of `--weights`
    for machine in machines:
        for pair in recommend(machine)[:1]:
            quant_format = FORMAT_NAMES.get(pair.quant_format, pair.quant_format)
            paths.setdefault((str(pair.entry.config["model_type"]), quant_format), (pair.entry, True))
    families = {family for family, _format in paths}
    for entry in catalog().values():
        family = str(entry.config["model_type"])
        if not entry.not_recommended and family not in families:
            paths[family, FLOAT_FORMAT] = entry, False
    for (family, quant_format), (entry, is_first) in paths.items():
        name = f"{family} {quant_format} (as {entry.name})"
        yield attempt(
            name, lambda is_first=is_first: {"first choice": is_first}, partial(_text_line, bench, entry, quant_format)
        )


def _text_line(bench: GpuBench, entry: CatalogEntry, quant_format: str) -> Line:
    """A network of noise of this family: loaded as a hub stores it, decoded plain and drafted."""
    with TemporaryDirectory(prefix="specchat-doctor-") as folder:
        write_tiny_model(entry.config, Path(folder))
        model = load_model(Path(folder), LoadOptions("bfloat16", str(bench.device), 1024, quant_format=quant_format))
        model.capture_graphs(lambda _done, _total: None)
        plain, drafted = answer(model, Drafter()), answer(model, DraftModelDrafter(model))
    other = next((index for index, pair in enumerate(zip(plain, drafted, strict=True)) if pair[0] != pair[1]), None)
    return {
        "computed by": type(model).__name__, "graphs": graph_count(model), "trees": model.supports_trees,
        "claims exact": model.is_exact, "drafted text": "as plain" if other is None else f"differs at token {other}",
    }  # fmt: skip


@torch.inference_mode()
def write_tiny_model(config: Mapping[str, Any], folder: Path) -> None:
    """A network of this family, with the sizes of its heads."""
    import transformers

    sizes: dict[str, Any] = {key: TINY_SIZES.get(key, value) for key, value in config.items() if key != ENCODER_KEY}
    if "layer_types" in sizes:
        sizes["layer_types"] = sizes["layer_types"][: TINY_SIZES["num_hidden_layers"]]
    library: Any = transformers
    network = library.AutoModelForCausalLM.from_config(library.AutoConfig.for_model(**sizes, **COMMON))
    network.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 0}), encoding="utf-8")


def answer(model: Model, drafter: Drafter) -> list[int]:
    """The greedy answer to one prompt."""
    generation = Generation(model, () if type(drafter) is Drafter else (drafter,))
    generation.replace_tokens(list(PROMPT))
    generation.generate(GenerationConfig(drafter, Sampler(), BUDGET, ANSWER_TOKENS))
    generation.close()
    return generation.tokens[len(PROMPT) :]


def tile_lines(bench: GpuBench) -> Iterator[Line]:
    from specchat_bench.gpu.tiles import tile_lines  # needs Triton

    return tile_lines(bench)


KERNEL_NOTE = (
    "error: against float64, relative norm; of int8 and fp8 the rounding of activations is a part of it. own bits: the "
    "batches in which each row has the bits of the row alone. batches alike: those whose first row has the same bits. "
    "us: one call in a captured graph, launch included. bandwidth: bytes that must be moved, relative to a copy."
)
FORWARD_NOTE = (
    "Milliseconds from the call to its end by the host's clock, for a chain of so many rows; random weights. Rows are "
    "padded to the width of the next graph. batches alike: those whose first row has the same bits."
)
CATALOG_NOTE = (
    "What 'specchat models recommend' names, at tiny size with random weights in bfloat16; a model that is not exact "
    "may differ at a near tie."
)
MEASURES: Mapping[str, tuple[str, Callable[[GpuBench], Iterable[Line]]]] = {
    "device": ("What the machine says.", device_lines),
    "floors": ("Medians. A copy counts the bytes that it reads and those that it writes.", floor_lines),
    "kernels": (KERNEL_NOTE, lambda bench: check_lines(own_kernels(bench), bench)),
    "blocks": (KERNEL_NOTE, lambda bench: check_lines(block_kernels(bench), bench)),
    "products": (KERNEL_NOTE, lambda bench: check_lines(products(bench), bench)),
    "sampler": ("Noise, temperature and choice as in every graph, over logits in bfloat16.", sampler_lines),
    "passes": (FORWARD_NOTE, pass_lines),
    "experts": (
        "The products of all experts that the rows of a pass chose, for the experts of one layer.",
        expert_product_lines,
    ),
    "mixtures": (FORWARD_NOTE, expert_pass_lines),
    "eagle": ("A draft from the call to the packed tree, behind 200 tokens; random weights.", eagle_lines),
    "verify": ("The embedded model with every drafter that it can run, against plain decoding.", verify_lines),
    "catalog": (CATALOG_NOTE, catalog_lines),
    "hybrids": (f"{FORWARD_NOTE} prompt s: to read the text before.", hybrid_lines),
    "tiles": ("The products of experts in other tiles and splits; the first line of a product is now.", tile_lines),
}
ON_REQUEST = ("tiles",)  # minutes of compilation


def gpu_sections(names: Iterable[str] = ()) -> list[Section]:
    """The named sections, or all but ON_REQUEST. UsageError for an unknown name, ModelError without a GPU."""
    chosen = list(names) or [name for name in MEASURES if name not in ON_REQUEST]
    if unknown := [name for name in chosen if name not in MEASURES]:
        raise UsageError(f"--sections {unknown[0]}: there are {', '.join(MEASURES)}")
    check_available(CUDA.name)
    torch.manual_seed(0)
    bench = GpuBench.of(torch.device(CUDA.name))
    return [Section(name, MEASURES[name][0], partial(MEASURES[name][1], bench)) for name in chosen]
