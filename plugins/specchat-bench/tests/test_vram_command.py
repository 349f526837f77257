"""`specchat vram`: what it prints, for whom it refuses, and what programs get."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from specchat.devices import CPU
from specchat.hub import machine, memory_plan
from specchat.hub.memory_plan import GIB
from specchat.weights.load_options import EMBEDDED
from tests.each_row import each_row
from tests.front import command
from tests.gguf_models import write_gguf
from tests.processes import modules_after


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """An empty cache of the hub."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def needs(monkeypatch, *arguments: str) -> dict:
    ran = command(monkeypatch, "vram", *arguments, "--json")
    assert 0 == ran.code, ran.err
    said = json.loads(ran.out)
    return {(each["quant_format"], each["context"]): each for each in said["memory"]} | {"notes": said["notes"]}


def test_the_pair_that_everybody_asks_for_takes_what_is_known(monkeypatch):
    ran = command(monkeypatch, "vram", "Qwen3-8B", "--head", "eagle3", "--ctx", "8k", "--gpu-memory", "12")

    assert 0 == ran.code
    lines = ran.out.decode().splitlines()
    assert "Qwen/Qwen3-8B: 8.19 B parameters, from the catalog" == lines[0]
    assert "nf4-double        4.9      0.7        1.6      8.1 fits       8.7 fits" in lines
    assert "bf16             15.3      0.7        1.5     18.3 no        18.9 no" in lines


def test_programs_get_bytes_that_add_up(monkeypatch):
    for each in needs(monkeypatch, "Qwen3-8B", "--draft", "Qwen3-0.6B").values():
        if isinstance(each, dict):
            assert each["total"] == sum(
                each[f"{part}_bytes"] for part in ("weight", "drafter", "kv_cache", "workspace")
            )


def test_a_folder_and_its_config_take_the_same(monkeypatch):
    folder = needs(monkeypatch, str(EMBEDDED / "target"))

    assert folder == needs(monkeypatch, str(EMBEDDED / "target" / "config.json"))
    assert folder == needs(monkeypatch, "embedded")


def test_a_draft_that_nobody_knows_is_refused(monkeypatch):
    ran = command(monkeypatch, "vram", "embedded", "--draft", "Qwen3-9B")

    assert 7 == ran.code
    assert "did you mean 'Qwen/Qwen3.5-9B'?" in ran.err


def test_a_head_of_another_target_is_refused(monkeypatch):
    ran = command(monkeypatch, "vram", "Qwen3-8B", "--head", "AngelSlim/Qwen3-14B_eagle3")

    assert 2 == ran.code
    assert "was trained for Qwen/Qwen3-14B, not for Qwen/Qwen3-8B" in ran.err


def test_experts_and_windows_are_told_of(monkeypatch):
    notes = " ".join(needs(monkeypatch, "gpt-oss-20b")["notes"])

    assert 'its experts are stored in 4 bits: with models.weights = "float" a CUDA GPU keeps them' in notes
    assert "layers with a sliding window keep all rows" in notes


@each_row("layout", ["deepseek", "fbgemm"])
def test_a_checkpoint_in_8_bits_takes_what_its_floats_would(monkeypatch, tmp_path, layout):
    from tests.weights.eight_bits import write

    folder = write(tmp_path, layout)
    small, floats = (needs(monkeypatch, str(folder / name)) for name in ("small", "float"))

    assert small["fp8", 32768] == floats["fp8", 32768]
    assert small["bf16", 32768]["weight_bytes"] > 1.8 * small["fp8", 32768]["weight_bytes"]
    assert [
        note for note in small["notes"] if 'models.weights = "float" converts them to bf16, "fp8" keeps them' in note
    ]


@each_row("layout", ["awq", "gptq"])
def test_a_checkpoint_in_4_bits_takes_what_its_floats_would(monkeypatch, tmp_path, layout):
    from tests.weights.four_bits import save_network

    small, floats = (needs(monkeypatch, str(folder)) for folder in save_network(tmp_path / layout, layout))

    assert small["nf4", 32768]["weight_bytes"] == floats["nf4", 32768]["weight_bytes"]
    assert ("int4", 32768) in small and ("int4", 32768) not in floats


def test_a_head_file_alone_is_enough(monkeypatch, tmp_path):
    copied = shutil.copytree(EMBEDDED / "eagle3", tmp_path / "head")
    ran = needs(monkeypatch, "embedded", "--head", str(copied))

    assert (copied / "model.safetensors").stat().st_size > ran["bf16", 32768]["drafter_bytes"] > 4_000_000


@each_row("length", ["0", "k", "-3", "32m", "99999999999"])
def test_a_length_that_is_none_is_refused(monkeypatch, length):
    ran = command(monkeypatch, "vram", "embedded", "--ctx", length)

    assert 2 == ran.code
    assert "is no number of tokens" in ran.err


@each_row("card", ["0", "-8", "nan", "inf", "big"])
def test_a_card_that_is_none_is_refused(monkeypatch, card):
    ran = command(monkeypatch, "vram", "embedded", "--gpu-memory", card)

    assert 2 == ran.code
    assert "is no GPU memory" in ran.err


def test_what_transformers_computes_has_other_formats_with_the_plugin_that_quantizes_it_only(monkeypatch):
    needed = needs(monkeypatch, "GLM-4.7-Flash")

    assert {"bf16"} == {each[0] for each in needed if each != "notes"}
    assert any("need a plugin" in note and "./plugins/specchat-hybrids" in note for note in needed["notes"])


def test_torch_is_not_imported():
    found = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})"

    assert "torch" not in modules_after(f"{found}; import specchat_bench.vram_command")


def test_without_a_model_the_plan_of_a_profile_is_printed(monkeypatch):
    planned, dry_run = command(monkeypatch, "vram"), command(monkeypatch, "ask", "--dry-run")

    assert (0, 0) == (planned.code, dry_run.code)
    assert planned.out.splitlines()[:-1] == dry_run.out.splitlines()[:-1]  # the last line has the free memory
    assert [line.split()[0] for line in planned.out.decode().splitlines()] == [
        "target", "draft", "head", "head", "context", "memory",
    ]  # fmt: skip


def test_a_profile_is_planned_for_a_gpu_that_is_not_here(monkeypatch, tmp_path):
    ran = command(monkeypatch, "vram", "--gpu-memory", "8")

    assert 0 == ran.code
    target, *_others, memory = ran.out.decode().splitlines()
    assert target.endswith("on cuda")
    assert memory.endswith("; fits, 7.3 GiB are free on a GPU with 8 GB")


def test_a_model_is_marked_for_this_machine(monkeypatch):
    monkeypatch.setattr(machine, "main_memory", lambda: machine.Device(CPU, "a CPU", 8 * GIB, 16 * GIB))
    monkeypatch.setattr(machine, "detect_gpus", lambda: ())
    lines = command(monkeypatch, "vram", "Qwen3-8B", "--ctx", "8k").out.decode().splitlines()

    assert "on a CPU, 8.0 GiB free" == lines[1]
    assert lines[3].endswith(" no") and lines[6].endswith(" fits")


def test_a_gguf_file_keeps_its_blocks_on_a_gpu_with_triton(monkeypatch, tmp_path):
    path, tables = write_gguf(tmp_path / "tiny.gguf", "qwen3", storage="Q8_0"), list[str]()
    for missing in ("", "Triton is not installed"):
        monkeypatch.setattr(memory_plan, "missing_triton", lambda missing=missing: missing)
        tables.append(command(monkeypatch, "vram", str(path), "--gpu-memory", "8", "--ctx", "256").out.decode())

    assert ["\ngguf " in table for table in tables] == [True, False]


def test_options_of_a_model_need_a_model(monkeypatch):
    ran = command(monkeypatch, "vram", "--json")

    assert 2 == ran.code
    assert "need a MODEL" in ran.err
