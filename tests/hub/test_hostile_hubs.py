"""A hub that sends anything: a listing or a download ends in one sentence, after a few tries, with bounded memory."""

from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from specchat.errors import ModelError
from specchat.hub import bounded_response, repo_files
from specchat.hub.pull import pull
from specchat.hub.repo_files import list_repo_files
from tests import hostile_server
from tests.each_row import each_row
from tests.hostile_server import MIB, deep_json, drip, flood, head, hostile, page, redirect_loop
from tests.hub.fake_hub import COMMIT

MODEL = "some/model"
LISTING, FILE = f"/api/models/{MODEL}", f"/{MODEL}/resolve/"
SIZE = 100_000
DIGEST = "0" * 64
MAX_SENT_BYTES = 32 * MIB  # what a client may read, and what lies in the buffers of both sockets
NO_HUB, NOT_REACHED = "is not a hub", "cannot be reached or closed the connection"


def weights(**fields: object) -> dict[str, object]:
    lfs = {"sha256": DIGEST, "size": SIZE, "pointerSize": 134}
    return {"rfilename": "model.safetensors", "size": SIZE, "lfs": lfs, **fields}


def listing(*siblings: object, **fields: object) -> hostile_server.Reply:
    return page(json.dumps({"id": MODEL, "sha": COMMIT, "siblings": list(siblings), "tags": [], **fields}))


@pytest.fixture
def reach(monkeypatch, tmp_path):
    def at(address: str) -> None:
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))

    return at


@each_row(
    "name, reply, said",
    [
        ("no header", hostile_server.hang, NOT_REACHED),
        ("headers byte by byte", hostile_server.dripping_headers, NOT_REACHED),
        ("headers without an end", hostile_server.endless_headers, NOT_REACHED),
        ("a body byte by byte", drip(), NOT_REACHED),
        ("an error byte by byte", drip(status="500 No"), NOT_REACHED),
        ("a body without an end", flood(b" " * 2**16), "more than 16,777,216 bytes"),
        ("an error without an end", flood(b" " * 2**16, status="500 No"), "more than 16,777,216 bytes"),
        ("a chunk without an end", hostile_server.endless_chunk, "more than 16,777,216 bytes"),
        ("a packed body", hostile_server.gzip_bomb, "its body is packed"),
        ("redirects", redirect_loop, NOT_REACHED),
        ("deep JSON", page(deep_json(1_000_000)), NO_HUB),
        ("JSON of 10 million levels", page(deep_json(10_000_000)), "more than 16,777,216 bytes"),
        ("no UTF-8", page(b"\xff\xfe"), NO_HUB),
        ("a number", page("5"), NO_HUB),
        ("a list", page("[]"), NO_HUB),
        ("a million files", page('{"siblings": [' + '{"rfilename": "a.json", "size": 1}, ' * 10**6), "more than 16"),
        ("files that are texts", listing("config.json"), NO_HUB),
        ("files that are a number", page(json.dumps({"id": MODEL, "siblings": 5})), NO_HUB),
        ("a size that is a text", listing(weights(size="much")), "without a size"),
        ("a size below zero", listing(weights(size=-1)), "without a size"),
        ("a hash that is a number", listing(weights(lfs={"sha256": 5, "size": 1, "pointerSize": 1})), NO_HUB),
        ("a commit that is a path", listing(weights(), sha="../../x"), "no valid hashes"),
        ("no commit", listing(weights(), sha=None), "no valid hashes"),
        ("a name that is a number", listing({"rfilename": 7, "size": 1}, weights()), NO_HUB),
        ("a model card that is a text", listing(weights(), cardData="mit", sha=None), "no valid hashes"),
    ],
    shares=3,
)  # fmt: skip
def test_a_listing_that_is_none_is_one_sentence(reach, monkeypatch, name, reply, said):
    monkeypatch.setattr(bounded_response, "WINDOW_SECONDS", 0.3 if "byte by" in name or name == "no header" else 120.0)
    with hostile({LISTING: reply, "/": redirect_loop}) as server:
        reach(server.address)
        with pytest.raises(ModelError) as refused:
            list_repo_files(MODEL)

    assert said in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300
    assert server.sent_bytes < MAX_SENT_BYTES


def a_byte_more_each_time():
    """A connection that breaks after a byte more than the one before."""
    sizes = itertools.count(1)
    return lambda: iter([head(Content_Length=SIZE), b"x" * next(sizes)])


@pytest.mark.full
@each_row(
    "name, reply, said, requests",
    [
        ("no header", hostile_server.hang, NOT_REACHED, 3),
        ("headers byte by byte", hostile_server.dripping_headers, NOT_REACHED, 3),
        ("an empty body", lambda: iter([head(Content_Length=0)]), "the file ended early", 3),
        ("an empty part", lambda: iter([head("206 Partial Content", Content_Length=0)]), "the file ended early", 3),
        ("a body byte by byte", drip(b"x"), NOT_REACHED, 3),
        ("a byte each time", lambda: iter([head("206 Partial Content", Content_Length=9), b"x"]), NOT_REACHED, 3),
        ("a byte more each time", a_byte_more_each_time(), NOT_REACHED, 3),
        ("a packed body", hostile_server.gzip_bomb, "its body is packed", 3),
        ("redirects", redirect_loop, NOT_REACHED, 63),
        ("an error without an end", flood(b" " * 2**16, status="500 No"), NOT_REACHED, 3),
        ("a body without an end", flood(b" " * 2**16), "differs from the hub's listing", 1),
        ("a chunk without an end", hostile_server.endless_chunk, "differs from the hub's listing", 1),
        ("other bytes", page(b"x" * SIZE), "differs from the hub's listing", 1),
        ("a part of other bytes", page(b"x" * SIZE, status="206 Partial Content"), "differs from the hub's listing", 1),
        ("fewer bytes than its length", page(b"x" * 500, Content_Length=SIZE), NOT_REACHED, 3),
        ("more bytes than its length", page(b"x" * SIZE, Content_Length=500), "the file ended early", 3),
        ("a length that is a text", page(b"x" * SIZE, Content_Length="much"), NOT_REACHED, 3),
        ("a length below zero", page(b"x" * SIZE, Content_Length=-5), NOT_REACHED, 3),
        ("a length of 30 digits", page(b"x" * 500, Content_Length=10**30), NOT_REACHED, 3),
    ],
)  # fmt: skip
def test_a_file_that_does_not_come_ends_after_three_tries(reach, monkeypatch, name, reply, said, requests):
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with hostile({LISTING: listing(weights()), FILE: reply, "/again": redirect_loop}) as server:
        reach(server.address)
        files = list_repo_files(MODEL)
        is_slow = "byte by" in name or name == "no header"
        monkeypatch.setattr(bounded_response, "WINDOW_SECONDS", 0.3 if is_slow else 120.0)
        with pytest.raises(ModelError) as refused:
            pull(files, lambda *_: None)

    assert said in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300
    assert requests >= len(server.requests) - 1
    assert server.sent_bytes < MAX_SENT_BYTES
    assert not files.snapshot.exists()


def test_of_a_file_nothing_is_asked_but_its_bytes(reach):
    """huggingface_hub would wait for headers as long as they drip, and load what another ETag names, unchecked."""
    content = b"w" * SIZE
    listed = listing(weights(lfs={"sha256": hashlib.sha256(content).hexdigest(), "size": SIZE, "pointerSize": 134}))
    theirs = page(content, ETag='"other"', X_Repo_Commit=COMMIT)
    with hostile({LISTING: listed, FILE: theirs, "/": redirect_loop}) as server:
        reach(server.address)
        folder = pull(list_repo_files(MODEL), lambda *_: None)

    assert content == (folder / "model.safetensors").read_bytes()
    assert [f"GET {FILE}{COMMIT}/model.safetensors HTTP/1.1"] == [each for each in server.requests if FILE in each]


def test_a_disk_without_links_gets_copies_and_a_link_to_nothing_is_replaced(reach, monkeypatch):
    content = b"{}" + b" " * 98
    entry = {"rfilename": "a/b.json", "size": 100, "blobId": hashlib.sha1(b"blob 100\0" + content).hexdigest()}
    empty = weights(size=0, lfs={"sha256": hashlib.sha256().hexdigest(), "size": 0, "pointerSize": 134})
    with hostile({LISTING: listing(entry, empty), FILE: page(content)}) as server:
        reach(server.address)
        files = list_repo_files(MODEL)
        (files.snapshot / "a").mkdir(parents=True)
        (files.snapshot / "a" / "b.json").symlink_to("nothing")
        monkeypatch.setattr(Path, "symlink_to", Path.hardlink_to)  # fails: the path of a link is no path from here
        folder = pull(files, lambda *_: None)

    assert content == (folder / "a/b.json").read_bytes()
    assert not (folder / "a/b.json").is_symlink()
    assert not [*folder.parents[1].rglob("*.incomplete")]


@each_row("asked", ["listing", "file"])
def test_a_token_is_not_sent_to_the_host_of_a_redirect(reach, monkeypatch, asked):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    reply = listing(weights()) if asked == "listing" else page(b"x" * SIZE)
    with hostile({"/": reply}) as other:
        away = lambda: iter([head("307 Temporary Redirect", Location=f"{other.address}/x", Content_Length=0)])
        with hostile({LISTING: away if asked == "listing" else listing(weights()), FILE: away}) as server:
            reach(server.address)
            files = list_repo_files(MODEL)
            if asked == "file":
                with pytest.raises(ModelError, match="differs from the hub's listing"):
                    pull(files, lambda *_: None)

    assert {"Bearer hf_secret"} == {*server.tokens}
    assert [""] == other.tokens


@pytest.mark.full
@each_row(
    "reply", [hostile_server.hang, hostile_server.dripping_headers, hostile_server.endless_headers, redirect_loop]
)
def test_a_hub_that_does_not_answer_in_time_is_not_reached(reach, monkeypatch, reply):
    monkeypatch.setattr(repo_files, "PROBE_SECONDS", 60.0 if "endless" in reply.__name__ else 2.0)
    with hostile({"/": reply}) as server:
        reach(server.address)
        assert "cannot be reached" in repo_files.offline_reason()


ASK = """
from specchat.hub.repo_files import list_repo_files
from huggingface_hub.utils import build_hf_headers

list_repo_files({model!r})
print(build_hf_headers()["user-agent"])
"""


def test_a_hub_is_asked_for_the_listing_and_told_nothing_else(tmp_path):
    """huggingface_hub would ask for names of programs by which to say what runs it, and tell the version of torch."""
    with hostile({LISTING: listing(weights())}) as server:
        ran = subprocess.run(
            [sys.executable, "-c", ASK.format(model=MODEL)], capture_output=True, text=True, check=True,
            env={"PATH": "", "HF_ENDPOINT": server.address, "HF_HOME": str(tmp_path)},
        )  # fmt: skip

    assert [f"GET {LISTING}?blobs=true HTTP/1.1"] == server.requests
    assert "torch" not in ran.stdout


@each_row(
    "name", ["../../../../escaped.json", "/tmp/escaped.json", "a//escaped.json", "..\\escaped.json", "c:escaped.json"]
)
def test_a_listing_with_names_of_other_folders_writes_nothing_there(reach, tmp_path, name):
    empty = {"rfilename": name, "size": 0, "blobId": "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"}
    replies = {LISTING: listing(empty, weights(size=0)), FILE: lambda: iter([head(Content_Length=0)])}
    with hostile(replies) as server:
        reach(server.address)
        with pytest.raises(ModelError, match="or with an invalid name"):
            pull(list_repo_files(MODEL), lambda *_: None)

    assert [] == list(tmp_path.rglob("escaped.json")) + list(tmp_path.parent.glob("escaped.json"))
