"""A conversation that is opened after its engine has ended reads only what is new, and says what it would have said."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from specchat.chat.events import Finished, TextDelta
from specchat.chat.request import Request
from specchat.chat.transcript import Question, TextOwner, Turn
from specchat.loading.load_engine import Engine, load_engine
from specchat.paths import kv_folder
from specchat.profile.keys import Profile
from specchat.weights.kv_files import _checksum
from tests.each_row import each_row
from tests.tiny import HYBRIDS, speaking

LONG = "abc and so on; " * 20  # a token each character
FORMS = {
    "float32": {"models.dtype": "float32"},
    "bfloat16": {"models.dtype": "bfloat16"},
    "int8": {"models.weights": "int8"},
    "int8 KV cache": {"models.kv_cache": "int8"},
    "T1": {"sampling.temperature": 1.0, "sampling.seed": 3},
    "hybrid": {"models.target": "qwen3_5"},
    "int8 hybrid": {"models.target": "qwen3_5", "models.weights": "int8"},
}
IN_EVERY_RUN = ("int8", "hybrid")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path))


def answered(turns: tuple[Turn, ...], question: str, kv_name: str = "one", **values: object):
    """The answer of a new engine that goes on with these turns, its totals, and the turns after it."""
    shape = values.pop("models.target", "llama")
    target = str(speaking(layers=3 if shape in HYBRIDS else 2, shape=str(shape)))
    engine = load_engine(Profile().override({"models.target": target, "limits.answer": 12, **values}))
    text, totals, new_turns = asked(engine, turns, question, kv_name)
    engine.close()
    return text, totals, new_turns


def asked(engine: Engine, turns: tuple[Turn, ...], question: str, kv_name: str):
    """The same of a loaded engine."""
    owner = TextOwner(kv_name, is_private=not kv_name)
    answer = engine.answer(Question(Request(question), turns, engine.models.profile, owner), Event())
    events = list(answer.events())
    assert isinstance(events[-1], Finished), events[-1]
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return text, events[-1].totals, answer.turns


def form_case(name: str):
    return pytest.param(FORMS[name], id=name, marks=[] if name in IN_EVERY_RUN else [pytest.mark.full])


@pytest.mark.dear
@pytest.mark.parametrize("form", [form_case(each) for each in FORMS])
def test_a_conversation_goes_on_where_it_was(form):
    _text, first, turns = answered((), LONG, **form)
    again, warm, _turns = answered(turns, "and now?", **form)
    fresh, cold, _turns = answered(turns, "and now?", kv_name="", **form)

    assert (again, cold.cached_tokens) == (fresh, 0)
    assert warm.cached_tokens >= first.prompt_tokens + first.completion_tokens - 1
    assert warm.prompt_tokens == cold.prompt_tokens


def test_another_conversation_with_the_same_beginning_has_its_rows():
    _text, first, _turns = answered((), LONG + "why?")
    _text, other, _turns = answered((), LONG + "how?", kv_name="other")

    assert first.prompt_tokens - 20 < other.cached_tokens < first.prompt_tokens


@pytest.mark.full
def test_a_hybrid_conversation_with_the_same_beginning_has_its_last_state():
    answered((), LONG + "why?", **FORMS["hybrid"])
    text, other, _turns = answered((), LONG + "how?", kv_name="other", **FORMS["hybrid"])
    fresh, _totals, _turns = answered((), LONG + "how?", kv_name="", **FORMS["hybrid"])

    assert (other.cached_tokens, text) == (256, fresh)


def test_a_shorter_conversation_is_not_kept():
    answered((), "abc")

    assert not kv_folder().exists()


def test_a_conversation_without_a_name_is_neither_kept_nor_continued():
    answered((), LONG)
    [path] = kv_folder().glob("*")
    path_time = path.stat().st_mtime_ns
    _text, totals, _turns = answered((), LONG, kv_name="")

    assert (0, path_time) == (totals.cached_tokens, path.stat().st_mtime_ns)
    assert [path] == list(kv_folder().glob("*"))


def test_nothing_is_kept_without_a_budget():
    answered((), LONG, **{"limits.kv_disk": 0})

    assert not kv_folder().exists()


@pytest.mark.full
@pytest.mark.parametrize("form", [form_case(each) for each in ("int8 KV cache", "hybrid")])
@each_row("change", ["narrower rows", "other states", "no states"])
def test_rows_of_other_shapes_with_right_checksums_are_read_again(form, change):
    _text, _totals, turns = answered((), LONG, **form)
    [path] = kv_folder().glob("*")
    rewrite(path, change)
    text, totals, _turns = answered(turns, "and now?", **form)
    fresh, _totals, _turns = answered(turns, "and now?", kv_name="", **form)

    assert (fresh, 0) == (text, totals.cached_tokens)
    path.unlink()


def rewrite(path: Path, change: str) -> None:
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    states = [name for name in tensors if name.startswith("state ")]
    rows = next(name for name in tensors if name != "tokens" and name not in states and tensors[name].numel())
    match change:
        case "other states":
            tensors |= {name: tensors[name].reshape(-1) for name in states} or {"state 300 0 columns": torch.zeros(3)}
        case "no states" if states:
            tensors = {name: tensor for name, tensor in tensors.items() if name not in states}
        case _:
            tensors[rows] = tensors[rows][..., 1:].contiguous()
    save_file(tensors, path, {"crc32": json.dumps({name: _checksum(tensor) for name, tensor in tensors.items()})})


@pytest.mark.dear
@pytest.mark.parametrize("other", ["bfloat16", "int8 KV cache"])
def test_rows_of_another_form_or_model_are_not_used(other):
    _text, _totals, turns = answered((), LONG, **FORMS["float32"])
    _text, totals, _turns = answered(turns, "and now?", **FORMS["float32"] | FORMS[other])

    assert totals.cached_tokens == 0


@pytest.mark.full
def test_rows_that_wait_in_host_memory_are_kept_too():
    engine = load_engine(Profile().override({"models.target": str(speaking()), "limits.answer": 8}))
    engine.models.target.pool.slots = 1
    asked(engine, (), LONG, "first")
    asked(engine, (), "abc", "second")  # takes the only slot
    assert [None] == [text.generation.cache.slot for text in engine.texts if len(text.generation.tokens) > len(LONG)]
    engine.close()

    _text, totals, _turns = answered((), LONG + "more", **{"limits.answer": 8})

    assert totals.cached_tokens >= len(LONG)


@pytest.mark.parametrize("form", [form_case(each) for each in ("float32", "int8")])
def test_two_conversations_share_a_beginning_while_the_engine_lives(form):
    engine = load_engine(Profile().override({"models.target": str(speaking()), "limits.answer": 12, **form}))
    _text, first, _turns = asked(engine, (), LONG + "why?", "one")
    text, second, turns = asked(engine, (), LONG + "how?", "other")
    _text, third, _turns = asked(engine, turns, "and now?", "other")
    alone, _totals, _turns = answered((), LONG + "how?", kv_name="", **form)

    assert first.prompt_tokens - 20 < second.cached_tokens < first.prompt_tokens
    assert text == alone
    assert third.cached_tokens >= second.prompt_tokens + second.completion_tokens - 1
