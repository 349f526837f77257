"""KV caches on disk: a text continues from its rows, and a file that cannot be trusted changes nothing."""

from __future__ import annotations

import os

import pytest
import torch

from specchat.engine.decode import TextRows
from specchat.weights import kv_files
from specchat.weights.kv_files import KVFiles, kv_identity

SHAPE = (2, 4)
BUDGET = 2**30


@pytest.fixture(autouse=True)
def short_texts(monkeypatch):
    monkeypatch.setattr(kv_files, "MIN_TOKENS", 4)


@pytest.fixture
def files(tmp_path):
    return KVFiles(tmp_path / "kv", "model")


def rows(tokens, seed=0, states=()):
    generator = torch.Generator().manual_seed(seed)
    stack = torch.randn(3, SHAPE[0], len(tokens) - 1, SHAPE[1], generator=generator).bfloat16()
    by_length = {length: {"2 columns": torch.full((2,), length)} for length in states}
    return TextRows(list(tokens), {SHAPE: stack}, by_length)


def stored(files, name, tokens, seed=0, budget=BUDGET, states=()):
    text = rows(tokens, seed, states)
    files.store(name, text, budget)
    files.wait()
    return text


def names(files):
    return sorted(path.name for path in files.folder.glob("*"))


def test_a_text_gets_its_rows_back(files):
    text = stored(files, "one", range(10))

    found = files.longest_prefix(list(range(12)))

    assert found.tokens == list(range(10))
    assert torch.equal(found.stacks[SHAPE], text.stacks[SHAPE])


def test_a_text_that_differs_gets_the_rows_of_its_common_beginning(files):
    text = stored(files, "one", range(10))

    found = files.longest_prefix([*range(7), 99, 100])

    assert found.tokens == list(range(7))
    assert torch.equal(found.stacks[SHAPE], text.stacks[SHAPE][:, :, :6])


@pytest.mark.parametrize(("shared", "kept"), [(12, 9), (10, 9), (9, 6), (7, 6)])
def test_a_text_with_states_begins_where_the_last_of_them_is(files, shared, kept):
    text = stored(files, "one", range(10), states=(4, 6, 9))

    found = files.longest_prefix([*range(shared), 99])

    assert found.tokens == list(range(kept + 1))
    assert torch.equal(found.stacks[SHAPE], text.stacks[SHAPE][:, :, :kept])
    assert {length: state["2 columns"].tolist() for length, state in found.states.items()} == {
        length: [length] * 2 for length in (4, 6, 9) if length <= kept
    }


def test_a_text_without_a_state_of_its_beginning_gets_nothing(files):
    stored(files, "one", range(10), states=(8, 9))

    assert files.longest_prefix([*range(7), 99]) is None


def test_the_longest_beginning_counts_and_not_the_newest_file(files):
    stored(files, "long", range(10))
    stored(files, "short", range(6), seed=1)

    assert len(files.longest_prefix(list(range(20))).tokens) == 10


def test_a_conversation_has_one_file(files):
    stored(files, "one", range(10))
    stored(files, "one", range(20), seed=1)

    assert names(files) == ["one.model.kv"]
    assert len(files.longest_prefix(list(range(30))).tokens) == 20


def test_texts_with_little_in_common_get_nothing(files):
    stored(files, "one", range(10))

    assert files.longest_prefix([0, 1, 2, 99]) is None
    assert files.longest_prefix([99]) is None


def test_another_model_has_other_files(files):
    stored(files, "one", range(10))

    assert KVFiles(files.folder, "other").longest_prefix(list(range(10))) is None
    assert kv_identity({"form": "int8"}) != kv_identity({"form": "nf4"})
    assert kv_identity({"form": "int8", "machine": 1}) == kv_identity({"machine": 1, "form": "int8"})


@pytest.mark.parametrize("position", [3, 40, -5])
def test_a_damaged_file_is_ignored_and_removed(files, position):
    stored(files, "one", range(10))
    [path] = files.folder.glob("*")
    content = bytearray(path.read_bytes())
    content[position] ^= 0x55
    path.write_bytes(content)

    assert files.longest_prefix(list(range(10))) is None
    assert not path.exists()


def test_a_file_that_was_cut_off_is_ignored_and_removed(files):
    stored(files, "one", range(10))
    [path] = files.folder.glob("*")
    path.write_bytes(path.read_bytes()[:-10])

    assert files.longest_prefix(list(range(10))) is None
    assert not path.exists()


def test_the_files_used_longest_ago_go_first(files):
    size = rows(range(10)).stacks[SHAPE].nbytes
    for name, first in (("a", 0), ("b", 100)):
        stored(files, name, range(first, first + 10))
    file_size = files.folder.joinpath("a.model.kv").stat().st_size
    assert file_size > size
    assert files.longest_prefix(list(range(10)))  # now b was used longest ago

    stored(files, "c", range(200, 210), budget=2 * file_size)

    assert names(files) == ["a.model.kv", "c.model.kv"]


def test_what_a_killed_engine_left_half_is_removed(files):
    files.folder.mkdir()
    old, new = files.folder / "one.model.1", files.folder / "two.model.2"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1e9, 1e9))

    stored(files, "three", range(10))

    assert names(files) == ["three.model.kv", "two.model.2"]


def test_a_text_beyond_the_budget_is_not_kept(files):
    stored(files, "one", range(10), budget=8)

    assert not files.folder.exists()


def test_only_the_user_can_read_the_files(files):
    stored(files, "one", range(10))

    assert files.folder.stat().st_mode & 0o777 == 0o700
    assert (files.folder / "one.model.kv").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_costs_nothing_but_the_file(files, caplog):
    files.folder.write_text("no folder")

    stored(files, "one", range(10))

    assert "is not kept" in caplog.text
    assert files.longest_prefix(list(range(10))) is None
