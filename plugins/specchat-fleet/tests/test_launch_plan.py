"""Server commands: the models and the speculative method of a profile, for each server and release."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from fake_server import MODEL, serving
from metrics_pages import VLLM

from specchat.devices import CUDA
from specchat.hub.machine import Device
from specchat.profile.keys import Profile
from specchat.profile.profile_files import load_profile
from specchat.weights.gguf.gguf_manifest import GgufManifest, SourceFile
from specchat_fleet.installed_servers import installed_version
from specchat_fleet.launch_plan import DOCUMENTED_VERSIONS, EMBEDDED, LaunchPlan, plan_launch, resolve_server_config
from tests.each_row import each_row
from tests.front import command
from tests.plugins.conftest import installed_plugin

BIG = {
    "models.target": "org/big",
    "models.draft": "org/small",
    "models.heads": ["org/EAGLE3-big"],
    "limits.context": 4096,
}


def launch(server: str, installed: str | None = None, **values: object) -> LaunchPlan:
    return plan_launch(server, resolve_server_config(Profile().override({**BIG, **values})), installed)


def after(launch: LaunchPlan, word: str) -> str:
    return launch.command[launch.command.index(word) + 1]


def variant(name: str, **values: object) -> dict[str, object]:
    return {"speculation.variant": name, **values}


@each_row(
    "name, config",
    [
        ("eagle3", {"method": "eagle3", "model": "org/EAGLE3-big", "num_speculative_tokens": 4}),
        ("draft", {"method": "draft_model", "model": "org/small", "num_speculative_tokens": 5}),
        ("mtp", {"method": "mtp", "num_speculative_tokens": 1}),
        ("suffix", {"method": "suffix", "num_speculative_tokens": 16}),
        (
            "lookup",
            {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2},
        ),
    ],
)
def test_vllm_takes_its_speculative_config_as_json(name, config):
    line = launch("vllm", **variant(name))

    assert line.command[:3] == ("vllm", "serve", "org/big")
    assert json.loads(after(line, "--speculative-config")) == config
    assert after(line, "--max-model-len") == "4096" and after(line, "--host") == "127.0.0.1"


def test_an_older_installed_vllm_gets_its_own_option_names():
    oldest = launch("vllm", "0.7.3", **variant("draft"))
    between = launch("vllm", "0.9.1", **variant("draft"))
    newest = launch("vllm", **variant("draft"))

    assert after(oldest, "--speculative-model") == "org/small" and after(oldest, "--num-speculative-tokens") == "5"
    assert json.loads(after(between, "--speculative-config"))["method"] == "ngram"
    assert between.notes == ("vLLM 0.9.1 does not support draft; using n-gram speculation instead",)
    assert "--per-request-spec-decode-metrics" in newest.command
    assert "--per-request-spec-decode-metrics" not in between.command
    assert (oldest.version, oldest.is_installed, newest.version, newest.is_installed) == (
        "0.7.3",
        True,
        DOCUMENTED_VERSIONS["vllm"],
        False,
    )


@each_row(
    "name, algorithm, draft",
    [("eagle3", "EAGLE3", "org/EAGLE3-big"), ("draft", "STANDALONE", "org/small"), ("mtp", "NEXTN", None)],
)
def test_sglang_drafts_a_chain(name, algorithm, draft):
    line = launch("sglang", **variant(name))

    assert after(line, "--speculative-algorithm") == algorithm
    assert draft is None or after(line, "--speculative-draft-model-path") == draft
    steps, rows = after(line, "--speculative-num-steps"), after(line, "--speculative-num-draft-tokens")
    assert after(line, "--speculative-eagle-topk") == "1" and int(rows) == int(steps) + 1
    assert "--enable-metrics" in line.command


def test_llama_cpp_takes_gguf_files_and_renamed_its_options():
    new, old = launch("llama.cpp", **variant("draft")), launch("llama.cpp", "8000", **variant("draft"))

    assert (after(new, "-m"), after(new, "-md"), after(new, "--spec-draft-n-max")) == ("big.gguf", "small.gguf", "5")
    assert after(new, "--spec-type") == "draft-simple"
    assert after(old, "--draft-max") == "5" and "--spec-type" not in old.command
    assert ["the model must be a GGUF file", "the draft model must be a GGUF file"] == [
        note.partition(":")[0] for note in new.notes
    ]


def test_llama_cpp_takes_the_file_of_a_model_that_is_one(tmp_path, monkeypatch):
    own = launch("llama.cpp", **variant("lookup", **{"models.target": str(tmp_path / "own.gguf")}))
    manifest = GgufManifest((SourceFile(tmp_path / "starter.gguf", 1, 1),), "Q4_1", ())
    monkeypatch.setattr("specchat_fleet.launch_plan.find_model", lambda _name: tmp_path)
    monkeypatch.setattr("specchat_fleet.launch_plan.safetensors_folder", lambda folder: folder)
    monkeypatch.setattr(GgufManifest, "from_folder", lambda _folder: manifest)
    starter = launch("llama.cpp", **variant("lookup", **{"models.target": "starter"}))

    assert (str(tmp_path / "own.gguf"), ()) == (after(own, "-m"), own.notes)
    assert (str(tmp_path / "starter.gguf"), ()) == (after(starter, "-m"), starter.notes)


@each_row("server", ["vllm", "sglang"])
def test_medusa_is_gone_from_newer_servers(server):
    line = launch(server, **variant("auto", **{"models.heads": ["org/medusa"], "models.draft": ""}))

    assert "using n-gram speculation instead" in line.notes[0] and "org/medusa" not in " ".join(line.command)


DSPARK = variant("auto", **{"models.heads": ["org/big-speculator.dspark"]})


def test_a_dspark_head_is_given_to_each_server_as_such():
    vllm, sglang, llama_cpp = (launch(server, **DSPARK) for server in ("vllm", "sglang", "llama.cpp"))

    assert json.loads(after(vllm, "--speculative-config")) == {
        "method": "dspark", "model": "org/big-speculator.dspark", "num_speculative_tokens": 7
    }  # fmt: skip
    assert after(sglang, "--speculative-algorithm") == "DSPARK" and "--speculative-num-steps" not in sglang.command
    assert after(llama_cpp, "--spec-type") == "draft-dspark"


@each_row(
    "head, config",
    [("org/big-P-EAGLE", {"method": "eagle3", "parallel_drafting": True}), ("org/big-DFlash2", {"method": "dflash"})],
)
def test_vllm_drafts_in_one_pass_with_heads_that_can(head, config):
    line = launch("vllm", **variant("auto", **{"models.heads": [head]}))

    assert json.loads(after(line, "--speculative-config")) == {"model": head, "num_speculative_tokens": 7, **config}


def test_other_servers_have_no_p_eagle():
    for server in ("sglang", "llama.cpp"):
        line = launch(server, **variant("auto", **{"models.heads": ["org/big-P-EAGLE"]}))
        assert "does not support peagle; using n-gram speculation instead" in " ".join(line.notes)


def test_an_older_vllm_has_no_dspark():
    assert launch("vllm", "0.24.0", **DSPARK).notes == (
        "vLLM 0.24.0 does not support dspark; using n-gram speculation instead",
    )


def test_no_server_is_given_a_hydra_head(tmp_path):
    (tmp_path / "config.json").write_text('{"hydra_num_heads": 3}')

    line = launch("vllm", **variant("auto", **{"models.heads": [str(tmp_path)]}))

    assert (json.loads(after(line, "--speculative-config"))["method"], line.notes) == ("draft_model", ())


@each_row("server", DOCUMENTED_VERSIONS)
def test_plain_decoding_adds_no_speculative_option(server):
    line = launch(server, **variant("plain"))

    assert not any("spec" in word or "draft" in word or word == "-md" for word in line.command)


def test_auto_takes_a_head_then_a_draft_then_n_grams():
    assert resolve_server_config(Profile().override(BIG)).speculative_config.method == "eagle3"
    assert resolve_server_config(Profile().override({**BIG, "models.heads": []})).speculative_config.method == "draft"
    assert (
        resolve_server_config(
            Profile().override({**BIG, "models.heads": [], "models.draft": ""})
        ).speculative_config.method
        == "ngram"
    )
    assert (
        resolve_server_config(Profile().override({"models.target": "org/big"})).speculative_config.method == "ngram"
    )  # ours would not fit it


def test_a_drafter_without_a_server_method_is_replaced_with_a_note(tmp_path):
    with installed_plugin(Path(__file__).parents[2] / "specchat-heads", tmp_path):
        line = launch("vllm", **variant("assistant"))

    assert line.notes == ("no server supports assistant; using eagle3 instead",)


def test_a_smaller_budget_makes_shorter_drafts():
    line = launch("vllm", **variant("draft", **{"speculation.budget": 2}))

    assert json.loads(after(line, "--speculative-config"))["num_speculative_tokens"] == 2


def test_the_embedded_models_are_planned_by_their_folders():
    line = plan_launch("vllm", resolve_server_config(load_profile("chat")), None)

    assert line.command[2] == str(EMBEDDED / "target")
    assert json.loads(after(line, "--speculative-config"))["model"] == str(EMBEDDED / "eagle3")


@each_row("free, split", [((), None), ((10**12, 10**12), None), ((10**9,) * 4, "4")])
def test_weights_are_split_over_as_few_gpus_as_fit(monkeypatch, free, split):
    found = tuple(Device(CUDA, "card", size, size) for size in free)
    monkeypatch.setattr("specchat.hub.machine.detect_gpus", lambda: found)

    line = launch("vllm", **{"models.target": "Qwen/Qwen3-8B"})

    assert split is None or after(line, "--tensor-parallel-size") == split
    assert split is not None or "--tensor-parallel-size" not in line.command


def test_every_server_is_planned_by_the_command(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    ran = command(monkeypatch, "fleet", "plan", "plain")

    assert ran.code == 0
    lines = ran.out.decode().splitlines()
    heads = [line for line in lines if "the newest known version" in line]
    assert len(heads) == 3 and heads[0].startswith(f"# vLLM {DOCUMENTED_VERSIONS['vllm']} ")


def test_without_a_server_up_says_so_in_one_line(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    ran = command(monkeypatch, "fleet", "up", "chat")

    assert ran.code == 7 and len(ran.err.splitlines()) == 1 and "specchat fleet plan chat" in ran.err


def test_an_installed_server_is_started_for_its_version(monkeypatch, tmp_path):
    program = tmp_path / "llama-server"
    program.write_text(f"#!{sys.executable}\nimport sys\nprint('version: 8000 (abc)', *sys.argv[1:])\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    started = []
    monkeypatch.setattr(os, "execvpe", lambda *call: started.append(call))

    ran = command(monkeypatch, "fleet", "up", "chat")

    assert ran.code == 0 and installed_version("llama.cpp") == "8000"
    ((file, words, environment),) = started
    assert environment["PYTHONSAFEPATH"] == "1"  # "python3 -m sglang" in any folder
    assert Path(file) == program and "--spec-type" in words and "llama.cpp 8000 (installed here)" in ran.err


def test_a_server_is_joined_and_its_profile_is_one_that_can_be_used(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path))
    page = VLLM.format(drafts=1, drafted=3, accepted=2)
    with serving(pages={"/metrics": lambda: page, "/version": lambda: '{"version": "0.33.0"}'}) as served:
        ran = command(monkeypatch, "fleet", "join", served.url.removesuffix("/v1"), "--save", "big")
        again = command(monkeypatch, "fleet", "join", served.url, "--save", "big")

    assert ran.code == 0 and "vllm 0.33.0, 1 model\n" in ran.err and "-P big" in ran.out.decode()
    models = load_profile("big").models
    assert (models.backend, models.url, models.target, models.heads) == ("vllm", served.url, MODEL, ())
    assert load_profile("big").limits.context == 4096
    assert again.code == 2 and "already exists" in again.err


def test_joining_says_what_is_missing(monkeypatch):
    with serving(owner="sglang") as served:
        ran = command(monkeypatch, "fleet", "join", served.url)
        other = command(monkeypatch, "fleet", "join", served.url, "--model", "org/other")

    assert "start it with --enable-metrics" in ran.err
    assert 'backend = "sglang"' in ran.out.decode()
    assert other.code == 2 and MODEL in other.err
    gone = command(monkeypatch, "fleet", "join", served.url)
    assert gone.code == 7 and "no server answers" in gone.err


@each_row(
    "arguments, told",
    [
        (("ftp://x",), "begins with http"),
        (("{url}", "--save", "../x"), "a name of letters"),
        (("{url}", "--key-file", "/nowhere/key"), "/nowhere/key is not readable"),
        (("http://127.0.0.1:9",), "no server answers"),
    ],
)
def test_what_cannot_be_joined_is_refused_in_one_line(monkeypatch, arguments, told):
    with serving() as served:
        ran = command(monkeypatch, "fleet", "join", *(each.format(url=served.url) for each in arguments))

    assert ran.code in (2, 7) and told in ran.err.splitlines()[-1]
