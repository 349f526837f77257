"""`auto` tries the drafters of plugins last, rarely while they are slow, and never again after an error."""

from __future__ import annotations

import sys
from threading import Event as Flag
from threading import enumerate as enumerate_threads

import pytest

from specchat.chat.events import Finished, Notice
from specchat.chat.request import Request
from specchat.chat.router import choose_route
from specchat.drafters import registry
from specchat.engine.drafter import AnswerTask, Drafter
from specchat.engine.tree import DraftTree
from specchat.loading.load_engine import load_engine
from tests.engine_answers import measure_answer
from tests.tiny import tiny_profile

REQUEST = Request("why why why", max_tokens=60, seed=3, variant="auto")
DRAFTING = """
@hookimpl
def register_drafters():
    return [Extension(name, f"drafts {name}", f"drafting:{name}") for name in ("knowing", "raising", "wrong")]

calls = {"knowing": 0, "raising": 0, "wrong": 0}
text = []

def _drafter(name, draft):
    from specchat.engine.drafter import Drafter
    from specchat.engine.tree import DraftTree

    def propose(context):
        calls[name] += 1
        tree = DraftTree(context.tokens[-1])
        tree.add_chain(draft(context)[: context.max_draft_tokens])
        return tree

    drafter = Drafter()
    drafter.propose, drafter.is_instant = propose, True
    return drafter

def knowing(_parts):
    return _drafter("knowing", lambda context: text[len(context.tokens) :])

def raising(_parts):
    return _drafter("raising", lambda context: 1 / 0)

def wrong(_parts):
    return _drafter("wrong", lambda context: [3, 3, 3])
"""


@pytest.fixture
def drafting(install):
    """The module of a plugin with three drafters."""
    install("drafting", DRAFTING)
    import drafting

    return drafting


@pytest.mark.usefixtures("drafting")
def test_drafters_of_plugins_come_last():
    with load_engine(tiny_profile()).create_session() as session:
        session.chooser.start_answer(AnswerTask("chat", choose(session, tiny_profile())))
        assert ("knowing", "raising", "wrong") == session.chooser.drafter_order[-3:]


def choose(session, profile):
    return choose_route(
        Request("Why?"), profile, frozenset(session.drafters), frozenset(session.chooser.drafters)
    ).drafter_order


def test_auto_uses_a_drafter_of_a_plugin_when_it_is_faster(drafting):
    engine = load_engine(tiny_profile())
    with engine.create_session() as session:
        list(session.ask(Request(**{**vars(REQUEST), "variant": "plain"})))
        turn = session.turns[-1]
    drafting.text = [*turn.prompt_ids, *turn.answer_ids]

    written = measure_answer(engine, REQUEST)

    assert turn.answer == written.text
    assert "knowing" in {each.source for step in written.steps for each in step.committed_tokens}


def test_a_failing_drafter_is_reported_once_and_the_answer_continues(drafting, capsys):
    engine = load_engine(tiny_profile())

    texts = {
        measure_answer(engine, Request(**{**vars(REQUEST), "variant": variant})).text for variant in ("plain", "auto")
    }

    assert 1 == len(texts)
    assert 1 == drafting.calls["raising"]
    assert 1 == capsys.readouterr().err.count("plugin drafting: drafter 'raising' is switched off: ZeroDivisionError")


def test_a_fault_is_shown_with_the_answer_once(drafting):
    with load_engine(tiny_profile()).create_session() as session:
        answers = [list(session.ask(Request(**{**vars(REQUEST), "variant": "raising"}))) for _ in range(2)]

    shown = [[event.text for event in events if isinstance(event, Notice)] for events in answers]
    assert shown == [["plugin drafting: drafter 'raising' is switched off: ZeroDivisionError: division by zero"], []]
    assert all(isinstance(events[-1], Finished) for events in answers)


@pytest.mark.full
def test_a_plugin_that_is_not_selected_is_not_heard(drafting):
    heard = []
    drafting.knowing = lambda _parts: Listening(heard)
    with load_engine(tiny_profile()).create_session() as session:
        for variant in ("suffix", "plain", "wrong"):
            list(session.ask(Request(**{**vars(REQUEST), "variant": variant})))
        assert heard == []

        list(session.ask(Request(**{**vars(REQUEST), "variant": "knowing"})))
        assert {"observe", "propose"} <= set(heard)


def drafter_threads():
    return {thread for thread in enumerate_threads() if thread.name == "drafter knowing"}


def test_the_thread_of_a_plugin_ends_with_the_session(drafting):
    drafting.knowing = lambda _parts: Listening([])
    with load_engine(tiny_profile()).create_session() as session:
        list(session.ask(Request(**{**vars(REQUEST), "variant": "suffix"})))
        assert drafter_threads() == set()

        list(session.ask(Request(**{**vars(REQUEST), "variant": "knowing"})))
        [thread] = drafter_threads()

    thread.join(120)
    assert not thread.is_alive()


class Listening(Drafter):
    """Proposes nothing, and stores that it was called."""

    def __init__(self, heard: list[str]) -> None:
        self.heard = heard

    def propose(self, context):
        self.heard.append("propose")
        return DraftTree(context.tokens[-1])

    def observe(self, _outcome):
        self.heard.append("observe")

    def forget(self, _length):
        self.heard.append("forget")


@pytest.mark.dear
@pytest.mark.parametrize(
    ("build", "fault"),
    [
        (lambda _parts: Flag().wait(), "'knowing' failed: TimeoutError: it took longer than 0.2 s"),
        (lambda _parts: sys.exit(4), "'knowing' failed: SystemExit: 4"),
        (lambda _parts: 7, "'knowing' returned a int, which is not a Drafter"),
    ],
    ids=["hangs", "exits", "no drafter"],
)
def test_a_drafter_that_cannot_be_built_in_time_is_left_out_and_said(drafting, monkeypatch, build, fault):
    if "0.2 s" in fault:
        monkeypatch.setattr(registry, "MAX_BUILD_SECONDS", 0.2)
    drafting.knowing = build
    with load_engine(tiny_profile()).create_session() as session:
        assert "knowing" not in session.drafters
        notices = [event.text for event in session.ask(REQUEST) if isinstance(event, Notice)]

    assert f"plugin drafting: {fault}" in notices
