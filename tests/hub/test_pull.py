"""Downloads from a hub on loopback into the hub's cache: complete, interrupted or corrupt."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest
from huggingface_hub import constants, snapshot_download
from huggingface_hub.hf_api import RepoSibling

from specchat.errors import ModelError
from specchat.hub.catalog import CatalogEntry, catalog
from specchat.hub.disk_space import free_bytes
from specchat.hub.find_models import find_model
from specchat.hub.needed_files import needed_files
from specchat.hub.pull import check_hub_space, fetch_from_hub, pull
from specchat.hub.repo_files import RepoListing, hub_file, list_repo_files
from specchat.hub.safetensors_headers import cached_model_folder, weight_files
from specchat.loading.load_plan import ComputeFeatures, plan_load
from specchat.paths import hub_repo_folder
from specchat.profile.profile_files import load_profile
from tests.each_row import each_row
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


def ignore(*_: object) -> None:
    """No progress bar."""


def stop_at(size: int):
    def on_progress(file, count):
        if count >= size and file.name.endswith(".safetensors"):
            raise KeyboardInterrupt

    return on_progress


def test_a_model_is_stored_where_huggingface_hub_finds_it(hub):
    folder = pull(list_repo_files(MODEL), ignore)

    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert Path(snapshot_download(MODEL, local_files_only=True, cache_dir=constants.HF_HUB_CACHE)) == folder


def test_a_model_that_is_loaded_from_the_hub_has_the_files_that_are_pulled(hub):
    hub.models[MODEL]["consolidated.safetensors"] = WEIGHTS + b"once more"
    pulled = sorted(file.name for file in list_repo_files(MODEL).files)

    folder = find_model(MODEL)

    assert pulled == sorted(path.name for path in folder.iterdir())
    assert (
        sorted({name for name, _ in hub.requests}) == pulled == ["config.json", "model.safetensors", "tokenizer.json"]
    )


def test_pickles_of_a_head_are_downloaded_only_without_safetensors(hub):
    hub.models[MODEL].pop("tokenizer.json")
    hub.models["some/head"] = {"config.json": b"{}", "medusa_lm_head.pt": b"a pickle"}

    safe, pickled = (find_model(name, "head") for name in (MODEL, "some/head"))

    assert ["config.json", "model.safetensors"] == sorted(path.name for path in safe.iterdir())
    assert ["config.json", "medusa_lm_head.pt"] == sorted(path.name for path in pickled.iterdir())


@pytest.mark.parametrize("role", ["target", "head"])
def test_excluded_files_are_not_required_without_a_network(hub, monkeypatch, role):
    hub.models[MODEL]["consolidated.safetensors"] = WEIGHTS + b"once more"
    folder = find_model(MODEL, role)

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    assert folder == find_model(MODEL, role) == cached_model_folder(MODEL, is_draft=role == "head")


def test_pickles_of_a_head_with_a_tokenizer_are_found_without_a_network(hub):
    hub.models["some/head"] = {"config.json": b"{}", "tokenizer.json": b"{}", "head.pt": b"pickle"}

    assert cached_model_folder("some/head", is_draft=True) is None
    assert find_model("some/head", "head") == cached_model_folder("some/head", is_draft=True)


def test_a_partial_model_is_not_used_without_a_network(hub, monkeypatch):
    (find_model(MODEL) / "model.safetensors").unlink()

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    with pytest.raises(ModelError, match="not on this machine"):
        find_model(MODEL)


def test_a_second_copy_of_the_weights_is_not_counted(tmp_path):
    for name in ("model.safetensors", "consolidated.safetensors"):
        (tmp_path / name).touch()

    assert [tmp_path / "model.safetensors"] == weight_files(tmp_path)


def test_size_and_licence_are_known_before_the_download(hub):
    listing = list_repo_files(MODEL)

    assert listing.licence == "apache-2.0"
    assert listing.total_bytes == listing.remaining_bytes() == sum(len(FILES[file.name]) for file in listing.files)
    assert not hub.requests


def test_the_hub_cannot_send_control_characters_to_the_terminal(hub):
    hub.licence = "mit\x1b]0;gone\x07"
    assert list_repo_files(MODEL).licence == "mit]0;gone"

    hub.models[MODEL]["\x1b[2J.json"] = b"{}"
    with pytest.raises(ModelError, match=r"'\\x1b\[2J\.json'"):
        list_repo_files(MODEL)


def test_a_name_with_brackets_is_not_markup(hub):
    hub.models[MODEL]["[/bold].json"] = b"{}"

    assert (pull(list_repo_files(MODEL), ignore) / "[/bold].json").exists()


def test_a_missing_licence_is_unknown(hub):
    hub.licence = ""

    assert list_repo_files(MODEL).licence == "unknown"


def test_a_second_pull_downloads_nothing(hub):
    pull(list_repo_files(MODEL), ignore)
    hub.requests.clear()

    again = list_repo_files(MODEL)
    pull(again, ignore)

    assert again.missing_files() == [] and hub.requests == []


def test_an_interrupted_download_resumes(hub):
    with pytest.raises(KeyboardInterrupt):
        pull(list_repo_files(MODEL), stop_at(1 << 20))
    listing = list_repo_files(MODEL)
    weights = next(file for file in listing.missing_files() if file.name == "model.safetensors")
    size = listing.downloaded_bytes(weights)

    folder = pull(listing, ignore)

    assert 0 < size < len(WEIGHTS)
    assert hub.requests[-2:] == [("model.safetensors", f"bytes={size}-"), ("tokenizer.json", "")]
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS


def test_a_partial_download_has_no_snapshot(hub):
    with pytest.raises(KeyboardInterrupt):
        pull(list_repo_files(MODEL), stop_at(1 << 20))

    assert not (list_repo_files(MODEL).folder / "snapshots").exists()


def test_a_broken_connection_resumes_where_it_broke(hub):
    hub.cut_after = 3_000_000

    folder = pull(list_repo_files(MODEL), ignore)

    ranges = [requested for name, requested in hub.requests if name == "model.safetensors"]
    assert ranges[0] == "" and ranges[1].startswith("bytes=")
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS


def test_a_server_without_ranges_sends_the_whole_file_again(hub):
    hub.has_ranges = False
    hub.cut_after = 3_000_000

    folder = pull(list_repo_files(MODEL), ignore)

    assert (folder / "model.safetensors").read_bytes() == WEIGHTS


def test_a_corrupt_file_is_named_and_deleted(hub):
    hub.corrupt = True
    listing = list_repo_files(MODEL)

    with pytest.raises(ModelError, match=r"model\.safetensors differs from the hub's listing"):
        pull(listing, ignore)

    left = [path.name for path in (listing.folder / "blobs").iterdir()]
    assert not [name for name in left if name.endswith(".incomplete")]
    hub.corrupt = False
    assert (pull(list_repo_files(MODEL), ignore) / "model.safetensors").read_bytes() == WEIGHTS


def test_a_disk_that_is_too_small_is_an_error_before_the_download(hub, monkeypatch):
    monkeypatch.setattr("specchat.hub.disk_space.free_bytes", lambda folder: 1000)

    with pytest.raises(ModelError, match=r"needs 4\.2 MB, and 1\.0 kB are free at .*; free some space, or set HF_HOME"):
        check_hub_space([list_repo_files(MODEL)])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_a_one_line_error(hub):
    listing = list_repo_files(MODEL)
    weights = next(file for file in listing.files if file.name == "model.safetensors")
    listing.partial_path(weights).parent.mkdir(parents=True)
    listing.partial_path(weights).symlink_to("/dev/full")

    with pytest.raises(ModelError, match=r"the disk at .* is full; free 4\.2 MB and run this again") as caught:
        pull(listing, ignore)

    assert isinstance(caught.value.__cause__, OSError) and caught.value.__cause__.errno == errno.ENOSPC


@each_row(
    "status, code, message",
    [
        (401, "GatedRepo", "accept its licence at http"),
        (403, "GatedRepo", "accept its licence at http"),
        (401, "RepoNotFound", "no such model, or it is private"),
        (404, "RepoNotFound", "no such model, or it is private"),
        (403, "", "access denied"),
        (404, "", "no such model or file"),
        (418, "", "the hub answers 418"),
    ],
)
def test_every_error_of_the_hub_is_one_line(hub, status, code, message):
    hub.refused = (status, code)

    with pytest.raises(ModelError, match=message) as caught:
        list_repo_files(MODEL)

    assert len(str(caught.value).splitlines()) == 1


def test_offline_mode_sends_no_request(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set"):
        list_repo_files(MODEL)


def test_an_unreachable_hub_is_a_one_line_error(hub, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")

    with pytest.raises(ModelError, match=r"the hub \(http://127\.0\.0\.1:9\) cannot be reached") as nothing_here:
        list_repo_files(MODEL)
    blobs = hub_repo_folder(MODEL) / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "0.incomplete").touch()
    with pytest.raises(ModelError, match=r"cannot be reached .*; the downloaded part is kept"):
        list_repo_files(MODEL)

    assert "kept" not in str(nothing_here.value)


def test_a_hub_that_fails_later_is_a_one_line_error(hub):
    def leave(file, count):
        if file.name == "model.safetensors":
            hub.refused = (418, "")

    with pytest.raises(ModelError, match=r"the hub answers 418|cannot be reached"):
        pull(list_repo_files(MODEL), leave)


def test_a_login_page_of_the_network_is_not_a_hub(hub):
    hub.refused = (200, "")

    with pytest.raises(ModelError, match="is not a hub; does this network have a login page"):
        list_repo_files(MODEL)


@each_row("hash_of_hub", ["../../../escape", "", None, "ABC", "g" * 40])
def test_an_invalid_hash_does_not_become_a_path(hash_of_hub):
    sibling = RepoSibling("a.json", size=3, blob_id=hash_of_hub)

    with pytest.raises(ModelError, match="lists no valid hashes"):
        hub_file(MODEL, sibling)


@each_row(
    "names, expected",
    [
        (["config.json", "a.safetensors", "a.bin"], ["a.safetensors", "config.json"]),
        (["config.json", "pytorch_model.bin"], ["config.json", "pytorch_model.bin"]),
        (["config.json", "medusa_lm_head.pt", "README.md"], ["config.json", "medusa_lm_head.pt"]),
        (["chat_template.jinja", "m.safetensors", "x.gguf"], ["chat_template.jinja", "m.safetensors"]),
        (["consolidated.safetensors", "model-1.safetensors"], ["model-1.safetensors"]),
        (["consolidated.safetensors", "params.json"], ["consolidated.safetensors", "params.json"]),
    ],
)
def test_weights_are_needed_once_and_pickles_only_of_a_head_without_safetensors(names, expected):
    assert needed_files(MODEL, names) == expected


def test_a_draft_may_be_a_head_with_a_tokenizer():
    names = ["config.json", "pytorch_model.bin", "tokenizer.json"]

    assert needed_files(MODEL, names, is_draft=True) == ["config.json", "tokenizer.json", "pytorch_model.bin"]


@each_row("names", [["config.json", "tokenizer.json", "pytorch_model.bin"], ["mmproj-F16.gguf"], ["README.md"]])
def test_a_model_that_cannot_be_loaded_is_not_downloaded(names):
    with pytest.raises(ModelError, match=r"look for a copy with \*\.safetensors"):
        needed_files(MODEL, names)


def test_free_space_is_measured_where_the_cache_will_be(tmp_path):
    free = free_bytes(tmp_path / "not" / "there" / "yet")

    assert free <= os.statvfs(tmp_path).f_frsize * os.statvfs(tmp_path).f_blocks
    assert isinstance(RepoListing("a/b", COMMIT, "", tmp_path, ()).total_bytes, int)


def test_a_model_that_is_loaded_from_the_hub_is_checked_like_one_that_is_pulled(hub):
    hub.corrupt = True

    with pytest.raises(ModelError, match=r"some/model: model\.safetensors differs from the hub's listing"):
        fetch_from_hub(MODEL)

    hub.corrupt = False
    assert (fetch_from_hub(MODEL) / "model.safetensors").read_bytes() == WEIGHTS
    assert hub.requests.count(("model.safetensors", "")) == 2


def test_a_model_that_is_loaded_from_the_hub_goes_on_where_a_download_ended_and_reports_it(hub):
    with pytest.raises(KeyboardInterrupt):
        pull(list_repo_files(MODEL), stop_at(1 << 20))
    listing = list_repo_files(MODEL)
    weights = next(file for file in listing.missing_files() if file.name == "model.safetensors")
    size, reported = listing.downloaded_bytes(weights), []

    folder = find_model(MODEL, report=lambda what, done, total: reported.append((what, done, total)))

    assert WEIGHTS == (folder / "model.safetensors").read_bytes()
    assert ("model.safetensors", f"bytes={size}-") in hub.requests
    assert 1 << 20 <= size < len(WEIGHTS)
    assert ("downloading model.safetensors", len(WEIGHTS), len(WEIGHTS)) in reported


def test_the_download_of_a_head_that_is_loaded_is_reported(hub):
    hub.models["some/head"] = {"config.json": b"{}", "model.safetensors": WEIGHTS}
    reported = []

    plan_load(
        load_profile("chat").override({"models.target": "embedded", "models.heads": ["some/head"]}),
        ComputeFeatures("cpu", has_cpu_bf16=False),
        lambda source, role: find_model(source, role, lambda what, done, _total: reported.append((role, what, done))),
    )

    assert ("head", "downloading model.safetensors", len(WEIGHTS)) in reported


def test_a_model_that_is_loaded_and_does_not_fit_on_the_disk_is_not_begun(hub, monkeypatch):
    monkeypatch.setattr("specchat.hub.disk_space.free_bytes", lambda _folder: 1000)

    with pytest.raises(ModelError, match=r"some/model: the download needs 4\.2 MB, and 1\.0 kB are free"):
        find_model(MODEL)
    assert hub.requests == []


@each_row("entry", lambda: catalog().values())
def test_every_download_of_the_catalog_has_a_hash_or_comes_from_a_hub_that_lists_hashes(entry: CatalogEntry):
    if (package := entry.package) is not None:
        assert re.fullmatch(r"[0-9a-f]{64}", package.wheel_sha256) and re.fullmatch(
            r"[0-9a-f]{64}", package.member_sha256
        )
    else:
        ids = (entry.id, *entry.same_shape_models, *(head.id for head in entry.heads), *entry.draft_models)
        assert [id for id in ids if not re.fullmatch(r"[\w.-]+/[\w.-]+", id)] == []


def test_a_model_of_a_hub_is_named_as_unpinned(hub):
    assert list_repo_files(MODEL).pinning == (
        f"commit {COMMIT[:12]}, the newest: not pinned by specchat, checked against the hub's own hashes"
    )
