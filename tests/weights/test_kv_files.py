"""KV caches on disk: a text continues from its rows, and a file that cannot be trusted changes nothing."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from specchat.engine.cache import KVLayout, allocate_stacks, forms_of
from specchat.engine.decode import TextRows
from specchat.paths import kv_folder, remove_kv_files
from specchat.weights import kv_files
from specchat.weights.kv_files import KVFiles, kv_identity
from tests.each_row import each_row

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


def test_rows_of_layers_in_main_memory_stay_apart_and_fit_no_other_place(tmp_path):
    split = replace(LAYOUT, places=((LAYOUT.device, 1),))
    text = TextRows(list(range(10)), {shape: stack + len(shape) for shape, stack in allocate_stacks(split, 9).items()})
    files = KVFiles(tmp_path / "kv", "model", lambda found: forms_of(found.stacks) == forms_of(text.stacks))
    files.store("one", text, BUDGET)
    files.wait()

    found = files.longest_prefix(list(range(12)))

    assert {shape: float(stack.max()) for shape, stack in found.stacks.items()} == {(2, 4, 1): 3.0, (2, 4): 2.0}
    assert checking(tmp_path / "kv").longest_prefix(list(range(12))) is None


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


def rewritten(path, change):
    """The file with other tensors, and with the checksums of these."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(tensors)
    checksums = {name: kv_files._checksum(tensor) for name, tensor in tensors.items()}
    save_file(tensors, path, {kv_files.CHECKSUMS: json.dumps(checksums)})


ROWS = "2x4"  # the name of the rows in a file
WRONG_FILES = {
    "no rows": lambda tensors: tensors.pop(ROWS),
    "fewer rows": lambda tensors: tensors.update({ROWS: tensors[ROWS][:, :, :5].contiguous()}),
    "fewer layers": lambda tensors: tensors.update({ROWS: tensors[ROWS][:1].contiguous()}),
    "more layers": lambda tensors: tensors.update({ROWS: tensors[ROWS].repeat(2, 1, 1, 1)}),
    "wider rows": lambda tensors: tensors.update({ROWS: tensors[ROWS].repeat(1, 1, 1, 2)}),
    "fewer dimensions": lambda tensors: tensors.update({ROWS: tensors[ROWS].reshape(-1)}),
    "a number": lambda tensors: tensors.update({ROWS: torch.tensor(1.0)}),
    "another dtype": lambda tensors: tensors.update({ROWS: tensors[ROWS].float()}),
    "numbers of another kind": lambda tensors: tensors.update({ROWS: tensors[ROWS] != 0}),
    "rows of no layer": lambda tensors: tensors.update({"4x4": tensors[ROWS].clone()}),
    "a name without numbers": lambda tensors: tensors.update({"rows": tensors[ROWS].clone()}),
    "states of a model without": lambda tensors: tensors.update({"state 9 x": torch.zeros(2)}),
    "no tokens": lambda tensors: tensors.pop("tokens"),
    "tokens in a table": lambda tensors: tensors.update(tokens=tensors["tokens"].reshape(2, 5)),
    "tokens that are one number": lambda tensors: tensors.update(tokens=torch.tensor(1)),
}


LAYOUT = KVLayout(((2, 4, 4), (2, 4, 4)), torch.bfloat16, torch.device("cpu"))


def of_layout(tokens):
    """A text of a model with this layout."""
    stacks = allocate_stacks(LAYOUT, len(tokens) - 1)
    return TextRows(list(tokens), stacks)


def checking(folder):
    def fits(found):
        own = forms_of(allocate_stacks(LAYOUT, len(found.tokens) - 1))
        return not found.states and forms_of(found.stacks) == own

    return KVFiles(folder, "model", fits)


@each_row("wrong", WRONG_FILES)
def test_a_file_with_right_checksums_and_other_shapes_is_ignored_and_replaced(tmp_path, caplog, wrong):
    caplog.clear()
    files = checking(tmp_path)
    files.store("one", of_layout(range(10)), BUDGET)
    files.wait()
    path = tmp_path / "one.model.kv"
    rewritten(path, WRONG_FILES[wrong])

    for _ in range(2):
        assert files.longest_prefix(list(range(12))) is None
    assert not path.exists()
    assert 1 == caplog.text.count("is damaged and removed")
    caplog.clear()
    files.store("one", of_layout(range(10)), BUDGET)
    assert list(range(10)) == files.longest_prefix(list(range(12))).tokens


def a_folder(path, _tmp_path):
    path.mkdir()
    (path / "mine").write_text("kept")


def a_pipe(path, _tmp_path):
    os.mkfifo(path)


def a_dangling_link(path, tmp_path):
    path.symlink_to(tmp_path / "gone")


def a_link_to_a_good_file(path, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    other = KVFiles(tmp_path / "elsewhere", "model")
    stored(other, "one", range(10))
    path.symlink_to(tmp_path / "elsewhere" / "one.model.kv")


def a_device(path, _tmp_path):
    path.symlink_to("/dev/zero")


IN_ITS_PLACE = [a_folder, a_pipe, a_dangling_link, a_link_to_a_good_file, a_device]


@each_row("put", IN_ITS_PLACE)
def test_what_is_no_file_is_ignored_said_once_and_replaced(tmp_path, caplog, put):
    files = KVFiles(tmp_path / "kv", "model")
    files.folder.mkdir()
    caplog.clear()
    put(files.folder / "one.model.kv", tmp_path)

    for _ in range(2):
        assert files.longest_prefix(list(range(12))) is None
    assert 1 == caplog.text.count("is damaged and removed")
    stored(files, "one", range(10))
    stored(files, "two", range(20))

    assert {"one.model.kv", "two.model.kv"} <= set(names(files))
    assert list(range(10)) == files.longest_prefix([*range(10), 99]).tokens
    assert "is not kept" not in caplog.text
    assert ["kept"] * (put is a_folder) == [each.read_text() for each in files.folder.rglob("mine")]


@each_row("put", IN_ITS_PLACE)
def test_it_is_replaced_where_a_text_is_written_before_one_is_read(tmp_path, caplog, put):
    files = KVFiles(tmp_path / "kv", "model")
    files.folder.mkdir()
    for name in ("one.model.kv", f"one.model.{os.getpid()}", "other.model.kv"):
        if (put, name) != (a_folder, f"one.model.{os.getpid()}") and not (tmp_path / "elsewhere").exists():
            put(files.folder / name, tmp_path)

    stored(files, "one", range(10))

    assert "is not kept" not in caplog.text
    assert (files.folder / "one.model.kv").is_file() and not (files.folder / "one.model.kv").is_symlink()


@each_row("put", IN_ITS_PLACE)
def test_a_conversation_is_deleted_whatever_lies_in_the_place_of_its_file(tmp_path, monkeypatch, put):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path))
    kv_folder().mkdir()
    put(kv_folder() / "one.model.kv", tmp_path)

    remove_kv_files("one")

    assert [] == list(kv_folder().glob("*.kv"))


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


def test_after_the_clock_was_set_back_a_day_what_is_used_now_is_kept(files):
    for name, first in (("a", 0), ("b", 100)):
        stored(files, name, range(first, first + 10))
    file_size = files.folder.joinpath("a.model.kv").stat().st_size
    for path in files.folder.iterdir():
        os.utime(path, (time.time() + 24 * 3600,) * 2)
    other_writer = files.folder / "other.model.1234"
    other_writer.touch()

    for name, first in (("c", 200), ("d", 300)):
        stored(files, name, range(first, first + 10), budget=2 * file_size)

    assert names(files) == ["c.model.kv", "d.model.kv", "other.model.1234"]


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
