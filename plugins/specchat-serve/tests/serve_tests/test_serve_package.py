"""The package itself: what it adds to specchat, what it takes from it, and what the pages say of it."""

from __future__ import annotations

import re
from pathlib import Path

import specchat_serve
from specchat.cli.main import run
from specchat_serve.command import serve
from tests.planted_imports import broken_imports, edges
from tests.test_docs import OPTION, all_calls, all_options

PACKAGE = Path(specchat_serve.__file__).parent
ROOT = Path(__file__).parents[4]
PLANTED = {
    "server.py": "specchat.text.tokenizer",
    "command.py": "specchat.loading.load_engine",
    "connection_pool.py": "specchat.chat.session",
    "model_facts.py": "specchat.hub.catalog",
    "openai_chat.py": "specchat.engine.decode",
}
STATUS = re.compile(r"(?:status|[A-Z_]+)(?:: int)? ?= ?([45]\d\d)\b")


def test_an_import_below_the_verbs_and_no_other_breaks_the_contract(tmp_path):
    assert edges(PACKAGE, PLANTED) == broken_imports(PACKAGE, PLANTED, tmp_path)


def test_the_list_of_plugins_has_its_command(capsys):
    assert 0 == run(["plugins"])

    shown = capsys.readouterr().out
    assert "serve (specchat-serve 0.1.0)" in shown and "specchat serve " in shown and "left out" not in shown


def test_the_pages_call_what_exists():
    calls = [call for call in all_calls() if call.words[:1] == ("serve",)]
    named = {option for call in calls for word in call.words if word.startswith("-") for option in OPTION.findall(word)}

    assert {"--port", "--token"} <= named <= all_options(serve)


def test_the_page_names_every_status_of_an_error():
    used = {status for path in PACKAGE.glob("*.py") for status in STATUS.findall(path.read_text(encoding="utf-8"))}
    page = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
    named = {status for row in re.findall(r"^\| ([45\d, ]+) \|", page, re.MULTILINE) for status in row.split(", ")}

    assert {"408", "500"} < used
    assert used <= named, sorted(used - named)
