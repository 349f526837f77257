"""The table of other projects' suites: what is taken out of their tests, and what counts."""

from __future__ import annotations

from contextlib import contextmanager
from fnmatch import fnmatchcase

import pytest

from tests.clients import run
from tests.clients.llama_suite import RULES, Case, prepared, why_not
from tests.clients.ollama_examples import EXAMPLES
from tools import client_suites
from tools.client_suites import LLAMA, SUITES, explained, row

THEIRS = """
def test_completion(n_predicted, re_content):
    res = ask()
    assert res.status_code == 200
    assert res.body["timings"]["predicted_n"] == n_predicted
    assert match_regex(re_content, res.body["content"])
    assert "content" in res.body
"""


def test_assertions_about_a_text_are_taken_out_and_the_others_stay():
    kept = [line.strip() for line in prepared(THEIRS).splitlines() if "assert" in line]

    assert ["assert res.status_code == 200", "assert 'content' in res.body"] == kept


def test_a_case_that_does_not_apply_has_its_reason_and_is_no_failure():
    reason = why_not("test_router.py::test_router_models[x]")
    cases = [Case("a"), Case("b", "assert 404 == 200"), Case("test_router.py::c", "skipped", reason)]

    assert "several models" in reason and not why_not("test_completion.py::test_completion[x]")
    assert "| peer | 1 | 1 | 1 | 50% |" == row("peer", cases)
    assert [f"- peer: 1 do not apply: {reason}", "- peer, failed: `b`: `assert 404 == 200`"] == list(
        explained("peer", cases)
    )


def test_every_pattern_is_about_tests_and_every_example_of_ollama_is_there():
    patterns = [each for group in RULES["does_not_apply"] for each in group["tests"]]

    assert not [each for each in patterns if fnmatchcase("test_completion.py::test_completion", each)]
    assert 40 == len(EXAMPLES) and len({each.name for each in EXAMPLES}) == 40
    assert {"openai", "anthropic", "ollama", "Codex", "Claude Code", "litellm"} <= SUITES.keys()


@pytest.mark.parametrize("module", [client_suites, run])
@pytest.mark.parametrize("name", ["nothing", "o"])  # none, and several
def test_an_unknown_name_is_one_line_with_those_that_exist(module, name, capsys):
    with pytest.raises(SystemExit) as ended:
        module.main(["openai", name])

    out, err = capsys.readouterr()
    assert (2, "", 1) == (ended.value.code, out, err.count("\n"))
    assert err.startswith(f"{name!r} is not the beginning of one name; the names are ") and "ollama" in err


def test_the_beginning_of_a_name_will_do_where_it_is_of_one_only(monkeypatch, tmp_path):
    ran = list[str]()

    @contextmanager
    def world(_packages):
        yield None

    monkeypatch.setattr(client_suites, "new_world", world)
    monkeypatch.setattr(client_suites, "make_environment", lambda *_arguments: None)
    monkeypatch.setattr(client_suites.llama_suite, "install", lambda _packages: None)
    tables = {name: lambda _world, name=name: ran.append(name) or [] for name in SUITES}
    monkeypatch.setattr(client_suites, "SUITES", tables)

    assert 0 == client_suites.main(["--packages", str(tmp_path), "llama", "ollama", "Ollama's"])
    assert [LLAMA, "ollama", "Ollama's examples"] == ran
