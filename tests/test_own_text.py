"""The product's own text: a catalogue holds it, people read its translation, and nothing else changes."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from specchat import own_text
from specchat.own_text import translated
from tests.each_row import each_row
from tests.front import FRONT_ENDS, Ran, command
from tests.host.conftest import runtime  # noqa: F401 (a fixture)
from tools.collect_texts import CATALOGUE, as_json, collect, texts_of, translation

INNERMOST = re.compile(r"\[[^\[\]]*\]")
Translate = Callable[..., None]


@pytest.fixture
def in_language(monkeypatch, tmp_path) -> Translate:
    """Let the user read these translations."""
    for name in own_text.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(own_text, "configuration_folder", lambda: tmp_path)
    monkeypatch.setenv("SPECCHAT_LANGUAGE", "xx")
    (tmp_path / "texts").mkdir(exist_ok=True)

    def write(texts: dict[str, str] | str, name: str = "xx") -> None:
        content = texts if isinstance(texts, str) else json.dumps(texts)
        (tmp_path / "texts" / f"{name}.json").write_text(content)
        own_text.catalogue.cache_clear()

    yield write
    own_text.catalogue.cache_clear()


@pytest.fixture
def in_brackets(in_language) -> None:
    """Every text of the catalogue in brackets."""
    in_language({text: f"[{text}]" for text in json.loads(CATALOGUE.read_text(encoding="utf-8"))})


def outside_brackets(text: str) -> str:
    """What is not translated, "" for a text that is in brackets as a whole."""
    while text != (text := INNERMOST.sub("", text)):
        pass
    return " ".join(text.split())


@pytest.mark.full
def test_the_catalogue_has_the_texts_of_the_source():
    assert CATALOGUE.read_text(encoding="utf-8") == as_json(collect()), "run python -m tools.collect_texts"


@each_row(
    "code, texts",
    [
        ('raise UsageError(f"{path}: no such {kind}s here")', ["{path}: no such {kind}s here"]),
        ('print_note(f"{a.count} of {len(b)} files, {a.count} lost")', ["{count} of {len} files, {count2} lost"]),
        ('say("no file " + name, key="two words")', ["no file", "two words"]),
        ('line = f"{a}; {\'the rest is kept\' if b else \'\'}"', ["the rest is kept"]),
        ('KEYS = "Enter opens it  Esc goes back"', ["Enter opens it", "Esc goes back"]),
        ('text = "y yes, a {always}, n no".format(always=1)', ["y yes, a {always}, n no"]),
        ('"""A file: two words."""\ndef f():\n    """Not for people."""', []),
        ('@cli.command()\ndef f():\n    """Show the rest\n    of it.\n\n    \\b\n    a b   the first one\n    """',
         ["Show the rest of it.", "the first one"]),
        ('x = re.compile("(?:two words)"); y = text == "two words"; z = {"two words": 1}; log.debug("two words")', []),
        ('name = "target"; path = "a/b.py"; sql = "SELECT a FROM b"', []),
    ],
)  # fmt: skip
def test_a_text_is_what_a_person_may_read(code, texts):
    assert list(texts_of(ast.parse(code))) == texts


def test_a_new_text_waits_in_each_translation_and_a_kept_one_stays():
    assert translation(["old", "new"], {"old": "alt", "gone": "weg"}) == {"old": "alt", "new": ""}


@each_row("locale", ["", "C", "C.UTF-8", "POSIX", "en", "en_US.UTF-8", "xx_YY.UTF-8", "../../etc", "xx.json"])
def test_without_a_catalogue_nothing_changes(monkeypatch, tmp_path, locale):
    monkeypatch.setattr(own_text, "configuration_folder", lambda: tmp_path)
    monkeypatch.setenv("SPECCHAT_LANGUAGE", locale)
    for name in own_text.VARIABLES[1:]:
        monkeypatch.delenv(name, raising=False)
    own_text.catalogue.cache_clear()

    assert translated("no such file: a; two  words") == "no such file: a; two  words"


@each_row(
    "text, expected",
    [
        ("no such file", "keine Datei"),
        ("specchat: no such file", "specchat: keine Datei"),
        ("  no such file   it has 3 questions", "  keine Datei   es sind 3 Fragen"),
        ("it has 3 questions; no such file", "es sind 3 Fragen; keine Datei"),
        ("a.py: no such file here", "hier fehlt a.py"),
        ("no such file here: it has 3 questions here", "no such file here: it has 3 questions here"),
        ("3 tokens", "3 Wörter"),
        ("this sentence of a model has tokens", "this sentence of a model has tokens"),
        ("not translated yet", "not translated yet"),
        ("a line\nno such file", "a line\nkeine Datei"),
        ("Keep them all", "Behalte alle"),
    ],
)
def test_a_text_is_found_as_a_whole_by_its_template_or_in_its_parts(in_language, text, expected):
    in_language(
        {
            "no such file": "keine Datei",
            "it has {count} questions": "es sind {count} Fragen",
            "{path}: no such file here": "hier fehlt {path}",
            "{count} tokens": "{count} Wörter",
            "not translated yet": "",
            "Keep them all.": "Behalte alle.",
        }
    )

    assert translated(text) == expected


def test_a_translation_that_names_what_its_text_lacks_is_shown_as_it_is(in_language):
    in_language({"it has {count} questions": "{wrong} {} Fragen"})

    assert translated("it has 3 questions") == "{wrong} {} Fragen"


@each_row("content", ["", "{", "[]x", "[1]", '"a"', "3", '{"a file": 3}'])
def test_a_catalogue_that_cannot_be_read_changes_nothing(in_language, content):
    in_language(content)

    assert translated("no such file") == "no such file"


@each_row(
    "environment, language",
    [
        ({"LANG": "xx_YY.UTF-8"}, "of xx_YY"),
        ({"LANG": "xx_ZZ.UTF-8"}, "of xx"),
        ({"LANG": "xx_YY.UTF-8", "LC_ALL": "xx"}, "of xx"),
        ({"LANG": "xx_YY.UTF-8", "SPECCHAT_LANGUAGE": "en"}, "no such file"),
    ],
)
def test_the_language_is_that_of_the_user(in_language, monkeypatch, environment, language):
    for name in ("xx", "xx_YY"):
        in_language({"no such file": f"of {name}"}, name)
    monkeypatch.delenv("SPECCHAT_LANGUAGE")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert translated("no such file") == language


def run(monkeypatch, *arguments: str, **streams) -> Ran:
    monkeypatch.delitem(FRONT_ENDS, arguments[0], raising=False)
    return command(monkeypatch, *arguments, **streams)


@pytest.mark.usefixtures("in_brackets", "runtime")
@each_row(
    "arguments, left",
    [
        (["--help"], "Usage: specchat COMMAND ... Options: --version -h, --help Commands: chat ask demo edit"),
        (["edit", "--help"], "Usage: specchat edit"),
        (["sessions", "export", "zzz"], "specchat:"),
        (["undo", "99"], "specchat:"),
        (["ask", "--profile", "nope", "x"], "specchat:"),
        (["host", "stop"], ""),
        (["plugins"], ""),
        (["models", "pull", "no/such", "--offline"], ""),
    ],
)
def test_what_a_command_says_is_translated(monkeypatch, arguments, left):
    ran = run(monkeypatch, *arguments)

    assert outside_brackets(ran.out.decode() + ran.err).startswith(left), ran
    assert "[" in ran.out.decode() + ran.err


@pytest.mark.full
@pytest.mark.usefixtures("in_brackets", "runtime")
def test_the_line_mode_is_translated_and_an_answer_is_not(monkeypatch):
    lines = b"write no such file\n/help\n/back\n/nothing\n"
    ran = run(monkeypatch, "chat", "--plain", stdin=lines, on_terminal=True)

    assert ran.out.decode().splitlines()[0] == "no such file"
    assert "[/help lists the commands; Ctrl-D quits]" in ran.err
    assert "[remove the last request and its answer]" in ran.err


@pytest.mark.full
@pytest.mark.usefixtures("in_brackets", "runtime")
@each_row("arguments", ["models list --json", "config show", "doctor --quick --json"])
def test_json_and_files_stay_as_they_are(monkeypatch, arguments):
    bracketed = run(monkeypatch, *arguments.split()).out.decode()
    monkeypatch.setenv("SPECCHAT_LANGUAGE", "en")
    numbers = re.compile(r"[\d.]+")

    assert numbers.sub("", bracketed) == numbers.sub("", run(monkeypatch, *arguments.split()).out.decode())


@pytest.mark.usefixtures("in_brackets", "runtime")
def test_a_program_gets_english_errors(monkeypatch):
    ran = run(monkeypatch, "script", "-p", "x", "--json", "--profile", "nope")

    assert b"[" not in ran.out


def test_the_wheel_has_the_catalogue():
    assert CATALOGUE.is_relative_to(Path(own_text.__file__).parent)
