"""`org/repo:Q4_K_M`: a GGUF file of a repository, downloaded, loaded, listed and removed by the same name."""

from __future__ import annotations

import pytest
from huggingface_hub import constants

from specchat.app.model_loading import pending_model
from specchat.errors import ModelError
from specchat.hub.find_models import absolute_source, find_local_model, find_model
from specchat.hub.local_models import local_models, locate_model, models_of_other_programs
from specchat.hub.needed_files import needed_files
from specchat.hub.pull import pull
from specchat.hub.remove import plan_removal
from specchat.hub.repo_files import list_repo_files
from specchat.paths import hub_repo_folder
from specchat.weights.gguf.gguf_labels import labelled_models
from specchat.weights.gguf.gguf_preparation import find_prepared
from specchat.weights.gguf.gguf_sources import local_gguf
from tests.each_row import each_row
from tests.front import command
from tests.gguf_models import write_gguf
from tests.hub.fake_hub import WEIGHTS, FakeHub, reach, serving

MODEL = "some/tiny-GGUF"
PARTS = ["Q4_0/tiny-Q4_0-00001-of-00002.gguf", "Q4_0/tiny-Q4_0-00002-of-00002.gguf"]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    content = write_gguf(tmp_path / "source.gguf", storage="Q8_0").read_bytes()
    files = {"README.md": b"# A model", "config.json": b"{}", "mmproj-F16.gguf": b"GGUF", "tiny-Q8_0.gguf": content}
    with serving(FakeHub({MODEL: files | dict.fromkeys(PARTS, b"GGUF of a part")})) as served:
        reach(served, tmp_path / "hub", monkeypatch)
        yield served


def ignore(*_: object) -> None:
    """No progress bar."""


def test_one_quantization_is_downloaded_and_loaded_by_the_same_name(hub, monkeypatch):
    name = f"{MODEL}:q8_0"
    assert (find_local_model(name), pending_model(name).is_on_disk) == (None, False)

    folder = pull(list_repo_files(name), ignore)

    assert [path.name for path in folder.iterdir()] == ["tiny-Q8_0.gguf"]
    assert [file for file, _ in hub.requests] == ["tiny-Q8_0.gguf"]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    prepared = find_model(f"hf:{name}")
    assert prepared == find_local_model(MODEL) == find_prepared(folder / "tiny-Q8_0.gguf")
    assert locate_model(name).architecture.layers == 2
    assert pending_model(name).size_bytes == (folder / "tiny-Q8_0.gguf").stat().st_size
    assert [model.id for model in models_of_other_programs()] == [f"{MODEL}:Q8_0"]
    assert MODEL not in [model.id for model in local_models()]


def test_all_parts_of_a_split_model_are_downloaded_into_their_folder(hub):
    folder = pull(list_repo_files(f"{MODEL}:Q4_0"), ignore)

    assert local_gguf(f"{MODEL}:Q4_0") == folder / PARTS[0]
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.gguf")) == PARTS


def test_a_model_that_is_loaded_by_name_is_downloaded_first(hub):
    folder = find_model(f"{MODEL}:Q8_0")

    assert (folder / "tokenizer.json").is_file()
    assert find_model(f"{MODEL}:Q8_0") == folder


def test_a_download_that_broke_off_is_resumed_and_a_wrong_hash_is_refused(hub):
    hub.models[MODEL]["tiny-Q8_0.gguf"] += WEIGHTS
    listing = list_repo_files(f"{MODEL}:Q8_0")

    def stop(_file: object, count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(listing, stop)
    assert local_gguf(f"{MODEL}:Q8_0") is None
    hub.corrupt = True
    with pytest.raises(ModelError, match=r"tiny-Q8_0\.gguf differs from the hub's listing .* was deleted"):
        pull(listing, ignore)
    hub.corrupt = False
    pull(listing, ignore)
    assert local_gguf(f"{MODEL}:Q8_0") is not None


@each_row(
    "source, message",
    [
        (MODEL, r"some/tiny-GGUF: holds 2 models; name one as some/tiny-GGUF:Q4_0: Q4_0, Q8_0$"),
        (f"hf:{MODEL}:Q5_K_M", r"none of its GGUF files is Q5_K_M; name one as hf:some/tiny-GGUF:Q4_0: Q4_0, Q8_0$"),
    ],
)
def test_a_name_that_fits_several_files_or_none_says_which_there_are(hub, source, message):
    with pytest.raises(ModelError, match=message):
        list_repo_files(source)

    for each in ("Q4_0", "Q8_0"):
        pull(list_repo_files(f"{MODEL}:{each}"), ignore)
    with pytest.raises(ModelError, match=message):
        find_model(source)


def test_a_quantization_of_a_repository_without_gguf_files_and_a_missing_part_are_named():
    with pytest.raises(ModelError, match="a/b has no GGUF files; leave ':Q4_0' out"):
        needed_files("a/b:Q4_0", ["config.json", "model.safetensors", "tokenizer.json"])
    with pytest.raises(ModelError, match=r"Q4_0/tiny-Q4_0-00002-of-00002\.gguf is missing there"):
        needed_files("a/b", PARTS[:1])
    assert needed_files("a/b", ["model.safetensors", "model-Q8_0.gguf"]) == ["model.safetensors"]
    assert needed_files("a/b:Q8_0", ["model.safetensors", "model-Q8_0.gguf"]) == ["model-Q8_0.gguf"]


def test_removing_one_quantization_leaves_the_others(hub):
    for each in ("Q4_0", "Q8_0"):
        pull(list_repo_files(f"{MODEL}:{each}"), ignore)
    prepared = find_model(f"{MODEL}:Q8_0")
    file = local_gguf(f"{MODEL}:Q8_0")
    removal = plan_removal(f"{MODEL}:Q8_0")

    assert removal.freed_bytes > file.stat().st_size
    removal.run()

    assert not prepared.exists()
    assert [model.id for model in models_of_other_programs()] == [f"{MODEL}:Q4_0"]
    assert len(list((hub_repo_folder(MODEL) / "blobs").iterdir())) == 1  # both parts have the same content
    with pytest.raises(ModelError, match="not in the cache"):
        plan_removal(f"{MODEL}:Q8_0")
    plan_removal(MODEL).run()
    assert not hub_repo_folder(MODEL).exists()


def test_a_label_is_the_quantization_in_a_name_or_the_whole_name():
    names = ["Qwen3-8B-Q4_K_M.gguf", "Qwen3-8B-UD-Q4_K_XL.gguf", "Qwen3-8B-IQ4_XS.gguf", "mmproj-F16.gguf",
             "imatrix_unsloth.gguf", "BF16/Qwen3-8B-BF16-00001-of-00002.gguf", "gpt-oss-20b-mxfp4.gguf",
             "chat.Q5_K_S.gguf", "code.Q5_K_S.gguf", "plain.gguf", "README.md"]  # fmt: skip

    labels = ["BF16", "IQ4_XS", "Q4_K_M", "UD-Q4_K_XL", "chat.Q5_K_S", "code.Q5_K_S", "mxfp4", "plain"]
    assert sorted(labelled_models(dict.fromkeys(names, 1))) == labels


def test_the_prefix_of_a_hub_id_means_the_same_model():
    assert absolute_source("hf:Qwen/Qwen3-8B") == "Qwen/Qwen3-8B"
    assert locate_model("hf:Qwen/Qwen3-8B").architecture == locate_model("Qwen/Qwen3-8B").architecture


def test_the_command_prints_the_file_also_without_a_network(hub, monkeypatch):
    arguments = ["models", "pull", f"{MODEL}:Q4_0", "--yes"]

    ran = command(monkeypatch, *arguments)

    assert ran.out.decode().strip() == str(local_gguf(f"{MODEL}:Q4_0"))
    assert "in 2 files" in ran.err
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert command(monkeypatch, *arguments).out == ran.out
