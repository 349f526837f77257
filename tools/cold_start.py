"""Time the start of an engine with a GGUF file, by stages: seconds by the clock and of CPU, and the memory.

    python -m tools.cold_start --storage Q4_K --runs 3
    python -m tools.cold_start --file model.gguf
    python -m tools.cold_start --mapped

Without a file it writes one with random weights in the shape of Qwen2.5-1.5B and a vocabulary of its size. Each run is
a process of its own; the first one compiles the kernels and prepares the file, the others find both. The last stage
reads a prompt of 64 tokens and has the scores of the first token of an answer. With `--mapped` only half of the weights
fit the memory, as the plan believes: they stay on the disk. Then a line says what of these pages the system can drop,
and the prompt is read again after it has dropped all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

LAYERS, WIDTH, MLP_WIDTH, HEADS, KV_HEADS, HEAD_SIZE = 28, 1536, 8960, 12, 2, 128
VOCABULARY, PROMPT_TOKENS = 151936, 64
CONTROL_TOKENS = ("<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
CONTROL, NORMAL = 3, 1  # types of tokens
CODE_LIMIT = 30  # bytes below it are small numbers also where they are read as a half float
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write_random_gguf(path: Path, storage: str) -> None:
    import numpy
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.constants import GGML_QUANT_SIZES

    writer, random = GGUFWriter(path, "qwen2"), numpy.random.default_rng(1)
    for name, size in {
        "context_length": 4096, "embedding_length": WIDTH, "block_count": LAYERS, "feed_forward_length": MLP_WIDTH,
        "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
    }.items():  # fmt: skip
        writer.add_uint32(f"qwen2.{name}", size)
    writer.add_float32("qwen2.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_float32("qwen2.rope.freq_base", 1e6)
    _add_tokenizer(writer)
    kind = GGMLQuantizationType[storage]
    block_inputs, block_bytes = GGML_QUANT_SIZES[kind]
    for name, shape in _tensor_shapes():
        if len(shape) == 1:
            values = numpy.zeros(shape, numpy.float32) if name.endswith("bias") else numpy.ones(shape, numpy.float32)
            writer.add_tensor(name, values)
        else:
            row_bytes = shape[1] // block_inputs * block_bytes
            writer.add_tensor(name, random.integers(0, CODE_LIMIT, (shape[0], row_bytes), numpy.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensor_shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    heads, kv_heads = HEADS * HEAD_SIZE, KV_HEADS * HEAD_SIZE
    yield "token_embd.weight", (VOCABULARY, WIDTH)
    yield "output_norm.weight", (WIDTH,)
    for layer in range(LAYERS):
        for name, outputs in (("attn_q", heads), ("attn_k", kv_heads), ("attn_v", kv_heads)):
            yield f"blk.{layer}.{name}.weight", (outputs, WIDTH)
            yield f"blk.{layer}.{name}.bias", (outputs,)
        yield f"blk.{layer}.attn_output.weight", (WIDTH, heads)
        yield f"blk.{layer}.ffn_gate.weight", (MLP_WIDTH, WIDTH)
        yield f"blk.{layer}.ffn_up.weight", (MLP_WIDTH, WIDTH)
        yield f"blk.{layer}.ffn_down.weight", (WIDTH, MLP_WIDTH)
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", (WIDTH,)


def _add_tokenizer(writer: Any) -> None:
    """All bytes, all pairs of them, and as many triples as the vocabulary has room for."""
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [f"{first} {second}" for first, second in product(letters, letters)]
    triples = (f"{pair.replace(' ', '')} {letter}" for pair, letter in product(pairs, letters))
    merges = list(islice(chain(pairs, triples), VOCABULARY - len(CONTROL_TOKENS) - len(letters)))
    tokens = [*CONTROL_TOKENS, *letters, *(each.replace(" ", "") for each in merges)]
    kinds = [CONTROL] * len(CONTROL_TOKENS) + [NORMAL] * (len(tokens) - len(CONTROL_TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(value=False)
    writer.add_chat_template(TEMPLATE)


def start(file: str, *, is_mapped: bool = False) -> None:
    """One run, in this process: prints a line of JSON for each stage."""
    clock, cpu = [time.monotonic()], [time.process_time()]

    def line(stage: str, since: int) -> None:
        seconds = {"seconds": round(clock[-1] - clock[since], 2), "CPU seconds": round(cpu[-1] - cpu[since], 2)}
        print(json.dumps({"stage": stage, **seconds, **memory_mib()}), flush=True)

    def report(stage: str) -> None:
        clock.append(time.monotonic())
        cpu.append(time.process_time())
        line(stage, -2)

    from specchat.loading import load_engine as loading
    from specchat.profile.profile_files import load_profile
    from specchat.weights.gguf.gguf_preparation import prepared_gguf

    report("imports")
    prepared_gguf(Path(file))
    report("preparation")
    profile = load_profile("chat").override({"models.target": file, "models.draft": "", "models.heads": ()})
    if is_mapped:
        pretend_half_fits(profile)
    engine = loading.load_engine(profile)
    target = engine.models.target
    report("load")

    def read_prompt(stage: str) -> Any:
        cache = target.pool.open()
        with target.pool.acquire_slot(cache, PROMPT_TOKENS + 1):
            logits = target.prefill(list(range(300, 300 + PROMPT_TOKENS)), cache).logits
        assert logits.isfinite().all()
        report(stage)
        return logits

    logits = read_prompt("first token")
    line("in all", 0)
    if is_mapped:
        print(*engine.models.notices, sep="\n")
        print(json.dumps({"stage": "weights in files", **mapped_mib()}), flush=True)
        drop_mapped_pages()
        print(json.dumps({"stage": "dropped", **mapped_mib(), **memory_mib()}), flush=True)
        assert logits.equal(read_prompt("the same prompt from the disk"))
        print(json.dumps({"stage": "weights in files", **mapped_mib()}), flush=True)


def pretend_half_fits(profile: Any) -> None:
    """Let the plan of this profile believe that the memory holds half of the weights."""
    from specchat.hub.machine import main_memory
    from specchat.loading import load_engine as loading
    from specchat.loading.engine_memory import compute_features, memory_of_devices
    from specchat.loading.fitted_plan import plan_that_fits

    memory = plan_that_fits(profile, compute_features(), memory_of_devices).memory()
    assert memory is not None
    small = replace(main_memory(), free_bytes=memory.total_bytes - memory.weight_bytes // 2)
    loading.memory_of_devices = lambda _device: (small,)


def mapped_pages() -> Iterator[tuple[int, int, Mapping[str, int]]]:
    """The ranges where kept weights are mapped: first and last byte, and the fields of smaps in KiB."""
    from specchat.paths import kept_weights_folder

    ranges = re.split(
        r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    for each in ranges:
        head, _newline, fields = each.partition("\n")
        if str(kept_weights_folder()) in head:
            first, last = (int(number, 16) for number in head.split()[0].split("-"))
            yield (
                first,
                last,
                {name: int(size) for name, size in re.findall(r"^(\w+): +(\d+) kB$", fields, re.MULTILINE)},
            )


def mapped_mib() -> Mapping[str, int]:
    """What of the kept weights is in memory: clean pages of files can be dropped at any time."""
    names = {
        "Size": "all MiB", "Rss": "in memory MiB", "Private_Clean": "clean MiB", "Shared_Clean": "clean and shared MiB",
        "Private_Dirty": "dirty MiB", "Anonymous": "anonymous MiB",
    }  # fmt: skip
    pages = [fields for _first, _last, fields in mapped_pages()]
    return {words: sum(fields[name] for fields in pages) // 1024 for name, words in names.items()}


def drop_mapped_pages() -> None:
    """What a system that needs memory does: the pages go, also from its cache of files."""
    import ctypes

    from specchat.paths import kept_weights_folder

    libc, dont_need = ctypes.CDLL(None), 4  # of madvise
    for first, last, _fields in list(mapped_pages()):
        assert libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), dont_need) == 0
    for file in kept_weights_folder().glob("*/*"):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def memory_mib() -> Mapping[str, int]:
    """What this process holds now, without mapped files and of them, and the most it held with both."""
    names = {"RssAnon": "own MiB", "RssFile": "mapped MiB", "VmHWM": "peak MiB"}
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    fields = {name: value for name, _colon, value in (line.partition(":") for line in lines)}
    return {words: int(fields[name].split()[0]) // 1024 for name, words in names.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="instead of a random one")
    parser.add_argument("--storage", default="Q4_K", help="block type of the random weights")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--mapped", action="store_true", help="half of the weights fit the memory, as the plan believes"
    )
    parser.add_argument("--start", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.start:
        start(arguments.start, is_mapped=arguments.mapped)
        return
    with tempfile.TemporaryDirectory(prefix="cold-start-") as home:
        file = arguments.file or Path(home) / "random.gguf"
        if arguments.file is None:
            write_random_gguf(file, arguments.storage)
        print(f"{file.name}: {file.stat().st_size / 2**20:.0f} MiB", flush=True)
        variables = {**os.environ, "SPECCHAT_HOME": home}
        for run in range(arguments.runs):
            print(f"run {run + 1}", flush=True)
            command = [sys.executable, "-m", "tools.cold_start", "--start", str(file), *["--mapped"] * arguments.mapped]
            subprocess.run(command, env=variables, check=True)


if __name__ == "__main__":
    main()
