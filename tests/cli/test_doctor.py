"""`specchat doctor`: its exit code with every fault that can be planted, and no traceback in any case."""

from __future__ import annotations

import json
import shutil
import sys
from _thread import interrupt_main
from datetime import date
from threading import Event as Flag

import pytest

from specchat.checks import health_checks
from specchat.checks.health_checks import FAIL, OK, WARN, CheckContext, catalog_age
from specchat.cli import doctor
from specchat.cli.doctor import BROKEN_EXIT_CODE
from specchat.forward.native.native_build import COMPILERS
from specchat.host.client import Conversation, HostConnection
from specchat.hub import machine
from specchat.plugins import discovery
from tests.each_row import each_row
from tests.front import command
from tests.host.conftest import runtime  # noqa: F401 (a fixture)
from tests.processes import modules_after
from tests.tiny import speaking


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    """A world of its own: state, configuration, measurements and the cache of the hub."""
    state = tmp_path / "s"
    state.mkdir(mode=0o700)
    monkeypatch.setenv("SPECCHAT_RUNTIME", str(state))
    monkeypatch.setenv("SPECCHAT_CACHE", str(state))
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(discovery, "installed_plugins", lambda: ())
    return tmp_path


def looked(monkeypatch, *arguments: str) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """The exit code, and what was said of each thing."""
    ran = command(monkeypatch, "doctor", "--json", *arguments)
    said = json.loads(ran.out)
    assert "Traceback" not in ran.err
    assert ran.code == said["exit_code"]
    found: dict[str, list[tuple[str, str]]] = {}
    for each in said["findings"]:
        found.setdefault(each["check"], []).append((each["status"], each["message"]))
    return ran.code, found


def profile(tmp_path, name: str, text: str) -> None:
    folder = tmp_path / "config" / "profiles"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.toml").write_text(text, encoding="utf-8")


def test_a_machine_in_order_leaves_with_0(monkeypatch):
    code, found = looked(monkeypatch, "--quick")

    assert 0 == code
    assert all(verdict != FAIL for findings in found.values() for verdict, _ in findings)
    assert "embedded/target): " in found["model: target"][0][1]
    assert "not running" in found["engine"][0][1]


@pytest.mark.usefixtures("runtime")
def test_an_engine_that_runs_is_described(monkeypatch):
    talk = Conversation()
    list(talk.ask("count 2"))
    process_id = talk.call("hello")["pid"]
    closed, close = list[HostConnection](), HostConnection.close
    monkeypatch.setattr(HostConnection, "close", lambda each: (closed.append(each), close(each)))

    _code, found = looked(monkeypatch, "--quick")

    verdict, message = found["engine"][0]
    assert verdict == OK
    assert message.startswith(f"process {process_id}, ready, 1 conversation, 0 MiB of models and conversations")
    assert 1 == len(closed)


@each_row("today, found", [(date(2026, 11, 23), 0), (date(2027, 11, 25), 1)])
def test_a_catalog_that_nobody_reviewed_for_a_year_is_a_warning(today, found):
    findings = list(catalog_age(date(2026, 11, 23), today))

    assert [WARN] * found == [each.status for each in findings]
    assert all("last reviewed on 2026-11-23" in each.message for each in findings)


def test_lines_for_people_end_with_a_count(monkeypatch):
    ran = command(monkeypatch, "doctor", "--quick")

    assert 0 == ran.code
    assert ran.out.decode().splitlines()[0].startswith("ok    python")
    assert "warnings, 0 broken" in ran.out.decode().splitlines()[-1]


def test_a_profile_that_cannot_be_read_is_a_fault_even_if_nobody_asks_for_it(monkeypatch, own_folders):
    profile(own_folders, "mine", "[limits]\nanwser = 3\n")
    code, found = looked(monkeypatch, "--quick")

    assert BROKEN_EXIT_CODE == code
    assert (FAIL, found["profile"][0][1]) == found["profile"][0]
    assert "unknown key 'anwser'" in found["profile"][0][1]
    assert found["plugin"]


def test_a_broken_file_of_the_user_is_a_fault(monkeypatch, own_folders):
    (own_folders / "config").mkdir()
    (own_folders / "config" / "config.toml").write_text("[limits\n")
    code, found = looked(monkeypatch, "--quick")

    assert BROKEN_EXIT_CODE == code
    assert "config.toml:1: not valid TOML" in found["profile"][0][1]


def test_an_unknown_profile_is_a_fault_and_the_rest_is_still_looked_at(monkeypatch):
    code, found = looked(monkeypatch, "--quick", "-P", "gone")

    assert BROKEN_EXIT_CODE == code
    assert FAIL == found["profile"][-1][0]
    assert OK == found["plugin"][0][0]


@each_row("target, said", [
    ("/nowhere/model", "/nowhere/model: no such folder"),
    ("org/name", "org/name is not on this disk; specchat models pull org/name"),
    ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B is not on this disk; specchat models pull Qwen/Qwen3-0.6B"),
])  # fmt: skip
def test_a_model_that_is_not_here_is_a_fault(monkeypatch, own_folders, target, said):
    profile(own_folders, "mine", f'extends = "chat"\n[models]\ntarget = "{target}"\ndraft = ""\n')
    code, found = looked(monkeypatch, "--quick", "-P", "mine")

    assert BROKEN_EXIT_CODE == code
    assert FAIL == found["model: target"][0][0]
    assert said in found["model: target"][0][1]


def test_a_draft_model_that_is_left_out_is_a_warning_as_in_every_plan(monkeypatch, own_folders):
    profile(own_folders, "mine", f'[models]\ntarget = "{speaking()}"\ndraft = "embedded"\n')

    code, found = looked(monkeypatch, "--quick", "-P", "mine")
    plan = command(monkeypatch, "ask", "--dry-run", "-P", "mine").out.decode()

    assert 0 == code
    [(verdict, message)] = found["model: draft"]
    assert WARN == verdict
    assert message.startswith("embedded is left out")
    assert f"draft   {message}\n" in plan


def test_a_model_that_does_not_fit_is_a_fault(monkeypatch, own_folders):
    config = {
        "model_type": "llama", "hidden_size": 65536, "vocab_size": 1000, "num_hidden_layers": 400,
        "num_attention_heads": 64, "intermediate_size": 262144,
    }  # fmt: skip
    huge = own_folders / "huge"
    huge.mkdir()
    (huge / "config.json").write_text(json.dumps(config))
    (huge / "tokenizer.json").write_text("{}")
    profile(own_folders, "mine", f'extends = "chat"\n[models]\ntarget = "{huge}"\ndraft = ""\n')
    code, found = looked(monkeypatch, "--quick", "-P", "mine")

    assert BROKEN_EXIT_CODE == code
    assert FAIL == found["memory needed"][0][0]


def test_a_folder_that_is_a_file_is_a_fault(monkeypatch, own_folders):
    (own_folders / "config").write_text("no folder")
    code, found = looked(monkeypatch, "--quick")

    assert BROKEN_EXIT_CODE == code
    assert FAIL == found["folder: configuration"][0][0]


@pytest.mark.skipif(sys.platform != "linux", reason="a folder that even root cannot write is known on Linux alone")
def test_a_folder_that_cannot_be_written_is_a_fault(monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", "/proc/models")
    code, found = looked(monkeypatch, "--quick")

    assert BROKEN_EXIT_CODE == code
    assert "cannot be written" in found["folder: models"][0][1]


def test_a_state_folder_that_others_can_read_is_a_fault(monkeypatch, own_folders):
    (own_folders / "s").chmod(0o755)
    code, found = looked(monkeypatch, "--quick")

    assert BROKEN_EXIT_CODE == code
    assert "is accessible to other users" in found["folder: runtime"][0][1]


def test_a_broken_plugin_is_told_of_and_breaks_nothing(monkeypatch):
    monkeypatch.setattr(
        discovery, "installed_plugins", lambda: (discovery.Plugin("sums", "pkg", "1", error="ValueError: not today"),)
    )
    code, found = looked(monkeypatch, "--quick")

    assert 0 == code
    assert [(WARN, "sums is not loaded: ValueError: not today")] == found["plugin"]


def test_a_check_that_faints_is_a_finding_like_others(monkeypatch):
    def faint():
        raise RuntimeError("no such file\nsecond line")

    monkeypatch.setattr(discovery, "installed_plugins", faint)
    code, found = looked(monkeypatch, "--quick")

    assert BROKEN_EXIT_CODE == code
    assert [(FAIL, "RuntimeError: no such file")] == found["plugins"]


def test_a_broken_torch_is_a_fault_and_what_can_be_done_without_is_not(monkeypatch):
    troubles = {
        "torch": {"error": "ImportError: libc10.so"},
        "bitsandbytes": {"version": "1", "computes": False},
        "native_ops": {"error": "no C++ compiler; install one"},
    }
    monkeypatch.setattr(health_checks, "probe", troubles.get)
    monkeypatch.setattr(health_checks, "memory_bandwidth", lambda: 10e9)
    code, found = looked(monkeypatch)

    assert BROKEN_EXIT_CODE == code
    assert "ImportError: libc10.so" in found["torch"][0][1]
    assert WARN == found["bitsandbytes"][0][0]
    without = "not used: torch computes, small models are slower on the CPU"
    assert [(WARN, f"{without}: no C++ compiler; install one")] == found["native ops"]
    assert WARN == found["bandwidth"][0][0]


def test_while_it_waits_it_says_for_what(monkeypatch):
    others_are_done = Flag()

    def answer(package: str) -> dict[str, str]:
        if package == "bitsandbytes":
            assert others_are_done.wait(60)
        return {"error": "not today"}

    def note(line: str) -> None:
        notes.append(line)
        if line == "waiting for bitsandbytes":
            others_are_done.set()

    notes = list[str]()
    monkeypatch.setattr(health_checks, "probe", answer)
    monkeypatch.setattr(health_checks, "memory_bandwidth", lambda: 10e9)
    monkeypatch.setattr(doctor, "print_note", note)

    assert BROKEN_EXIT_CODE == command(monkeypatch, "doctor").code
    assert "waiting for bitsandbytes" == notes[-1]
    assert "torch, bitsandbytes and native ops" in notes[0]


@pytest.mark.full
def test_bitsandbytes_is_tried_without_the_compiler_of_torch():
    code = "from specchat.hub.package_probes import PROBES; print(PROBES['bitsandbytes']())"

    assert "torch._inductor" not in modules_after(code)


def test_an_interrupted_doctor_waits_for_no_probe(monkeypatch):
    may_end, ended = Flag(), list[str]()

    def probe(name: str) -> dict[str, str]:
        interrupt_main()
        may_end.wait(120)
        ended.append(name)
        return {}

    monkeypatch.setattr(health_checks, "probe", probe)
    with pytest.raises(KeyboardInterrupt):
        assert CheckContext().package_probes

    assert not ended
    may_end.set()


def test_a_probe_that_dies_says_its_last_line(monkeypatch, tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'Traceback' >&2\necho 'ImportError: no torch' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))

    assert {"error": "ImportError: no torch"} == machine.probe("torch")


@pytest.mark.full
def test_kernels_that_are_not_wanted_are_a_trouble_of_the_probe(monkeypatch):
    monkeypatch.setenv("SPECCHAT_KERNELS", "none")

    assert {"error": "SPECCHAT_KERNELS=none is set"} == machine.probe("native_ops")


@pytest.mark.full
@pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="no C++ compiler here")
def test_kernels_are_tried_in_a_process_of_their_own():
    assert {"computes": True, "origin": "compiled here, for this CPU"} == machine.probe("native_ops")


def test_the_bandwidth_is_measured_in_bytes_a_second():
    assert 1e8 < machine.memory_bandwidth(threads=1) < 1e13


@pytest.mark.full
def test_a_quick_look_imports_no_torch():
    assert "torch" not in modules_after("from specchat.cli.main import run; run(['doctor', '--quick'])")
