"""The real server, host and embedded model."""

from __future__ import annotations

import os
import time

import pytest

from lsp_tests.driver import at
from tests.plugins.conftest import command_with_such_a_host

TEXT = "import json\n\n\ndef read(path):\n    with open(path) as file:\n        return json.\n"


@pytest.mark.full
def test_the_embedded_model_completes_and_edits(start, fresh_world):
    editor = start(*command_with_such_a_host(os.environ["PYTHONPATH"]), "lsp", world=fresh_world)
    editor.begin()
    editor.open(TEXT)

    deadline, items = time.monotonic() + 60, []
    while not items and time.monotonic() < deadline:
        items = editor.result("textDocument/inlineCompletion", at(5, 20))["items"]
    (item,) = items
    wanted = {
        "uri": "file:///project/shop.py",
        "version": 1,
        "first": 4,
        "last": 6,
        "instruction": "Rename file to source",
    }
    editor.call("workspace/executeCommand", {"command": "specchat.edit", "arguments": [wanted]})

    assert item["range"]["start"] == {"line": 5, "character": 20}
    assert item["insertText"].strip()
    assert {"workspace/applyEdit", "window/showMessage"} & {notice["method"] for notice in editor.notices}
    assert editor.close() == 0
