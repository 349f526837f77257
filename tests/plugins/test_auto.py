"""Drafters of plugins take part in `auto`: last, seldom while they lose, and no longer once they fail."""

from __future__ import annotations

import pytest

from specchat.bench.measure import measure_answer
from specchat.chat.request import Request
from specchat.chat.router import choose_route
from specchat.loading.load_engine import load_engine
from specchat.profile import Profile
from tests.tiny import speaking

TINY = Profile().override({"models.target": str(speaking()), "models.draft": ""})
ASKED = Request("why why why", max_tokens=60, seed=3, variant="auto")
GUESSING = """
@hookimpl
def register_drafters():
    return [Extension(name, f"guesses {name}", f"guessing:{name}") for name in ("knowing", "raising", "wrong")]

asked = {"knowing": 0, "raising": 0, "wrong": 0}
text = []

def _drafter(name, guess):
    from specchat.engine.drafter import Drafter
    from specchat.engine.tree import DraftTree

    def propose(context):
        asked[name] += 1
        tree = DraftTree(context.tokens[-1])
        tree.add_chain(guess(context)[: context.budget])
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
def guessing(install):
    """The module of a plugin with three drafters."""
    install("guessing", GUESSING)
    import guessing

    return guessing


@pytest.mark.usefixtures("guessing")
def test_those_of_plugins_come_last_unless_the_profile_names_them():
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


def test_auto_guesses_with_whom_a_plugin_brings_where_that_pays(guessing):
    engine = load_engine(TINY)
    with engine.create_session() as session:
        list(session.ask(Request(**{**vars(ASKED), "variant": "plain"})))
        turn = session.turns[-1]
    guessing.text = [*turn.prompt_ids, *turn.answer_ids]

    written = measure_answer(engine, ASKED)

    assert turn.answer == written.text
    assert "knowing" in {each.source for step in written.steps for each in step.committed_tokens}


def test_one_that_fails_is_named_once_and_the_answer_goes_on(guessing, capsys):
    engine = load_engine(TINY)

    texts = {
        measure_answer(engine, Request(**{**vars(ASKED), "variant": variant})).text for variant in ("plain", "auto")
    }

    assert 1 == len(texts)
    assert 1 == guessing.asked["raising"]
    assert 1 == capsys.readouterr().err.count("plugin guessing: drafter 'raising' guesses no more: ZeroDivisionError")
