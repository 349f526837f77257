"""The package itself: what it adds to specchat, what it takes from it, and what the pages say of it."""

from __future__ import annotations

from pathlib import Path

import specchat_serve
from specchat.cli.main import run
from specchat_serve.command import serve
from tests.faults.test_clocks import readers_of_wall_clocks
from tests.planted_imports import broken_imports, edges
from tests.test_docs import OPTION, all_calls, all_options

PACKAGE = Path(specchat_serve.__file__).parent
PLANTED = {
    "server.py": "specchat.text.tokenizer",
    "command.py": "specchat.loading.load_engine",
    "connection_pool.py": "specchat.chat.session",
    "model_facts.py": "specchat.hub.catalog",
    "openai_chat.py": "specchat.engine.decode",
}
DATES = {"ollama_api.py", "openai_chat.py", "openai_completions.py", "openai_responses.py", "server.py"}


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


def test_the_wall_clock_dates_answers_and_models_and_nothing_else():
    assert DATES == readers_of_wall_clocks(PACKAGE)
