"""Models come from a hub on loopback: whole or half, right or wrong, and into the hub's own cache."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from huggingface_hub import constants, snapshot_download
from huggingface_hub.hf_api import RepoSibling

from specchat.errors import ModelError
from specchat.heads.detect import find_head
from specchat.hub import pull as pulling
from specchat.hub.pull import check_disk_space, pull
from specchat.hub.repo_files import RepoListing, hub_file, list_repo_files
from specchat.hub.safetensors_headers import weight_files
from specchat.models.fetch import cached_model_folder, needed_files
from specchat.models.load import find_model
from tests.hub.fake_hub import COMMIT, WEIGHTS, FakeHub, reach, serving

MODEL = "some/model"
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"a pickle",
    "README.md": b"# A model",
}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with serving(FakeHub({MODEL: dict(FILES)})) as served:
        reach(served, tmp_path / "hub", monkeypatch)
        yield served


def heard(*_: object) -> None:
    """Nobody draws a bar here."""


def stop_at(size: int):
    def hear(file, count):
        if count >= size and file.name.endswith(".safetensors"):
            raise KeyboardInterrupt

    return hear


def test_a_model_lands_where_the_hubs_own_library_finds_it(hub):
    folder = pull(list_repo_files(MODEL), heard)

    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert Path(snapshot_download(MODEL, local_files_only=True, cache_dir=constants.HF_HUB_CACHE)) == folder


def test_a_model_that_is_loaded_from_the_hub_has_the_files_that_are_pulled(hub):
    hub.models[MODEL]["consolidated.safetensors"] = WEIGHTS + b"once more"
    pulled = sorted(file.name for file in list_repo_files(MODEL).files)

    folder = find_model(MODEL)

    assert pulled == sorted(path.name for path in folder.iterdir())
    assert sorted({name for name, _ in hub.asked}) == pulled == ["config.json", "model.safetensors", "tokenizer.json"]


def test_a_head_that_is_loaded_from_the_hub_brings_pickles_only_where_it_has_nothing_else(hub):
    hub.models[MODEL].pop("tokenizer.json")
    hub.models["some/head"] = {"config.json": b"{}", "medusa_lm_head.pt": b"a pickle"}

    assert ["config.json", "model.safetensors"] == sorted(path.name for path in find_head(MODEL).iterdir())
    assert ["config.json", "medusa_lm_head.pt"] == sorted(path.name for path in find_head("some/head").iterdir())


@pytest.mark.parametrize("find", [find_model, find_head])
def test_what_was_left_out_is_not_missed_without_a_network(hub, monkeypatch, find):
    hub.models[MODEL]["consolidated.safetensors"] = WEIGHTS + b"once more"
    folder = find(MODEL)

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    assert folder == find(MODEL) == cached_model_folder(MODEL, is_draft=find is find_head)


def test_half_of_a_model_is_none_without_a_network(hub, monkeypatch):
    (find_model(MODEL) / "model.safetensors").unlink()

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    with pytest.raises(ModelError, match="not on this machine"):
        find_model(MODEL)


def test_a_second_copy_of_the_weights_is_not_counted(tmp_path):
    for name in ("model.safetensors", "consolidated.safetensors"):
        (tmp_path / name).touch()

    assert [tmp_path / "model.safetensors"] == weight_files(tmp_path)


def test_size_and_licence_are_known_before_a_byte_comes(hub):
    listing = list_repo_files(MODEL)

    assert listing.licence == "apache-2.0"
    assert listing.total_bytes == listing.remaining_bytes() == sum(len(FILES[file.name]) for file in listing.files)
    assert not hub.asked


def test_what_a_hub_says_cannot_talk_to_the_terminal(hub):
    hub.licence = "mit\x1b]0;gone\x07"
    assert list_repo_files(MODEL).licence == "mit]0;gone"

    hub.models[MODEL]["\x1b[2J.json"] = b"{}"
    with pytest.raises(ModelError, match=r"'\\x1b\[2J\.json'"):
        list_repo_files(MODEL)


def test_a_name_with_brackets_is_no_markup(hub):
    hub.models[MODEL]["[/bold].json"] = b"{}"

    assert (pull(list_repo_files(MODEL), heard) / "[/bold].json").exists()


def test_a_card_without_a_licence_says_so(hub):
    hub.licence = ""

    assert list_repo_files(MODEL).licence == "not said"


def test_a_second_pull_fetches_nothing(hub):
    pull(list_repo_files(MODEL), heard)
    hub.asked.clear()

    again = list_repo_files(MODEL)
    pull(again, heard)

    assert again.missing_files() == [] and hub.asked == []


def test_an_interrupted_file_is_kept_and_gone_on_with(hub):
    with pytest.raises(KeyboardInterrupt):
        pull(list_repo_files(MODEL), stop_at(1 << 20))
    listing = list_repo_files(MODEL)
    weights = next(file for file in listing.missing_files() if file.name == "model.safetensors")
    here = listing.downloaded_bytes(weights)

    folder = pull(listing, heard)

    assert 0 < here < len(WEIGHTS)
    assert hub.asked[-2:] == [("model.safetensors", f"bytes={here}-"), ("tokenizer.json", "")]
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS


def test_half_a_model_is_none_yet(hub):
    with pytest.raises(KeyboardInterrupt):
        pull(list_repo_files(MODEL), stop_at(1 << 20))

    assert not (list_repo_files(MODEL).folder / "snapshots").exists()


def test_a_connection_that_breaks_is_made_anew_where_it_broke(hub):
    hub.cut_after = 3_000_000

    folder = pull(list_repo_files(MODEL), heard)

    ranges = [wanted for name, wanted in hub.asked if name == "model.safetensors"]
    assert ranges[0] == "" and ranges[1].startswith("bytes=")
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS


def test_a_server_without_ranges_sends_all_of_it_again(hub):
    hub.has_ranges = False
    hub.cut_after = 3_000_000

    folder = pull(list_repo_files(MODEL), heard)

    assert (folder / "model.safetensors").read_bytes() == WEIGHTS


def test_a_file_that_is_not_what_was_listed_is_named_and_thrown_away(hub):
    hub.corrupt = True
    listing = list_repo_files(MODEL)

    with pytest.raises(ModelError, match=r"model\.safetensors is not what the hub lists"):
        pull(listing, heard)

    left = [path.name for path in (listing.folder / "blobs").iterdir()]
    assert not [name for name in left if name.endswith(".incomplete")]
    hub.corrupt = False
    assert (pull(list_repo_files(MODEL), heard) / "model.safetensors").read_bytes() == WEIGHTS


def test_a_disk_that_is_too_small_is_noticed_before(hub, monkeypatch):
    monkeypatch.setattr(pulling, "free_bytes", lambda folder: 1000)

    with pytest.raises(ModelError, match=r"4\.2 MB are to come and 1\.0 kB are free at .*; make room, or set HF_HOME"):
        check_disk_space([list_repo_files(MODEL)])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_fills_up_in_the_middle_is_one_line(hub):
    listing = list_repo_files(MODEL)
    weights = next(file for file in listing.files if file.name == "model.safetensors")
    listing.partial_path(weights).parent.mkdir(parents=True)
    listing.partial_path(weights).symlink_to("/dev/full")

    with pytest.raises(ModelError, match=r"no room left at .*; make room for 4\.2 MB and run this again") as caught:
        pull(listing, heard)

    assert isinstance(caught.value.__cause__, OSError) and caught.value.__cause__.errno == errno.ENOSPC


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (401, "GatedRepo", "accept its licence at http"),
        (403, "GatedRepo", "accept its licence at http"),
        (401, "RepoNotFound", "no such model, or not for everybody"),
        (404, "RepoNotFound", "no such model, or not for everybody"),
        (403, "", "does not give it to you"),
        (404, "", "no such model or file"),
        (418, "", "the hub answers 418"),
    ],
)
def test_every_refusal_of_the_hub_is_one_line(hub, status, code, says):
    hub.refused = (status, code)

    with pytest.raises(ModelError, match=says) as caught:
        list_repo_files(MODEL)

    assert len(str(caught.value).splitlines()) == 1


def test_offline_means_that_nobody_is_asked(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set"):
        list_repo_files(MODEL)


def test_a_hub_out_of_reach_is_one_line(hub, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")

    with pytest.raises(ModelError, match=r"the hub \(http://127\.0\.0\.1:9\) cannot be reached"):
        list_repo_files(MODEL)


def test_a_hub_that_goes_away_in_the_end_is_one_line(hub):
    def leave(file, count):
        if file.name == "tokenizer.json":
            hub.refused = (418, "")

    with pytest.raises(ModelError, match=r"the hub answers 418|cannot be reached"):
        pull(list_repo_files(MODEL), leave)


def test_a_page_to_log_in_to_a_network_is_no_hub(hub):
    hub.refused = (200, "")

    with pytest.raises(ModelError, match="is no hub; is there a page to log in"):
        list_repo_files(MODEL)


@pytest.mark.parametrize("hash_of_hub", ["../../../escape", "", None, "ABC", "g" * 40])
def test_a_hash_that_is_none_becomes_no_path(hash_of_hub):
    sibling = RepoSibling("a.json", size=3, blob_id=hash_of_hub)

    with pytest.raises(ModelError, match="gives no hashes to compare with"):
        hub_file(MODEL, sibling)


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (["config.json", "a.safetensors", "a.bin"], ["a.safetensors", "config.json"]),
        (["config.json", "pytorch_model.bin"], ["config.json", "pytorch_model.bin"]),
        (["config.json", "medusa_lm_head.pt", "README.md"], ["config.json", "medusa_lm_head.pt"]),
        (["chat_template.jinja", "m.safetensors", "x.gguf"], ["chat_template.jinja", "m.safetensors"]),
        (["consolidated.safetensors", "model-1.safetensors"], ["model-1.safetensors"]),
        (["consolidated.safetensors", "params.json"], ["consolidated.safetensors", "params.json"]),
    ],
)
def test_weights_are_taken_once_and_pickles_only_of_a_head_that_has_nothing_else(names, taken):
    assert needed_files(MODEL, names) == taken


def test_what_is_called_a_draft_may_be_a_head_with_a_tokenizer():
    names = ["config.json", "pytorch_model.bin", "tokenizer.json"]

    assert needed_files(MODEL, names, is_draft=True) == ["config.json", "tokenizer.json", "pytorch_model.bin"]


@pytest.mark.parametrize(
    "names", [["config.json", "tokenizer.json", "pytorch_model.bin"], ["model.gguf"], ["README.md"]]
)
def test_what_could_not_be_loaded_is_not_fetched(names):
    with pytest.raises(ModelError, match=r"look for a copy with \*\.safetensors"):
        needed_files(MODEL, names)


def test_room_is_measured_where_the_cache_will_be(tmp_path):
    free = pulling.free_bytes(tmp_path / "not" / "there" / "yet")

    assert free <= os.statvfs(tmp_path).f_frsize * os.statvfs(tmp_path).f_blocks
    assert isinstance(RepoListing("a/b", COMMIT, "", tmp_path, ()).total_bytes, int)
