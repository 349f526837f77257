"""The documented settings, checked without their editors; and all installed clients."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.clients.filters import documented
from tests.clients.run import CLIENTS, tell
from tests.clients.snippets import ROOT, snippet, snippets
from tests.clients.world import NotAvailable, Step, new_world
from tests.each_row import each_row

PAGES = ("docs/editors.md", "docs/editors-lsp.md", "plugins/README.md", "plugins/neovim/README.md")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with new_world(Path("clients").absolute()) as world:
        yield world


@each_row("page", PAGES)
def test_settings_in_json_and_toml_can_be_read(page):
    for text in snippets(page, "json"):
        assert "specchat" in json.dumps(json.loads(text))
    for text in snippets(page, "toml"):
        assert "specchat" in tomllib.loads(text)["language-server"]


def test_pages_that_repeat_settings_say_the_same():
    assert snippets("plugins/README.md", "json") == snippets("docs/editors.md", "json")
    assert snippets("plugins/README.md", "toml") == snippets("docs/editors-lsp.md", "toml")


def test_a_snippet_that_is_not_there_is_missed():
    with pytest.raises(LookupError, match="does not contain"):
        snippet("docs/editors.md", "**Nobody's editor**", "json")
    with pytest.raises(LookupError, match="no block"):
        snippet("docs/editors.md", "# Editors", "cobol")


@each_row("editor", ["Vim", "Neovim", "Helix", "Kakoune", "Emacs"])
def test_the_table_of_filters_has_every_editor(editor):
    assert "specchat edit" in documented(editor)


def test_a_missing_client_is_reported_and_a_failing_one_is_a_failure(world, monkeypatch):
    def missing(_world):
        yield Step("a", "b")
        raise NotAvailable("no screen")

    def failing(_world):
        yield Step("a", "b")
        raise AssertionError("it hangs")

    for client in (missing, failing):
        monkeypatch.setitem(CLIENTS, client.__name__, ("x", client))

    assert "| a | b |\n| not run | no screen |" in tell("missing", world).text
    assert tell("missing", world).is_well
    assert "| a | b |\n| **failed** | it hangs |" in tell("failing", world).text
    assert not tell("failing", world).is_well


def test_the_page_says_what_every_client_did():
    page = (ROOT / "docs/clients.md").read_text(encoding="utf-8")

    assert [f"## {name}" for name in CLIENTS] == [line for line in page.splitlines() if line.startswith("## ")]
    assert "**failed**" not in page


@pytest.mark.full
@pytest.mark.parametrize("name", CLIENTS)
def test_clients_that_are_here_do_what_they_should(name, world):
    told = tell(name, world)

    assert told.is_well, told.text
    if "| not run |" in told.text:
        pytest.skip(told.text.rpartition("| not run |")[2].strip(" |\n"))
