"""Which drafters a profile can have, and what each needs."""

import json
import shutil
from dataclasses import replace

import pytest

from specchat.assemble import AUTO_CANDIDATES, EMBEDDED_HEADS, load_engine
from specchat.bench.interleaved import measure_answer
from specchat.chat.events import Failed, Routed, StepDone
from specchat.chat.request import Request
from specchat.drafters.dflash import DFlashDrafter
from specchat.errors import InputError, ModelError, SpecchatError
from specchat.models.load import EMBEDDED
from specchat.profile import DRAFTERS, Profile
from tests import tokenizers_at_hand as at_hand
from tests.tiny import SPEAKING, network, speaking
from tests.tiny_heads import saved_head

ALONE = Profile().override({"models.target": str(speaking()), "models.draft": ""})
WITHOUT_MODELS = {"auto", "plain", "lookup", "suffix", "recycling", "lookahead"}


@pytest.fixture(scope="module")
def embedded():
    return load_engine(Profile())


def test_the_embedded_models_can_do_everything_but_the_older_eagle(embedded):
    with embedded.session() as session:
        assert set(DRAFTERS) - {"dflash"} == set(session.drafters)
        assert {name for name in AUTO_CANDIDATES if name in session.drafters} == {"plain", *session.chooser.drafters}


def test_a_target_alone_has_the_drafters_that_need_nothing():
    engine = load_engine(ALONE)
    with engine.create_session() as session:
        assert set(session.drafters) == WITHOUT_MODELS
        [failed] = session.ask(Request("why", variant="eagle3"))

    assert isinstance(failed, Failed)
    assert "needs an EAGLE-3 head" in failed.message


def test_heads_can_be_named_one_by_one():
    heads = [str(EMBEDDED / "medusa"), EMBEDDED_HEADS[0]]
    engine = load_engine(Profile().override({"models.heads": heads}))

    assert ["medusa", "eagle3"] == list(engine.resources.heads)


def test_a_head_that_fills_blocks_drafts_for_the_target_that_it_was_made_for(tmp_path):
    shutil.copytree(saved_head("dflash"), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text()) | {"vocab_size": SPEAKING, "num_target_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))

    engine = load_engine(ALONE.override({"models.heads": [str(tmp_path)]}))

    with engine.create_session() as session:
        assert isinstance(session.drafters["dflash"], DFlashDrafter)
    assert engine.memory_bytes()["dflash"] > 0


def test_a_head_of_another_target_is_refused():
    with pytest.raises(ModelError, match="hidden"):
        load_engine(ALONE.override({"models.heads": [str(EMBEDDED / "eagle3")]}))


def test_a_named_draft_with_other_tokens_is_spelled_anew(tmp_path):
    folder = at_hand.byte_level(tmp_path / "draft", size=300)
    network("llama", vocabulary=300).save_pretrained(folder)
    engine = load_engine(ALONE.override({"models.draft": str(folder)}))

    assert engine.resources.tokenizers is not None
    asked = Request("why why why", max_tokens=12, seed=2)
    plain, draft = (measure_answer(engine, replace(asked, variant=variant)) for variant in ("plain", "draft"))
    assert plain.text == draft.text


def test_swapped_tokens_are_other_tokens(tmp_path):
    shutil.copytree(speaking(layers=1, seed=2), tmp_path, dirs_exist_ok=True)
    tokens = (tmp_path / "tokenizer.json").read_text()
    for old, new in (('"a":', '"swap":'), ('"b":', '"a":'), ('"swap":', '"b":')):
        tokens = tokens.replace(old, new, 1)
    (tmp_path / "tokenizer.json").write_text(tokens)

    assert load_engine(ALONE.override({"models.draft": str(speaking(layers=1, seed=2))})).resources.tokenizers is None
    assert load_engine(ALONE.override({"models.draft": str(tmp_path)})).resources.tokenizers is not None


def test_the_embedded_draft_is_no_help_to_a_stranger():
    with pytest.raises(ModelError, match="its tokens are not those of the target"):
        load_engine(ALONE.override({"models.draft": "embedded"}))


def test_who_is_not_a_candidate_hears_only_when_asked_for(embedded):
    with embedded.session() as session:
        assert session.drafters["recycling"] not in session.writing.drafters
        list(session.ask(Request("hello", variant="recycling", max_tokens=4)))
        list(session.ask(Request("hello", variant="recycling", max_tokens=4)))

        assert 1 == session.writing.drafters.count(session.drafters["recycling"])


def test_the_small_model_quotes_its_book_and_remembers_that_it_did(embedded):
    question = Request("What is a generator in Python?", max_tokens=60)
    with embedded.session() as session:
        events = list(session.ask(question))
        asked, answered = session.turns[-1], session.turns[-1].answer
        list(session.ask(Request("Thanks!", max_tokens=8)))

        assert any(isinstance(event, Routed) for event in events)
        assert "Reference:\ngenerator:" in asked.rendered
        assert "generator iterator" in answered
        assert session.turns[-1].prompt_ids[: len(asked.prompt_ids)] == asked.prompt_ids


def test_a_book_of_ones_own_is_read_and_a_missing_one_named(tmp_path):
    (tmp_path / "book.jsonl").write_text('{"topic": "zeugma", "text": "One verb for two nouns."}\n')
    engine = load_engine(ALONE.override({"prompt.reference": str(tmp_path / "book.jsonl")}))
    with engine.create_session() as session:
        list(session.ask(Request("what is a zeugma", max_tokens=2)))
        assert "zeugma: One verb" in session.turns[-1].rendered_prompt

    with pytest.raises(InputError, match=r"none\.jsonl"):
        load_engine(ALONE.override({"prompt.reference": str(tmp_path / "none.jsonl")}))
    assert load_engine(ALONE).models.reference_corpus is None


def test_the_reason_names_only_those_among_whom_is_chosen(embedded):
    with embedded.session() as session:
        [routed] = [
            each for each in session.ask(Request("Say it again: a b c", max_tokens=2)) if isinstance(each, Routed)
        ]

    assert "auto" == routed.variant
    assert "lookup" not in routed.reason


def test_while_others_wait_less_is_guessed(embedded):
    question = Request("Copy the code exactly.\n\n```python\n" + "total = total + price\n" * 8 + "```", max_tokens=60)
    widest = []
    for waiting, is_urgent in ((0, False), (7, False), (0, True)):
        with embedded.session() as session:
            session.make_way(waiting, is_urgent=is_urgent)
            steps = [event for event in session.ask(question) if isinstance(event, StepDone)]
            widest.append(max(len(step.draft_tokens) for step in steps))

    assert widest[2] == 0 < widest[1] <= 2 < widest[0]


def test_an_answer_that_cannot_be_made_is_an_error(embedded):
    with pytest.raises(SpecchatError, match="at hand are"):
        measure_answer(embedded, Request("x", variant="dflash"))
