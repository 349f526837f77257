"""A conversation keeps its settings, even if the file of its profile has changed."""

import pytest

from specchat.chat.request import Request
from specchat.history.history_reader import Thread
from specchat.history.history_writer import HistoryWriter
from specchat.host.engine_loader import EngineLoader
from specchat.host.open_sessions import OpenSessions
from specchat.host.queue import TurnQueue
from specchat.profile.settings import read_settings


@pytest.fixture
def own_profile(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))
    path = tmp_path / "config" / "profiles" / "mine.toml"
    path.parent.mkdir(parents=True)
    path.write_text("[sampling]\ntemperature = 0.5\n[[routes]]\nkind = 'code'\ncontains = ['snake']\n")
    return path


@pytest.fixture
def another_day(tmp_path):
    """Creates the sessions of a new host over the same history file."""

    histories = []

    def begin() -> OpenSessions:
        histories.append(HistoryWriter(tmp_path / "history.db"))
        return OpenSessions(histories[-1], TurnQueue(EngineLoader(), lambda _event: None))

    yield begin
    for history in histories:
        history.close()


def asked(sessions: OpenSessions, **options) -> str:
    session = sessions.load_thread(Thread("a1", ""), read_settings("mine", options))
    sessions.queue_turn(session, "t1", Request("why"), None)
    return session.thread.id


def test_a_changed_or_removed_profile_file_does_not_change_a_conversation(own_profile, another_day):
    first = another_day()
    id = asked(first, **{"limits.answer": 99})
    own_profile.unlink()

    session = another_day().find(id)
    assert first.find(id).profile == session.profile
    assert (0.5, 99, "code") == (
        session.profile.sampling.temperature,
        session.profile.limits.answer,
        session.profile.routes[0].kind,
    )


def test_only_what_is_changed_changes_and_a_named_profile_is_read_again(own_profile, another_day):
    id = asked(another_day())
    own_profile.write_text("[sampling]\ntemperature = 2.0\n")
    settings = another_day().find(id).settings

    changed = settings.changed({"sampling.top_k": 7})
    assert (0.5, 7) == (changed.profile.sampling.temperature, changed.profile.sampling.top_k)
    assert settings == changed.changed({"sampling.top_k": None})
    assert 2.0 == changed.with_profile("mine").profile.sampling.temperature


def test_a_fork_has_the_settings_of_its_source(own_profile, another_day):
    sessions = another_day()
    id = asked(sessions)
    own_profile.write_text("[sampling]\ntemperature = 2.0\n")

    assert 0.5 == sessions.fork(sessions.thread(id), None).profile.sampling.temperature


def test_settings_with_unknown_keys_are_read_from_the_file_of_the_profile(own_profile, another_day):
    sessions = another_day()
    id = asked(sessions)
    sessions.history.store_settings(id, {"profile": {"sampling": {"colour": 1}}, "changes": {"sampling.top_k": 3}})
    sessions.history.flush()

    assert (0.5, 3) == ((found := another_day().find(id)).profile.sampling.temperature, found.profile.sampling.top_k)
