"""Plain and narrow terminals: nothing is redrawn, no word is lost, and nothing is told by colour alone."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import click
import pytest
from rich.color import ColorSystem
from textual.color import Color

from specchat.chat.events import LoadingProgress, Notice, PrefillProgress, TextDelta, ThinkingDelta
from specchat.cli import notes
from specchat.cli.main import cli
from specchat.drawing.themes import DARK_THEME, LIGHT_THEME, TokenColours
from specchat.repl import temporary_line
from specchat.repl.answer_printer import AnswerPrinter
from specchat.terminal import guarded_terminal
from tests.contrast import READABLE_CONTRAST, contrast
from tests.each_row import each_row
from tests.front import FRONT_ENDS, Bytes, Ran, command
from tests.host.conftest import runtime  # noqa: F401 (a fixture)

WIDTHS = (40, 60, 80, 100)
PLAIN = [{"TERM": "dumb"}, {"NO_COLOR": "1"}, {"SPECCHAT_PLAIN": "1"}]
DRAWN = re.compile(r"[\r\b\x1b]")
CUT_OFF = re.compile(r"\w\.\.\.$")


@pytest.fixture(autouse=True)
def terminal(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "SPECCHAT_PLAIN", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def printed(monkeypatch, events, *, is_terminal: bool = True, seconds: float = 4.0) -> tuple[str, str]:
    """What a printer writes to stdout and stderr, with a time between the events."""
    answer, talk, now = Bytes(is_terminal=is_terminal), Bytes(is_terminal=is_terminal), [100.0]
    monkeypatch.setattr(temporary_line.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stdout", answer)
    monkeypatch.setattr(sys, "stderr", talk)
    with guarded_terminal():
        printer = AnswerPrinter()
        for event in events:
            now[0] += seconds
            printer.on_event(event)
        printer.close()
    return answer.content().decode(), talk.content().decode()


@each_row("environment", PLAIN)
def test_on_a_plain_terminal_nothing_is_drawn_over_and_each_notice_is_a_line(monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    reading = [PrefillProgress(done, 8000) for done in range(1000, 8000, 1000)]
    answered = [TextDelta("so "), Notice("slow"), TextDelta("it is"), PrefillProgress(20, 90), TextDelta("done")]
    answer, talk = printed(monkeypatch, [LoadingProgress("target", 1, 2), *reading, *answered])

    assert answer == "so \nit is\ndone\n"
    lines = talk.splitlines(keepends=True)
    assert not DRAWN.search(talk)
    assert lines[-2:] == ["slow\n", "reading 90 tokens: 22 %…\n"]
    assert lines[1:3] == ["reading 8,000 tokens: 37 %…\n", "reading 8,000 tokens: 75 %…\n"]


def test_a_pipe_hears_now_and_then_how_far_a_long_prompt_is_read(monkeypatch):
    _, talk = printed(
        monkeypatch, [PrefillProgress(done, 9000) for done in (1000, 3000, 5000, 8000)], is_terminal=False
    )

    assert talk == "reading 9,000 tokens: 88 %…\n"


@each_row("environment", PLAIN)
def test_words_tell_a_thought_from_the_answer_where_it_is_not_dimmed(monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    _, talk = printed(monkeypatch, [ThinkingDelta("a"), ThinkingDelta("b"), TextDelta("c")])

    assert talk == "thinking:\nab\n\nanswer:\n"


@pytest.mark.usefixtures("runtime")
@each_row("environment, options", [*((each, ["--lines"]) for each in PLAIN), ({}, ["--plain"])])
def test_a_plain_conversation_only_adds_lines(monkeypatch, environment, options):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    lines = b"write hello\n/help\n/inspect\n/model nothing\n/quit\n"
    ran = command(monkeypatch, "chat", *options, stdin=lines, on_terminal=True)

    assert ran.code == 0
    assert "hello" in ran.out.decode()
    assert "[=target]" in ran.err  # a mark, where an underline would be
    assert not DRAWN.search(ran.out.decode() + ran.err)


@pytest.mark.usefixtures("runtime")
def test_a_user_who_wants_plain_lines_gets_no_screen(monkeypatch):
    monkeypatch.setenv("SPECCHAT_PLAIN", "1")
    ran = command(monkeypatch, "chat", stdin=b"write hello\n", on_terminal=True)

    assert ran.out.decode().startswith("hello\n")


@each_row("environment", PLAIN)
def test_the_doctor_says_ok_without_colour(monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ran = command(monkeypatch, "doctor", "--quick", on_terminal=True)

    assert "ok    python" in ran.out.decode()
    assert not DRAWN.search(ran.out.decode() + ran.err)


@each_row("environment, is_terminal", [*((each, True) for each in PLAIN), ({}, False)])
def test_a_download_is_told_in_lines_where_no_bar_can_be_drawn(monkeypatch, environment, is_terminal):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    talk, now = Bytes(is_terminal=is_terminal), [100.0]
    monkeypatch.setattr(sys, "stderr", talk)
    monkeypatch.setattr(temporary_line.time, "monotonic", lambda: now[0])
    with guarded_terminal(), notes.download_bar("starter", 100_000_000) as update:
        for count in range(0, 100_000_001, 10_000_000):
            now[0] += 4
            update(count, "model.gguf")

    shown = talk.content().decode()
    assert shown == "".join(f"model.gguf: {count} of 100.0 MB\n" for count in ("30.0 MB", "60.0 MB", "90.0 MB"))


def all_commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if found := command.get_command(context, name):
                yield from all_commands(found, (*words, name))


def on_columns(monkeypatch, columns: int, *arguments: str) -> Ran:
    monkeypatch.setenv("COLUMNS", str(columns))
    for name in arguments[:1]:
        monkeypatch.delitem(FRONT_ENDS, name, raising=False)
    return command(monkeypatch, *arguments, on_terminal=True)


def words_of(text: str) -> list[str]:
    """Without the values of numbers, as how much memory is free changes, and without the commas of a folded row."""
    return sorted(re.sub(r"\x1b\[[0-9;]*m|[0-9.,]+", "", text).split())


def too_long(text: str, columns: int) -> list[str]:
    """The lines that the edge of the terminal would break, but for a single word, which only that edge can break."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    return [line for line in lines if len(line) > columns and len(line.split()) > 1]


def test_every_help_has_all_its_words_at_every_width(monkeypatch):
    faults = []
    for words in [*all_commands(cli), ("help", "engine")]:
        arguments = words if words == ("help", "engine") else (*words, "--help")
        shown = {columns: on_columns(monkeypatch, columns, *arguments).out.decode() for columns in WIDTHS}
        for columns, text in shown.items():
            cut_off = [line for line in text.partition("Commands:")[2].splitlines() if CUT_OFF.search(line)]
            faults += [(arguments, columns, line) for line in [*too_long(text, columns), *cut_off]]
            if words_of(text) != words_of(shown[80]):
                faults.append((arguments, columns, "other words"))
    assert not faults


@pytest.mark.usefixtures("runtime")
@each_row(
    "arguments",
    [
        ["models", "list"], ["sessions", "list"], ["undo", "--list"], ["doctor", "--quick"], ["plugins"],
        ["config", "path"], ["host", "status"], ["models", "list", "--here"],
    ],
    shares=3,
)  # fmt: skip
def test_every_table_has_all_its_words_at_every_width(monkeypatch, tmp_path, arguments):
    for question in ("write one", "write some words more"):
        command(monkeypatch, "ask", question)
    shown = {columns: on_columns(monkeypatch, columns, *arguments) for columns in WIDTHS}

    for columns, ran in shown.items():
        assert not too_long(ran.out.decode() + ran.err, columns)
        assert words_of(ran.out.decode()) == words_of(shown[100].out.decode())


def test_a_pipe_gets_each_row_of_a_table_as_one_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    rows = command(monkeypatch, "models", "list").out.decode().splitlines()

    assert any(len(row) > 100 for row in rows)


def of_256(colour: Color) -> Color:
    """What a terminal with 256 colours shows for it."""
    return Color(*colour.rich_color.downgrade(ColorSystem.EIGHT_BIT).get_truecolor())


@each_row("theme", [DARK_THEME, LIGHT_THEME])
def test_every_text_of_a_theme_can_be_read_also_with_256_colours(theme):
    variables = theme.to_color_system().generate()
    named = ("foreground", "text-accent", "text-error", "text-warning", "text-success", "text-primary", "text-muted")
    tokens = TokenColours.from_theme(variables)
    pairs = [(colour, Color.parse(theme.background)) for colour in (tokens.target, tokens.correction, *tokens.drafters)]
    for ground in map(Color.parse, (theme.background, theme.surface, theme.panel)):
        for name in named:
            kind, _, alpha = variables[name].partition(" ")
            text = ground.get_contrast_text(float(alpha.rstrip("%")) / 100) if kind == "auto" else Color.parse(kind)
            pairs.append((ground + text, ground))
    for text, ground in pairs:
        shown = [(text, ground), (of_256(text), of_256(ground))]
        assert [contrast(*each) >= READABLE_CONTRAST for each in shown] == [True, True], (theme.name, text, ground)


@each_row("theme", [DARK_THEME, LIGHT_THEME])
def test_256_colours_are_enough_for_grey_grounds_and_a_colour_for_each_drafter(theme):
    tokens = TokenColours.from_theme(theme.to_color_system().generate())

    for ground in map(Color.parse, (theme.background, theme.surface, theme.panel)):
        assert len(set(of_256(ground).rgb)) == 1
    assert len({of_256(each).hex for each in (tokens.correction, *tokens.drafters)}) == 1 + len(tokens.drafters)
