"""The table of GGUF families: a no has a reason, a process that dies is one, and rows that are done are kept."""

from __future__ import annotations

import os
import signal
import sys
from argparse import Namespace
from dataclasses import replace

import pytest

from specchat.errors import ModelError
from tests.each_row import each_row
from tools import gguf_table
from tools.gguf_table import TableRow, in_own_process, table

WHOLE = TableRow(
    "qwen3", "qwen3", "specchat", 1e-6, 1e-5, True, True, "trees", True, "none", "yes, dequantized"
)  # fmt: skip


@each_row("change", [{}, {"equals_llama": None}, {"drafter": "MTP, left out"}])
def test_a_row_without_a_no_needs_no_reason(change):
    assert replace(WHOLE, **change).is_explained


@each_row(
    "change",
    [
        {"computed_by": "", "equals_transformers": False}, {"equals_llama": False}, {"drafts": "chains"},
        {"drafts": "no"}, {"multiplies_blocks": False},
    ],
)  # fmt: skip
def test_a_no_needs_a_reason(change):
    row = replace(WHOLE, **change)

    assert not row.is_explained
    assert replace(row, reasons=("no kernel",)).is_explained
    assert "1 unexplained" in table([row, WHOLE])


@each_row("change", [{"gpu": "no"}, {"equals_transformers": False}, {"equals_llama": False, "has_cause": False}])
def test_no_reason_excuses_a_fault(change):
    row = replace(WHOLE, **change, reasons=("no kernel",))

    assert not row.is_explained


def test_every_row_has_the_columns_of_the_header():
    rows = [WHOLE, TableRow("llama4", "llama4", reasons=("cannot be read",)), replace(WHOLE, reasons=("a | b",))]

    assert {line.count("|") for line in table(rows).splitlines()[2:]} == {13}


def die():
    print("GGML_ASSERT(x)", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_dies_is_one_line():
    with pytest.raises(ModelError, match=r"^ended by signal 9: GGML_ASSERT\(x\)$"):
        in_own_process(die)
    with pytest.raises(ModelError, match=r"^ZeroDivisionError: division by zero$"):
        in_own_process(lambda: str(1 / 0))
    assert in_own_process(lambda: "a row") == "a row"


def test_rows_that_are_done_are_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path))  # set for each row
    asked = list[str]()

    def try_family(family, _converter):
        asked.append(family)
        if family == "gemma":
            raise ModelError("ended by signal 6")
        return replace(WHOLE, family=family)

    monkeypatch.setattr(gguf_table, "try_family", try_family)
    monkeypatch.setattr(gguf_table, "in_own_process", lambda work: work())
    options = Namespace(rows=tmp_path / "rows.jsonl", converter=tmp_path, llama=None, families=["qwen3", "gemma"])

    first = gguf_table._rows(options)
    again = gguf_table._rows(Namespace(**{**vars(options), "families": ["gemma", "qwen3", "llama"]}))

    assert asked == ["qwen3", "gemma", "llama"]
    assert [row.family for row in again] == ["gemma", "qwen3", "llama"]
    assert again[:2] == first[::-1]
    assert again[0].reasons == ("ended by signal 6",)
