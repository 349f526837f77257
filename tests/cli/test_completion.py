"""What a shell is offered when the user presses Tab."""

from __future__ import annotations

import subprocess
from contextlib import closing

import pytest
from click.shell_completion import get_completion_class

from specchat.cli import main
from specchat.cli.completion import COMPLETION_VARIABLE, SHELLS
from specchat.history.history_reader import Thread
from specchat.history.history_writer import HistoryWriter
from specchat.host.spawn import history_path
from specchat.profile.drafter_names import all_drafters
from tests.each_row import each_row
from tests.processes import modules_after

HEAVY = {"torch", "transformers", "textual", "tokenizers"}


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch, own_runtime):
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    profiles = tmp_path / "config" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "mine.toml").write_text("")


def press_tab(monkeypatch, capfd, line: str, shell: str = "bash") -> list[str]:
    """The words that are offered at the end of this line."""
    words = line.split(" ")
    monkeypatch.setenv(COMPLETION_VARIABLE, f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", line if shell != "fish" else " ".join(words[:-1]))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1) if shell != "fish" else words[-1])
    with pytest.raises(SystemExit):
        main.main()
    printed = capfd.readouterr()
    assert not printed.err
    return printed.out.splitlines()


@each_row(
    "line, offered",
    [
        ("specchat sess", ["sessions"]), ("specchat models pu", ["pull"]), ("specchat -P mi", ["mine"]),
        ("specchat ask -P cod", ["code"]), ("specchat ask --profile=cod", ["code"]),
        ("specchat --variant look", ["lookup"]), ("specchat --targ", ["--target"]),
        ("specchat --target embedded/dr", ["embedded/draft"]),
        ("specchat chat --draft embedded/t", ["embedded/target"]),
        ("specchat models pull star", ["starter"]),
        ("specchat help en", ["engine"]), ("specchat help models pu", ["pull"]), ("specchat completion z", ["zsh"]),
    ],
)  # fmt: skip
def test_names_are_completed(monkeypatch, capfd, line, offered):
    found = press_tab(monkeypatch, capfd, line)

    assert offered == [word.removeprefix("plain,") for word in found]


def test_an_unknown_command_disturbs_nobody(monkeypatch, capfd):
    assert not any(press_tab(monkeypatch, capfd, "specchat mdels x"))


def test_after_a_dash_the_options_of_a_chat_are_offered_beside_those_of_the_program(monkeypatch, capfd):
    found = press_tab(monkeypatch, capfd, "specchat -")

    assert {"plain,--version", "plain,--plain", "plain,-c", "plain,-r", "plain,-P", "plain,--temperature"} <= set(found)
    assert len(found) == len(set(found))


def test_every_drafter_is_offered(monkeypatch, capfd):
    assert [f"plain,{name}" for name in all_drafters()] == press_tab(monkeypatch, capfd, "specchat ask --variant ")


@each_row("line", ["specchat ask -f ", "specchat edit ", "specchat --target ./mod", "specchat -P ~/a"])
def test_files_are_left_to_the_shell(monkeypatch, capfd, line):
    assert [f"file,{line.split()[-1] if not line.endswith(' ') else ''}"] == press_tab(monkeypatch, capfd, line)


@each_row("before", ["-r", "sessions export"])
def test_conversations_are_offered_the_newest_first(monkeypatch, capfd, before):
    with closing(HistoryWriter(history_path())) as history:
        for id in ("ab1", "ab2", "cd1"):
            history.start_turn(Thread(id, "two\nwords\x1b[2J"), id, None, {"text": "x"})

    assert press_tab(monkeypatch, capfd, f"specchat {before} ab") == ["plain,ab2", "plain,ab1"]
    if before == "-r":
        assert press_tab(monkeypatch, capfd, "specchat -r cd", "zsh") == ["plain", "cd1", "two words␛[2J"]


def test_what_cannot_be_read_offers_nothing_and_says_nothing(monkeypatch, capfd):
    history_path().write_text("no database")

    assert press_tab(monkeypatch, capfd, "specchat -r ") == []


@each_row("shell", SHELLS)
def test_a_shell_gets_its_lines(capsys, shell):
    assert main.run(["completion", shell]) == 0

    assert (
        capsys.readouterr().out == get_completion_class(shell)(main.cli, {}, "specchat", COMPLETION_VARIABLE).source()
    )


def test_the_lines_for_bash_define_a_completion(tmp_path, capsys):
    main.run(["completion", "bash"])
    (tmp_path / "lines").write_text(capsys.readouterr().out)
    shell = ["bash", "--norc", "-c", f"source {tmp_path}/lines; complete -p specchat"]

    assert "specchat" in subprocess.run(shell, check=True, capture_output=True, text=True).stdout


@pytest.mark.full
def test_completing_imports_nothing_heavy(monkeypatch):
    for name, value in {
        COMPLETION_VARIABLE: "bash_complete", "COMP_WORDS": "specchat --target em", "COMP_CWORD": "2"
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)

    assert not HEAVY & modules_after(
        "from specchat.cli import main\ntry:\n    main.main()\nexcept SystemExit:\n    pass"
    )
