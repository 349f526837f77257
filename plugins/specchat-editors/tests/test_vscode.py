"""The packed VS Code extension: Node loads it from the .vsix, and its command rewrites a document."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from specchat_editors.install.vscode_extension import pack_extension
from tests.plugins.test_editor_jobs import FILTER, NEW, TAIL, TEXT
from tests.plugins.test_editors import CLIENTS, needs, ran

LOADER = Path(__file__).with_name("load_extension.cjs")
SILENT_SERVER = """#!/bin/sh
[ "$1" != lsp ] || { cat >"$0.log"; exit; }
"""  # it reads what the editor sends and never answers


@pytest.fixture
def rewrite(tmp_path):
    """Returns a function that runs the command of the packed extension with an instruction."""
    node, packed, program, file = needs("node"), tmp_path / "it.vsix", tmp_path / "specchat", tmp_path / "area.py"
    program.write_text(SILENT_SERVER + FILTER)
    program.chmod(0o700)
    file.write_text(TEXT + TAIL)
    pack_extension(packed)
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path / "unpacked")

    def run(instruction: str, **options: object):
        folder = tmp_path / "unpacked" / "extension"
        command = node, LOADER, folder, program, file, instruction, json.dumps(options)
        return json.loads(ran(dict(os.environ), *command))

    return run


def test_the_packed_extension_rewrites_a_document_in_one_edit(rewrite):
    said = rewrite("true")

    assert said["text"] == NEW + TAIL
    assert said["edits"] == 1
    assert said["titles"] == ["specchat: true"]


def test_it_shows_the_reason_of_a_failure_and_changes_nothing(rewrite):
    said = rewrite("false")

    assert said["warnings"] == ["specchat: no usable answer; the text is unchanged"]
    assert said["edits"] == 0


def test_it_shows_what_the_program_reports_while_it_runs(rewrite):
    said = rewrite("echo 'specchat: loading the model' >&2")

    assert any(message.startswith("loading the model") for message in said["progress"])


def test_it_can_be_cancelled(rewrite):
    said = rewrite("exec sleep 60", cancelAfter=200)

    assert said["warnings"] == ["specchat: stopped; the text is unchanged"]
    assert said["edits"] == 0


def test_the_prompt_stays_when_the_focus_moves(rewrite):
    said = rewrite("true", asks=True)

    assert said["titles"] == ["specchat: true"]
    assert said["text"] == NEW + TAIL


def test_the_extension_is_active_while_the_language_server_has_not_answered(rewrite, tmp_path):
    said = rewrite("true", serverLog=str(tmp_path / "specchat.log"))

    assert said["active"]
    assert said["text"] == NEW + TAIL
    assert '"method":"initialize"' in (tmp_path / "specchat.log").read_text()


@pytest.mark.full
def test_the_shipped_bundle_is_that_of_the_sources(tmp_path):
    folder = CLIENTS / "vscode"
    if not (folder / "node_modules").is_dir():
        pytest.skip("npm ci was not run in plugins/vscode")
    copy = tmp_path / "vscode"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (copy / "node_modules").symlink_to(folder / "node_modules")

    ran(dict(os.environ), needs("npm"), "--prefix", copy, "run", "build")

    assert (copy / "dist" / "extension.js").read_bytes() == (folder / "dist" / "extension.js").read_bytes()
