"""`auto` tries the drafters of plugins last, rarely while they are slow, and never again after an error."""

from __future__ import annotations

import pytest

from tests.engine_answers import measure_answer
from specchat.chat.request import Request
from specchat.chat.router import choose_route
from specchat.loading.load_engine import load_engine
from specchat.profile import Profile
from tests.tiny import speaking

TINY = Profile().override({"models.target": str(speaking()), "models.draft": ""})
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
def test_drafters_of_plugins_come_last_unless_the_profile_names_them():
    with load_engine(TINY).create_session() as session:
        session.chooser.start_answer("chat", choose(session, TINY))
        assert ("knowing", "raising", "wrong") == session.chooser.drafter_order[-3:]

        ordered = TINY.override({"drafter_orders": [{"kind": "chat", "variants": ["wrong", "plain"]}]})
        session.chooser.start_answer("chat", choose(session, ordered))
        assert "wrong" == session.chooser.drafter_order[0]


def choose(session, profile):
    return choose_route(
        Request("Why?"), profile, frozenset(session.drafters), frozenset(session.chooser.drafters)
    ).drafter_order


def test_auto_uses_a_drafter_of_a_plugin_when_it_is_faster(drafting):
    engine = load_engine(TINY)
    with engine.create_session() as session:
        list(session.ask(Request(**{**vars(REQUEST), "variant": "plain"})))
        turn = session.turns[-1]
    drafting.text = [*turn.prompt_ids, *turn.answer_ids]

    written = measure_answer(engine, REQUEST)

    assert turn.answer == written.text
    assert "knowing" in {each.source for step in written.steps for each in step.committed_tokens}


def test_a_failing_drafter_is_reported_once_and_the_answer_continues(drafting, capsys):
    engine = load_engine(TINY)

    texts = {
        measure_answer(engine, Request(**{**vars(REQUEST), "variant": variant})).text for variant in ("plain", "auto")
    }

    assert 1 == len(texts)
    assert 1 == drafting.calls["raising"]
    assert 1 == capsys.readouterr().err.count("plugin drafting: drafter 'raising' is switched off: ZeroDivisionError")
