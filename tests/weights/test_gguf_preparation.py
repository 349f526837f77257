"""What is small in a GGUF file becomes a folder, once; the weights stay in the file."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from errno import ENOSPC
from threading import Event

import pytest

from specchat.errors import ModelError
from specchat.weights.gguf import gguf_preparation
from specchat.weights.gguf.gguf_manifest import GgufManifest
from specchat.weights.gguf.gguf_preparation import find_prepared, prepared_gguf
from tests.each_row import each_row
from tests.gguf_models import write_gguf


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))


def test_the_folder_has_no_weights(tmp_path):
    folder = prepared_gguf(write_gguf(tmp_path / "model.gguf"))

    names = ["config.json", "generation_config.json", "gguf.json", "tokenizer.json", "tokenizer_config.json"]
    assert ["chat_template.jinja", *names] == sorted(path.name for path in folder.iterdir())
    assert sum(path.stat().st_size for path in folder.iterdir()) < 30_000


def test_a_second_call_finds_the_folder_and_a_changed_file_makes_another(tmp_path):
    path = write_gguf(tmp_path / "model.gguf")

    first = prepared_gguf(path)

    assert find_prepared(path) == prepared_gguf(path) == first
    write_gguf(path, "qwen2")
    assert find_prepared(path) is None
    assert prepared_gguf(path) != first
    assert not first.exists()


def test_a_link_to_a_file_shares_its_folder_which_survives_the_link(tmp_path):
    path, link = write_gguf(tmp_path / "model.gguf"), tmp_path / "link"
    link.symlink_to(path)

    assert prepared_gguf(link) == prepared_gguf(path)
    link.unlink()
    assert GgufManifest.from_folder(prepared_gguf(path)).tensors


def test_parts_that_are_links_to_blobs_are_known_by_their_place(tmp_path):
    write_gguf(tmp_path / "snapshot/model.gguf", shard_tensors=8)
    parts = sorted((tmp_path / "snapshot").glob("*.gguf"))
    for number, part in enumerate(parts):  # as in the hub's cache
        blob = part.rename(tmp_path / f"blob{number}")
        part.symlink_to(blob)

    manifest = GgufManifest.from_folder(prepared_gguf(parts[0]))

    assert [f"blob{number}" for number in range(len(parts))] == [file.path.name for file in manifest.files]
    assert {file.path for file in manifest.files} == {tensor.source.path for tensor in manifest.tensors}


def test_a_folder_of_an_older_version_is_removed(tmp_path):
    path = write_gguf(tmp_path / "model.gguf")
    older = tmp_path / "cache/gguf/model-0123456789abcdef"
    older.mkdir(parents=True)
    (older / "gguf.json").write_text(json.dumps({"path": str(path), "quantization": "F32"}))
    (older / "model.safetensors").write_bytes(bytes(10))

    prepared_gguf(path)

    assert not older.exists()


def leftovers(tmp_path):
    return [path.name for path in (tmp_path / "cache" / "gguf").glob("*") if path.suffix != ".lock"]


@each_row("error", [KeyboardInterrupt(), ModelError("stopped")])
def test_an_interrupted_preparation_leaves_nothing(tmp_path, monkeypatch, error):
    def interrupt(*_arguments):
        raise error

    path = write_gguf(tmp_path / "model.gguf")
    with monkeypatch.context() as patch:
        patch.setattr(gguf_preparation.GgufManifest, "from_file", interrupt)
        with pytest.raises(type(error)):
            prepared_gguf(path)

    assert not leftovers(tmp_path)
    assert prepared_gguf(path).is_dir()


def test_a_full_disk_is_a_clear_line_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(gguf_preparation, "_write_json", full)
    with pytest.raises(ModelError, match=r"model\.gguf: cannot be prepared in .*: No space left on device"):
        prepared_gguf(write_gguf(tmp_path / "model.gguf"))

    assert not leftovers(tmp_path)


def test_what_a_killed_process_left_is_replaced(tmp_path):
    path = write_gguf(tmp_path / "model.gguf")
    folder = prepared_gguf(path)
    (folder / "config.json").unlink()
    folder.rename(folder.with_name(f"{folder.name}.partial"))
    (folder.parent / "other-0123.partial").mkdir()
    (folder.parent / "third-4567" / "bf16.partial").mkdir(parents=True)

    assert prepared_gguf(path) == folder
    assert (folder / "config.json").exists()
    assert sorted(leftovers(tmp_path)) == [folder.name, "third-4567"]
    assert not (folder.parent / "third-4567" / "bf16.partial").exists()


def test_a_second_process_waits_and_says_so(tmp_path):
    path = write_gguf(tmp_path / "model.gguf")
    is_preparing, is_waiting, reports = Event(), Event(), []

    def hold(_what, _done, _total):
        is_preparing.set()
        assert is_waiting.wait(120)

    def note(what, _done, _total):
        reports.append(what)
        is_waiting.set()

    with ThreadPoolExecutor() as pool:
        first = pool.submit(prepared_gguf, path, hold)
        assert is_preparing.wait(120)
        second = pool.submit(prepared_gguf, path, note)

    assert first.result() == second.result()
    assert set(reports) == {"waiting for another process: model.gguf"}


def test_a_cache_that_cannot_be_written_is_a_clear_line(tmp_path):
    (tmp_path / "cache").write_text("a file")

    with pytest.raises(ModelError, match=r"model\.gguf: cannot be prepared in .*cache/gguf: Not a directory"):
        prepared_gguf(write_gguf(tmp_path / "model.gguf"))


@pytest.mark.full
def test_preparing_imports_no_torch(tmp_path):
    path = write_gguf(tmp_path / "model.gguf")
    code = (
        "import sys; from pathlib import Path; from specchat.weights.gguf.gguf_preparation import prepared_gguf;"
        f"prepared_gguf(Path({str(path)!r})); print('torch' in sys.modules or 'transformers' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
