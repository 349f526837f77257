"""`specchat models`: the list, the advice, and a removal."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from specchat.cli import models_recommend
from specchat.devices import CPU
from specchat.hub import machine
from specchat.hub.catalog import catalog
from specchat.hub.machine import Device, Machine
from specchat.hub.memory_plan import GIB
from specchat.profile.profile_files import load_profile
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from tests.each_row import each_row
from tests.front import command
from tests.gguf_models import write_gguf
from tests.processes import modules_after

MEASURE_MACHINE = models_recommend.measure_machine
SMALL_MACHINE = Machine((Device(CPU, "a CPU", 6 * GIB, 8 * GIB),), ("AVX2", "AVX512", "VNNI", "BF16"), 12e9)


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    """A configuration and a cache of the hub of their own, and a small machine without a GPU."""
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(models_recommend, "measure_machine", lambda **_options: SMALL_MACHINE)


def printed(monkeypatch, *arguments: str) -> str:
    ran = command(monkeypatch, "models", *arguments)
    assert 0 == ran.code, ran.err
    return ran.out.decode()


def test_the_list_names_all_there_is_and_what_lies_here(monkeypatch):
    text = printed(monkeypatch, "list")

    assert all(name in text for name in catalog())
    assert "embedded/target" in text
    assert "embedded/target" in printed(monkeypatch, "list", "--here")
    assert "Qwen" not in printed(monkeypatch, "list", "--here")


@each_row("width", [60, 80, 100])
def test_the_lists_fit_every_terminal_and_no_column_runs_into_another(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    ran = command(monkeypatch, "models", "list", on_terminal=True)
    shown = ran.out.decode()
    advice = command(monkeypatch, "models", "recommend", "--memory", "24", on_terminal=True).out.decode()

    assert all(len(line) <= width for line in (*shown.splitlines(), *advice.splitlines()))
    assert all(name in shown for name in catalog())
    facts = r"34\.7 B,? +17\.9 GiB,? +24 GB,? +mtp dflash dspark draft, +Apache-2\.0"
    assert re.search(facts, " ".join(shown.split()))
    assert not re.search(r"  +$", shown, re.MULTILINE)


def test_a_pipe_gets_a_model_in_a_line(monkeypatch):
    lines = printed(monkeypatch, "list").splitlines()

    ends = ("mtp dflash dspark draft, Apache-2.0", "draft, fills gaps, Qwen Research (not for commerce)")
    for name, end in zip(("Qwen/Qwen3.6-35B-A3B ", "Qwen2.5-Coder-3B"), ends, strict=True):
        assert [end] == [line[-len(end) :] for line in lines if name in line]


def test_local_models_of_other_programs_are_listed_with_what_fits(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    path = write_gguf(tmp_path / ".lmstudio/models/someone/Tiny/tiny.gguf", storage="Q8_0")
    torn = path.with_name("torn.gguf")
    torn.write_bytes(path.read_bytes()[:1000])

    text = printed(monkeypatch, "list", "--local")

    lines = {line.split()[0]: line.split(maxsplit=4)[-1] for line in text.splitlines()}
    assert lines["lmstudio:someone/Tiny:tiny"].split() == ["yes"]
    damaged = next(line for line in text.splitlines() if ":torn" in line)
    assert "damaged or incomplete GGUF" in damaged
    assert str(tmp_path) not in damaged  # its name stands there, and a path makes lines too long
    listed = json.loads(printed(monkeypatch, "list", "--local", "--json"))["downloaded"]
    found = next(each for each in listed if each["path"] == str(path))
    assert (found["quantization"], found["bytes"], found["fits"]) == ("Q8_0", path.stat().st_size, "bf16")


def test_what_was_made_from_a_gguf_file_is_removed(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    path = write_gguf(tmp_path / "tiny.gguf")
    folder = prepared_gguf(path)

    printed(monkeypatch, "remove", str(path), "--yes")

    assert path.exists()
    assert not folder.exists()


def test_programs_get_the_list_in_bytes(monkeypatch):
    said = json.loads(printed(monkeypatch, "list", "--json"))

    assert len(catalog()) == len(said["catalog"])
    assert 15.2 < next(each for each in said["catalog"] if each["id"] == "Qwen/Qwen3-8B")["bytes"]["bf16"] / GIB < 15.4
    assert all(each["bytes"] > 0 for each in said["downloaded"])
    assert {"Qwen/Qwen3.5-4B": "2026-03-02", "google/gemma-3-4b-it": "2025-03-12"}.items() <= {
        each["id"]: each["released"] for each in said["catalog"]
    }.items()


def test_recommended_models_stand_before_those_that_are_only_known(monkeypatch):
    lines = printed(monkeypatch, "list").splitlines()
    last_recommended = max(index for index, line in enumerate(lines) if " starter " in line or "Qwen3.5-9B" in line)
    older = [index for index, line in enumerate(lines) if "not recommended: superseded by Gemma 4" in line]

    assert older
    assert last_recommended < min(older)


def test_the_advice_names_the_best_two_others_and_the_profile(monkeypatch):
    text = printed(monkeypatch, "recommend", "--memory", "24")

    assert "best Qwen/Qwen3.8-27B: 54.6 GB to download" in text
    assert 2 == text.count("\nor   ")
    assert "specchat models pull Qwen/Qwen3.8-27B\n" in text  # its head is in the same checkpoint
    printed(monkeypatch, "recommend", "--memory", "24", "--save", "mine")
    models = load_profile("mine").models
    assert ("Qwen/Qwen3.8-27B", ("Qwen/Qwen3.8-27B",)) == (models.target, models.heads)


def test_the_advice_for_no_card_is_small_and_honest(monkeypatch):
    text = printed(monkeypatch, "recommend")

    assert "best Qwen/Qwen3.5-0.8B: " in text
    assert " in int8 with 8192 tokens; about " in text
    assert "speeds are estimated from 12 GB/s" in text
    printed(monkeypatch, "recommend", "--save", "mine")
    assert "cpu" == load_profile("mine").models.device


def test_where_nothing_fits_the_embedded_models_are_named(monkeypatch):
    assert "the embedded models run in 1 GiB" in printed(monkeypatch, "recommend", "--memory", "1")


def test_the_best_pair_can_be_saved_and_used(monkeypatch, tmp_path):
    printed(monkeypatch, "recommend", "--memory", "16", "--save", "mine")
    profile = load_profile("mine")

    assert ("google/gemma-4-12B-it", "nf4-double") == (profile.models.target, profile.models.weights)
    assert 8192 == profile.limits.context
    assert ["mine.toml"] == [path.name for path in (tmp_path / "config" / "profiles").iterdir()]


def test_a_saved_profile_is_not_replaced_unasked(monkeypatch):
    arguments = ("recommend", "--memory", "16", "--save", "mine")
    printed(monkeypatch, *arguments)
    ran = command(monkeypatch, "models", *arguments)

    assert 2 == ran.code
    assert "already exists" in ran.err
    assert printed(monkeypatch, *arguments, "--force")


@each_row("name", ["../x", "a/b", "", "x.toml", "-x"])
def test_a_name_that_leaves_the_folder_is_refused(monkeypatch, name):
    assert 2 == command(monkeypatch, "models", "recommend", "--memory", "16", "--save", name or " ").code


@pytest.mark.full
def test_nothing_heavy_is_imported_for_advice():
    heavy = {"torch", "transformers", "huggingface_hub"}
    program = (
        "from specchat.cli.main import run; run(['models', 'list']); run(['models', 'recommend', '--memory', '8'])"
    )

    assert not heavy & modules_after(program)


def test_two_measurements_that_differ_by_noise_give_the_same_choice(monkeypatch, tmp_path, capsys):
    """The bandwidth is measured once and kept; `--measure` measures again, and rounds the noise away."""
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(models_recommend, "measure_machine", MEASURE_MACHINE)
    monkeypatch.setattr(models_recommend, "detect_machine", lambda: replace(SMALL_MACHINE, bytes_per_second=None))
    measured = iter([5e9, 11.1e9, 9.2e9, 12.9e9, 40e9])
    monkeypatch.setattr(models_recommend, "memory_bandwidth", lambda: next(measured))

    monkeypatch.setattr(models_recommend, "is_busy", lambda: True)
    assert 5e9 == models_recommend.measure_machine().bytes_per_second
    assert "other programs compute now, so it is measured again next time" in capsys.readouterr().err
    monkeypatch.setattr(models_recommend, "is_busy", lambda: False)

    first, second = measure_twice = [models_recommend.measure_machine() for _ in range(2)]
    assert [10e9, 10e9] == [each.bytes_per_second for each in measure_twice]
    assert 1 == capsys.readouterr().err.count("measuring the bandwidth")
    again = [models_recommend.measure_machine(measures_again=True) for _ in range(3)]
    assert [10e9, 10e9, 40e9] == [each.bytes_per_second for each in again]
    best = [models_recommend.recommend(each.best_device, each)[0].entry.id for each in (first, second, *again[:2])]
    assert 1 == len(set(best))


def test_another_cpu_is_measured_anew(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    assert machine.kept_bandwidth() is None
    machine.keep_bandwidth(21e9)
    assert 20e9 == machine.kept_bandwidth()
    monkeypatch.setattr(machine, "cpu_name", lambda: "another CPU")

    assert machine.kept_bandwidth() is None
