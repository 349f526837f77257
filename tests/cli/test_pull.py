"""`specchat models pull` and `remove` at the command line: what is said, what is asked, and what Ctrl-C leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.each_row import each_row
from tests.front import Ran, command
from tests.hub.fake_hub import WEIGHTS, FakeHub, reach, serving

MODEL, HEAD, ASSISTANT = "some/model", "some/head", "google/gemma-4-E2B-it-assistant"
FILES = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": WEIGHTS}
HEAD_FILES = {"config.json": b'{"head": 1}', "pytorch_model.bin": b"tensors"}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with serving(FakeHub({MODEL: dict(FILES), HEAD: dict(HEAD_FILES)})) as served:
        reach(served, tmp_path / "hub", monkeypatch)
        yield served


def pulled(monkeypatch, *arguments: str, answer: bytes = b"", on_terminal: bool = False) -> Ran:
    return command(monkeypatch, "models", "pull", *arguments, stdin=answer, on_terminal=on_terminal)


def removed(monkeypatch, *arguments: str, answer: bytes = b"", on_terminal: bool = False) -> Ran:
    return command(monkeypatch, "models", "remove", *arguments, stdin=answer, on_terminal=on_terminal)


def test_before_it_asks_it_says_how_large_under_which_licence_and_where_to(hub, monkeypatch, tmp_path):
    ran = pulled(monkeypatch, MODEL, answer=b"n\n", on_terminal=True)

    assert "some/model: 4.2 MB in 3 files, licence apache-2.0" in ran.err
    assert "not pinned by specchat" in ran.err
    assert f"into {tmp_path / 'hub' / 'models--some--model'}, where" in ran.err
    assert "Download? [y/N]" in ran.err and "nothing was downloaded" in ran.err
    assert ran.code == 8 and hub.requests == []


def test_it_says_whom_it_asks(hub, monkeypatch):
    assert pulled(monkeypatch, MODEL, "--yes").err.startswith(f"asking {hub.endpoint} about {MODEL}\n")


def test_a_yes_brings_the_model_and_prints_its_folder_alone(hub, monkeypatch):
    ran = pulled(monkeypatch, MODEL, answer=b"y\n", on_terminal=True)

    assert ran.code == 0
    assert (Path(ran.out.decode().strip()) / "model.safetensors").read_bytes() == WEIGHTS


def test_a_head_comes_along_and_its_pickle_because_it_has_nothing_else(hub, monkeypatch):
    ran = pulled(monkeypatch, MODEL, "--draft", HEAD, "--yes")

    model, head = (Path(line) for line in ran.out.decode().splitlines())
    assert (model / "model.safetensors").exists()
    assert (head / "pytorch_model.bin").read_bytes() == b"tensors"


def test_a_head_of_a_plugin_says_what_to_install(hub, monkeypatch):
    hub.models[ASSISTANT] = dict(HEAD_FILES)

    said = pulled(monkeypatch, MODEL, "--draft", ASSISTANT, "--yes").err
    assert (
        "  variant 'assistant' is of a plugin; in a clone of specchat, 'pip install ./plugins/specchat-heads'" in said
    )
    assert "is of a plugin" not in pulled(monkeypatch, MODEL, "--draft", HEAD, "--yes").err


def test_without_a_terminal_nobody_agrees(hub, monkeypatch):
    ran = pulled(monkeypatch, MODEL)

    assert ran.code == 2 and "--yes gives it" in ran.err and hub.requests == []


def test_what_is_here_is_not_asked_about(hub, monkeypatch):
    pulled(monkeypatch, MODEL, "--yes")
    ran = pulled(monkeypatch, MODEL)

    assert ran.code == 0 and "complete" in ran.err


def test_a_disk_that_is_too_small_ends_it_before_the_question(hub, monkeypatch):
    monkeypatch.setattr("specchat.hub.disk_space.free_bytes", lambda folder: 5)

    ran = pulled(monkeypatch, MODEL, on_terminal=True)

    assert ran.code == 7 and "the download needs 4.2 MB, and 5 bytes are free" in ran.err and "Download?" not in ran.err


@each_row("refused", [(401, "GatedRepo"), (403, ""), (404, "RepoNotFound")])
def test_a_refusal_is_one_line_and_exit_code_7(hub, monkeypatch, refused):
    hub.refused = refused

    ran = pulled(monkeypatch, MODEL, "--yes")

    _asking, said = ran.err.splitlines()
    assert ran.code == 7 and said.startswith(f"specchat: {MODEL}: ")


def test_a_wrong_hash_ends_with_exit_code_7(hub, monkeypatch):
    hub.corrupt = True

    ran = pulled(monkeypatch, MODEL, "--yes")

    assert ran.code == 7 and "model.safetensors" in ran.err and ran.out == b""


def test_offline_asks_nobody_and_says_what_is_not_here(hub, monkeypatch):
    hub.refused = (500, "")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    ran = pulled(monkeypatch, MODEL)

    assert ran.code == 7
    assert ran.err == f"specchat: {MODEL}: not on this machine, and HF_HUB_OFFLINE forbids the network; unset it\n"


def test_offline_may_be_said_by_the_environment(hub, monkeypatch):
    folder = pulled(monkeypatch, MODEL, "--yes").out
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.refused = (500, "")

    assert pulled(monkeypatch, MODEL).out == folder
    assert pulled(monkeypatch, HEAD).code == 7


def test_ctrl_c_keeps_what_came_and_the_next_pull_says_that_it_goes_on(hub, monkeypatch, tmp_path):
    hub.trickle_after = 2_500_000  # not silence: a signal just before a blocking read takes effect after the read
    told = {"HF_ENDPOINT": hub.endpoint, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "0"}
    line = [sys.executable, "-m", "specchat", "models", "pull", MODEL, "--yes"]
    with subprocess.Popen(line, env={**os.environ, **told}, stderr=subprocess.PIPE, text=True) as asking:
        try:
            while _partial_bytes(tmp_path) < 1 << 20:
                assert asking.poll() is None
                time.sleep(0.02)
            asking.send_signal(signal.SIGINT)
            _, said = asking.communicate(timeout=180)
        finally:
            asking.kill()
    here = _partial_bytes(tmp_path)
    hub.trickle_after = None

    ran = pulled(monkeypatch, MODEL, "--yes")

    assert asking.returncode == 130
    assert "the downloaded part is kept; the same command resumes" in said
    assert f"resumes model.safetensors at {here / 1e6:.1f} MB of 4.2 MB" in ran.err
    assert ("model.safetensors", f"bytes={here}-") in hub.requests
    assert ran.code == 0


def test_a_bar_is_drawn_on_a_terminal_and_nowhere_else(hub, monkeypatch):
    hub.models[MODEL]["[/bold].json"] = b"{}"
    drawn = pulled(monkeypatch, MODEL, answer=b"y\n", on_terminal=True).err
    quiet = pulled(monkeypatch, HEAD, "--yes").err

    assert "━" in drawn and "━" not in quiet and "\x1b" not in quiet


def test_what_is_removed_is_gone_and_its_size_was_said(hub, monkeypatch, tmp_path):
    pulled(monkeypatch, MODEL, "--draft", HEAD, "--yes")

    ran = removed(monkeypatch, MODEL, answer=b"y\n", on_terminal=True)

    assert ran.code == 0 and f"{MODEL}: 4.2 MB in " in ran.err
    assert [path.name for path in (tmp_path / "hub").glob("models--*")] == ["models--some--head"]


def test_what_cannot_be_deleted_is_one_line(hub, monkeypatch, tmp_path):
    pulled(monkeypatch, MODEL, "--yes")

    def refuse(*_given: object, **_options: object) -> None:
        raise PermissionError("not this folder")

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", refuse)
        ran = removed(patched, MODEL, "--yes")

    assert ran.code == 7 and "some/model: some files could not be deleted; see " in ran.err
    assert "Traceback" not in ran.err


def test_a_model_with_the_same_history_is_left_alone(hub, monkeypatch, tmp_path):
    copies = [f"some/copy-{number}" for number in range(6)]
    for copy in copies:
        hub.models[copy] = HEAD_FILES
        pulled(monkeypatch, copy, "--yes")

    removed(monkeypatch, copies[0], "--yes")

    left = [path.name for path in (tmp_path / "hub").glob("models--some--copy-*")]
    assert sorted(left) == [f"models--some--copy-{number}" for number in range(1, 6)]


def test_half_a_download_can_be_removed_too(hub, monkeypatch, tmp_path):
    hub.corrupt = True
    pulled(monkeypatch, MODEL, "--yes")

    assert removed(monkeypatch, MODEL, "--yes").code == 0
    assert not list((tmp_path / "hub").glob("models--*"))


@each_row("arguments, on_terminal, code", [((), False, 2), ((), True, 8)])
def test_nothing_is_removed_unless_somebody_agrees(hub, monkeypatch, arguments, on_terminal, code):
    folder = Path(pulled(monkeypatch, MODEL, "--yes").out.decode().strip())

    ran = removed(monkeypatch, MODEL, answer=b"n\n", on_terminal=on_terminal)

    assert ran.code == code and (folder / "model.safetensors").exists()


@each_row("source", ["/tmp/model", "./model", "embedded", "embedded/eagle3", "~/model", "not/pulled"])
def test_only_what_is_in_the_cache_is_removed(hub, monkeypatch, source):
    assert removed(monkeypatch, source, "--yes").code == 7


def test_a_folder_that_the_cache_only_points_to_is_left_alone(hub, monkeypatch, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "weights").write_text("precious")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "models--some--model").symlink_to(mine)

    assert removed(monkeypatch, MODEL, "--yes").code == 7
    assert (mine / "weights").exists()


def _partial_bytes(tmp_path: Path) -> int:
    """The size of the largest file that is on its way; small ones come and go meanwhile."""
    sizes = [0]
    for path in tmp_path.glob("hub/*/blobs/*.incomplete"):
        with suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return max(sizes)
