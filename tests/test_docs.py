"""The pages and the command line say the same: every command and option that a page names exists, and is on a page."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path

import click
import pytest

import specchat
from specchat.chat.request import Request
from specchat.cli.main import COMMANDS, cli, run, with_default_command
from specchat.loading.load_engine import load_engine
from specchat.plugins.own_plugins import OWN_PLUGINS
from specchat.profile.keys import Profile
from tests.each_row import each_row
from tests.engine_answers import measure_answer
from tests.plugins.conftest import rediscover
from tests.plugins.test_example import PIP

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("plugins/**/README.md")])
PAGES = [
    page for page in PAGES if page.name != "CHANGELOG.md" and "node_modules" not in page.parts
]  # that names removed ones
CALL = re.compile(r"(?:^\s*|[|&;(] *|^\S+=\S* )(?:\.venv/bin/)?specchat((?: (?! )[^#]*?)?)(?=  |#|&&|;|$)")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]*|-[a-zA-Z])(?![\w-])")
CODE = re.compile(r"```\w*[^\n]*\n(.*?)```|`([^`\n]+)`", re.DOTALL)
OPTIONS_OF_OTHERS = {  # of acpx, code-server, vLLM, SGLang, llama.cpp, torchrun; tools and plugins of this repository
    "--packages", "--no-fs", "--deny-all", "--install-extension", "--uninstall", "--overwrite",
    "--per-request-spec-decode-metrics", "--every-combination",
    "--into", "--enable-metrics", "--draft-max", "--nnodes", "--rdzv-endpoint", "--cpu", "--front-end",
    "--enable-auto-tool-choice", "--tool-call-parser", "--jinja", "--model-shape", "--filter", "--prompt-tokens",
    "--drafters", "--budgets", "--threads", "--temperatures", "--columns", "--restart", "--limit",
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A use of the command line on a page."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: specchat {' '.join(self.words)}"


def code_of(page: Path) -> Iterator[str]:
    """The code of a page: its blocks, in which a comment tells more than the command, and what stands in a line."""
    for block, inline in CODE.findall(page.read_text(encoding="utf-8")):
        yield from (block or inline).splitlines()


def calls() -> list[Call]:
    """Those of the package; a plugin's own tests check what the pages call of it."""
    return [call for call in all_calls() if not OWN_PLUGINS.keys() & set(call.words[:1])]


def all_calls() -> list[Call]:
    found = list[Call]()
    for page in PAGES:
        for line in code_of(page):
            for match in CALL.finditer(line):
                parts = match[1].split(" | ")
                rest = " ".join([parts[0], *(part for part in parts[1:] if part.lstrip().startswith("-"))])
                words = rest.replace("[", " ").replace("]", " ").split()
                found.append(Call(page.relative_to(ROOT).as_posix(), tuple(words)))
    return found


def commands_of(words: tuple[str, ...]) -> list[click.Command]:
    """The commands that these words name; alternatives are written as a|b. LookupError for one that does not exist."""
    first, *rest = with_default_command(words, is_terminal=True)
    if first in ("-h", "--help", "--version") or not re.fullmatch(r"[a-z|]+", first):
        return [cli]
    found = [_command(cli, name) for name in first.split("|")]
    while rest and isinstance(found[0], click.Group) and re.fullmatch(r"[a-z][a-z-]*(\|[a-z-]+)*", rest[0]):
        group, names = found[0], rest.pop(0).split("|")
        found = [_command(group, name) for name in names]
    return found


def _command(group: click.Group, name: str) -> click.Command:
    command = group.get_command(click.Context(group), name)
    if command is None:
        raise LookupError(f"{group.name or 'specchat'} has no command {name!r}")
    return command


def options_of(command: click.Command) -> set[str]:
    return {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {"-h", "--help"}


@each_row("call", calls)
def test_what_a_page_calls_exists(call: Call):
    commands = commands_of(call.words)
    known = set.union(*map(options_of, commands))

    named = {option for word in call.words if word.startswith("-") for option in OPTION.findall(word)}
    assert named <= known, f"{sorted(named - known)} of {[each.name for each in commands]}"


def all_options(command: click.Command) -> set[str]:
    if not isinstance(command, click.Group):
        return options_of(command)
    below = (all_options(_command(command, name)) for name in command.list_commands(click.Context(command)))
    return options_of(command).union(*below)


def test_options_that_stand_alone_exist():
    named = {
        (page.name, option)
        for page in PAGES
        if page.stem not in OWN_PLUGINS
        for code in code_of(page)
        if code.startswith("-")
        for option in OPTION.findall(code)
    }
    known = all_options(cli) | OPTIONS_OF_OTHERS

    assert [(page, option) for page, option in sorted(named) if option not in known] == []


def test_the_readme_is_short_and_its_first_screen_starts_without_words_of_the_field():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    screen = readme[: readme.index("\n## Why ")]

    assert len(readme.split()) <= 700
    assert readme.splitlines()[4].startswith("![")  # after the name and one sentence
    commands = ("-m venv", "specchat demo\n", "specchat edit FILE", "specchat undo", "specchat setup")
    assert [] == [each for each in commands if each not in screen]
    assert [] == re.findall(r"(?i)\b(?:drafters?|drafts?|pass(?:es)?|budgets?|tokens?|acceptance)\b", screen)


def test_the_calls_of_all_pages_are_found():
    pages = {call.page for call in calls()}

    assert {"README.md", "docs/models.md", "docs/edits.md", "docs/serve.md"} <= pages
    assert len(calls()) > 200


@each_row("name", COMMANDS)
def test_every_command_is_on_a_page(name: str):
    assert name in {each for call in calls() for word in call.words[:1] for each in word.split("|")}


@each_row("group, name", [
    (group, name)
    for group, later in COMMANDS.items()
    if isinstance(command := later.load(), click.Group)
    for name in command.list_commands(click.Context(command))
])  # fmt: skip
def test_every_command_of_a_group_is_on_a_page(group: str, name: str):
    seconds = {call.words[1] for call in calls() if len(call.words) > 1 and call.words[0] == group}

    assert name in {each for word in seconds for each in word.split("|")}


@each_row("page, heading", [("SECURITY.md", "## What is defended"), ("docs/reliability.md", "## What is tested")])
def test_each_row_about_safety_names_tests_which_exist(page, heading):
    text = (ROOT / page).read_text(encoding="utf-8").partition(heading)[2].partition("\n## ")[0]
    _head, _line, *rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("|")]

    assert len(rows) >= 18
    for what, promise, tests in rows:
        paths = re.findall(r"`([\w./-]+)`", tests)
        assert paths or promise.startswith("no: "), what
        assert [] == [path for path in paths if not (ROOT / path).exists()], what


def test_every_instrument_that_a_page_calls_exists():
    named = {
        (page.name, name) for page in PAGES for name in re.findall(r"-m (tools(?:\.\w+)+)", page.read_text("utf-8"))
    }

    assert len(named) > 20
    assert [(page, name) for page, name in sorted(named) if not (ROOT / f"{name.replace('.', '/')}.py").is_file()] == []


def test_the_reference_of_the_package_has_every_name_and_field():
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    types = [each for name in specchat.__all__ if is_dataclass(each := getattr(specchat, name))]
    names = {name for name in specchat.__all__ if name != "__version__"} | {
        f.name for each in types for f in fields(each)
    }

    assert len(types) == 19
    assert [name for name in sorted(names) if f"`{name}" not in page] == []


PLUGIN_PAGE = ROOT / "docs" / "add-a-drafter.md"
TITLED = re.compile(r'```\w+ title="([^"]+)"\n(.*?)```', re.DOTALL)
MAX_LINES = 40  # as the page promises, of Python


@pytest.fixture
def bigrams(tmp_path, monkeypatch):
    """The package of the page, installed by pip as it stands there."""
    pytest.importorskip("setuptools", reason="the build backend of the page is not installed")
    source = tmp_path / "specchat-bigrams"
    for name, text in files_of_the_page().items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, encoding="utf-8")
    command = [*PIP, "--target", tmp_path / "site", source]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delenv("SPECCHAT_LOAD_PLUGINS", raising=False)
    rediscover()
    yield
    rediscover()


def files_of_the_page() -> dict[str, str]:
    return dict(TITLED.findall(PLUGIN_PAGE.read_text(encoding="utf-8")))


def test_the_drafter_of_the_page_has_at_most_forty_lines():
    python = [text for name, text in files_of_the_page().items() if name.endswith(".py")]

    assert len(python) == 2
    assert sum(len(text.splitlines()) for text in python) <= MAX_LINES


@pytest.mark.full
@pytest.mark.usefixtures("bigrams")
def test_the_drafter_of_the_page_drafts_and_changes_no_text(capsys):
    assert run(["plugins"]) == 0
    assert "--variant bigrams" in capsys.readouterr().out
    engine = load_engine(Profile())
    counting = Request("repeat after me: one two one two one two one two", max_tokens=40, seed=5)

    plain, drafted = (measure_answer(engine, replace(counting, variant=variant)) for variant in ("plain", "bigrams"))

    assert plain.text == drafted.text
    assert drafted.totals.accepted_by_drafter["bigrams"] > 0
