"""A file keeps its encoding, byte order mark, line ends and final newline."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specchat.app.project_files import ProjectFiles
from specchat.chat.attachments import read_attachment
from specchat.context.workspace_roots import WorkspaceRoots
from specchat.edit.source_text import fit_tabs, make_source, read_source
from specchat.errors import InputError, NoUsableEditError
from tests.each_row import each_row
from tests.edit.scripted import answers, new_text, say


def edited(raw: bytes, answer: str, name: str = "a.txt") -> bytes:
    source = make_source(raw, name)
    return source.encode(new_text(source, answer))


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_newlines_the_final_newline_and_the_mark_are_kept(newline, end, bom):
    raw = bom + f"one{newline}two{end and newline}".encode()

    assert bom + f"one{newline}2{end and newline}".encode() == edited(raw, "```\none\n2\n```")


def test_lines_that_stay_keep_their_own_newlines():
    raw = b"one\r\ntwo\nthree\r\nfour\nfive\r\n"

    assert b"one\r\n2\nthree\r\nmore\r\nfour\nfive\r\n" == edited(raw, "one\n2\nthree\nmore\nfour\nfive\n")


def test_tabs_and_form_feeds_are_letters():
    assert b"\tnew\n\x0c\tb\n" == edited(b"\told\n\x0c\tb\n", "\tnew\n\x0c\tb\n")


@pytest.mark.parametrize(
    ("raw", "codec"),
    [("é\n".encode(), "utf-8"), (b"\xe9\n", "latin-1"), (b"\xef\xbb\xbf\xc3\xa9\n", "utf-8-sig"),
     ("# -*- coding: iso-8859-15 -*-\n€\n".encode("iso-8859-15"), "iso-8859-15"),
     (b"\xff\xfe" + "é€\n".encode("utf-16-le"), "utf-16")],
)  # fmt: skip
def test_an_encoding_is_found_and_kept(raw, codec):
    source = make_source(raw, "a.py")

    assert codec == source.codec
    bare = {"utf-16": "utf-16-le", "utf-8-sig": "utf-8"}.get(codec, codec)  # without the mark
    assert raw + "x\n".encode(bare) == source.encode(source.text + "x\n")


def test_a_letter_that_the_encoding_lacks_is_refused():
    with pytest.raises(NoUsableEditError, match="漢"):
        make_source(b"\xe9\n", "a").encode("漢\n")


def test_an_empty_file_gets_lines_that_end():
    assert b"x = 1\n" == edited(b"", "x = 1")


@pytest.mark.parametrize("raw", [b"\x00binary", b"\xff\xfe\x00", b"\xfe\xff\x00a", b"\xff\x01\x02", b"\x80\x81"])
def test_only_text_can_be_edited(raw):
    with pytest.raises(InputError):
        make_source(raw, "a")


def test_a_question_reads_what_an_edit_reads(tmp_path):
    texts = [b"a\rb\r", b"a\r\nb\n", b"a\n\rb", b"\xe9\n", b"\xef\xbb\xbfa\n", b"\xff\xfea\0\n\0"]
    texts += ["# coding: cp1252\n€\n".encode("cp1252")]
    for raw in texts:
        (tmp_path / "a.py").write_bytes(raw)

        assert read_source(tmp_path / "a.py").text == read_attachment(tmp_path / "a.py").text, raw


def test_a_notebook_is_refused_in_words(tmp_path):
    notebook = tmp_path / "a.ipynb"
    notebook.write_text('{"cells": [], "nbformat": 4}')

    with pytest.raises(InputError, match=r"a\.ipynb: a notebook; edit a cell in its editor"):
        read_source(notebook)
    with pytest.raises(InputError, match="a notebook"):
        ProjectFiles(WorkspaceRoots(tmp_path)).read_to_change(notebook)


@pytest.mark.usefixtures("runtime")
def test_a_piped_notebook_is_refused_in_words(monkeypatch):
    said = say(monkeypatch, answers("{}"), "-", "add a cell", "--lang", "ipynb", "--stderr", stdin=b'{"cells": []}')

    assert (2, b'{"cells": []}', []) == (said.ran.code, said.ran.out, said.asked)
    assert "stdin.ipynb: a notebook; edit a cell in its editor" in said.ran.err


def test_only_files_can_be_edited(tmp_path):
    os.mkfifo(tmp_path / "fifo")

    for path in (tmp_path, tmp_path / "fifo", tmp_path / "absent"):
        with pytest.raises(InputError):
            read_source(path)


NEWLINES = st.sampled_from(["\n", "\r\n"])


@settings(max_examples=100)
@given(st.lists(st.tuples(st.text("ab\té\x0c\r", max_size=3), NEWLINES), max_size=8), st.sampled_from(["", "x"]))
def test_an_unchanged_text_is_written_byte_for_byte(lines, end):
    raw = ("".join(text.rstrip("\r") + newline for text, newline in lines) + end).encode()
    source = make_source(raw, "a")

    assert raw == source.encode(source.text)


@each_row(
    "old, new, fitted",
    [
        ("f {\n\ta\n}\n", "f {\n    b\n        c\n}\n", "f {\n\tb\n\t\tc\n}\n"),
        ("f {\n\ta\n}\n", "f {\n  b\n    c\n}\n", "f {\n\tb\n\t\tc\n}\n"),
        ("\t\ta\n", "        a\n        b\n", "\t\ta\n\t\tb\n"),  # by the line that both have
        ("\t\ta\n", "a\n    b\n", "a\n\tb\n"),
        ("\ta\n", "    b\n     * c\n", "\tb\n\t * c\n"),
        ("\ta\n", "  b\n   c\n", "  b\n   c\n"),  # no level of one blank
        ("\ta\n", "\n\n", "\n\n"),
        ("\ta\n", "", ""),
        ("\ta\n  b\n", "    a\n", "    a\n"),  # the file has both
        ("    a\n", "    b\n", "    b\n"),
        ("\t/*\n\t * a\n\t */\n", "/*\n * b\n */\n", "/*\n * b\n */\n"),
    ],
)
def test_the_tabs_of_a_file_are_those_of_a_new_text(old, new, fitted):
    assert fitted == fit_tabs(old, new)
