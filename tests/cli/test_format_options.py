"""`--schema`, `--regex` and `--choices` on the command line."""

import json
import sys

import pytest

from specchat.errors import ContextError, InputError, UsageError
from specchat.host import spawn
from tests.each_row import each_row
from tests.front import command
from tests.host.conftest import runtime  # noqa: F401 (a fixture)
from tests.scripted_session import ScriptedSession, run_with, scripted_answer

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """No profiles but the shipped ones."""
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))


def asked(*options: str, reason: str = "stop"):
    """The form that was asked for, and the exit code."""
    session = ScriptedSession([scripted_answer(["yes"], reason)])
    code = run_with(["ask", "Well?", *options], lambda _profile: session)
    return (session.requests[-1].answer_format if session.requests else None), code


def test_a_schema_is_given_as_it_is_or_as_a_file(tmp_path):
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))

    for given in (json.dumps(SCHEMA), str(file)):
        structure, code = asked("--schema", given)
        assert (structure.kind, structure.value, code) == ("schema", SCHEMA, 0)


def test_an_expression_and_choices():
    assert asked("--regex", "[a-z]+")[0].value == "[a-z]+"
    assert asked("--choices", "yes|no|yes")[0].value == ["yes", "no"]
    assert asked()[0] is None


@each_row(
    "options, code, said",
    [
        (("--schema", "nowhere.json"), InputError.exit_code, "nowhere.json: the schema cannot be read"),
        (("--schema", "{"), UsageError.exit_code, "not JSON"),
        (("--choices", "yes|"), UsageError.exit_code, "none of them empty"),
        (("--choices", "yes|no", "--regex", "a"), UsageError.exit_code, "regex and choices"),
    ],
)
def test_what_is_no_form_is_one_line_and_a_code(options, code, said, capsys):
    assert asked(*options) == (None, code)

    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1
    assert printed.out == ""


def test_an_answer_that_was_cut_is_printed_and_not_taken_for_whole(capsys):
    assert asked("--choices", "yes, of course|no", reason="length")[1] == ContextError.exit_code

    printed = capsys.readouterr()
    assert printed.out == "yes\n"
    assert "does not match the choices" in printed.err


@pytest.mark.full
@pytest.mark.usefixtures("runtime")
def test_programs_ask_for_a_form(monkeypatch):
    monkeypatch.setattr(spawn, "HOST_COMMAND", (sys.executable, "-m", "specchat.host"))

    def result(*options: str) -> dict:
        return json.loads(command(monkeypatch, "-p", "Well?", "--json", *options).out.splitlines()[-1])

    assert set(json.loads(result("--schema", json.dumps(SCHEMA))["result"])) == {"ok"}
    assert result("--choices", "one|two")["result"] in {"one", "two"}
    assert command(monkeypatch, "-p", "Well?", "--json", "--schema", "[").code == UsageError.exit_code
