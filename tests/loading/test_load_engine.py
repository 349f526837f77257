"""The engine that a profile loads, and the drafters of its sessions."""

import gc
import shutil
from threading import Event as Flag
from types import FunctionType, MethodType, ModuleType, SimpleNamespace

import pytest
import torch

from specchat.chat.events import Failed, Notice, Routed, StepDone
from specchat.chat.request import Request
from specchat.errors import ModelError, SpecchatError
from specchat.loading.load_engine import head_format, load_engine
from specchat.loading.load_plan import EMBEDDED_HEADS
from specchat.profile.drafter_names import DRAFTERS
from specchat.profile.keys import Profile
from specchat.weights.gguf import gguf_file
from specchat.weights.load_options import EMBEDDED
from tests.each_row import each_row
from tests.engine_answers import measure_answer
from tests.gguf_models import write_gguf
from tests.tiny import speaking, thinking, tiny_profile

WITHOUT_MODELS = {"auto", "plain", "lookup", "suffix"}


@pytest.fixture(scope="module")
def embedded():
    return load_engine(Profile())


@pytest.mark.full
def test_the_embedded_models_allow_all_drafters(embedded):
    with embedded.create_session() as session:
        assert set(DRAFTERS) == set(session.drafters)
        assert set(session.chooser.drafters) == set(session.drafters) - {"auto", "plain", "lookup"}


def test_a_target_alone_allows_the_drafters_that_need_no_other_model():
    engine = load_engine(tiny_profile())
    assert engine.models.reference_corpus is None
    with engine.create_session() as session:
        assert set(session.drafters) == WITHOUT_MODELS
        [failed] = session.ask(Request("why", variant="eagle3"))

    assert isinstance(failed, Failed)
    assert "needs an EAGLE-3 head" in failed.message


def test_an_engine_names_the_drafters_that_can_run(embedded):
    assert load_engine(tiny_profile()).variants == WITHOUT_MODELS
    with embedded.create_session() as session:
        assert embedded.variants == set(session.drafters)


@pytest.mark.full
def test_heads_can_be_named_one_by_one():
    heads = [str(EMBEDDED / "mtp"), EMBEDDED_HEADS[0]]
    engine = load_engine(Profile().override({"models.heads": heads}))

    assert ["mtp", "eagle3"] == list(engine.resources.heads)


@each_row(
    "device, quant_format, target_bytes, weights",
    [
        ("cpu", "gguf", 900, "q8_0"),
        ("cpu", "int8", 1100, "float"),
        ("cuda", "float", 2000, "float"),
        ("cuda", "float", 700, "q8_0"),  # of an AWQ checkpoint
        ("cuda", "int8", 1100, "q8_0"),
        ("mps", "int8", 1100, "float"),
    ],
)
def test_a_head_beside_a_quantized_target_has_eight_bits(device, quant_format, target_bytes, weights):
    layout = SimpleNamespace(dtype=torch.bfloat16, device=torch.device(device))
    target = SimpleNamespace(pool=SimpleNamespace(layout=layout), bytes=target_bytes)
    options = SimpleNamespace(quant_format=quant_format)
    plan = SimpleNamespace(options=options, architecture=lambda: SimpleNamespace(parameters=1000))

    assert head_format(plan, target) == weights


def test_a_head_of_another_target_is_left_out():
    engine = load_engine(tiny_profile().override({"models.heads": [str(EMBEDDED / "eagle3")]}))

    assert not engine.resources.heads
    assert "it is for a target with hidden_size 256" in engine.models.notices[0]


def test_a_head_whose_config_does_not_tell_is_refused_by_its_tensors(tmp_path):
    shutil.copytree(EMBEDDED / "eagle3", tmp_path, dirs_exist_ok=True)
    (tmp_path / "config.json").unlink()

    with pytest.raises(ModelError):
        load_engine(tiny_profile().override({"models.heads": [str(tmp_path)]}))


def test_a_draft_model_with_swapped_tokens_is_left_out_and_a_line_names_the_plugin(tmp_path):
    shutil.copytree(speaking(layers=1, seed=2), tmp_path, dirs_exist_ok=True)
    tokens = (tmp_path / "tokenizer.json").read_text()
    for old, new in (('"a":', '"swap":'), ('"b":', '"a":'), ('"swap":', '"b":')):
        tokens = tokens.replace(old, new, 1)
    (tmp_path / "tokenizer.json").write_text(tokens)

    same, other = (
        load_engine(tiny_profile().override({"models.draft": str(folder)}))
        for folder in (speaking(layers=1, seed=2), tmp_path)
    )

    assert "draft" in same.variants and not same.models.notices
    assert other.resources.draft_model is None and "draft" not in other.variants
    [notice] = other.models.notices
    assert notice.startswith(f"draft {tmp_path} is left out: its tokens are not those of the target; ")
    assert notice.endswith("'pip install ./plugins/specchat-heads' installs it")


def test_the_embedded_draft_model_is_left_out_for_another_target_and_a_session_says_so_once():
    engine = load_engine(tiny_profile().override({"models.draft": "embedded"}))

    with engine.create_session() as session:
        assert set(session.drafters) == WITHOUT_MODELS
        first, second = (
            [event.text for event in session.ask(Request("why", max_tokens=2)) if isinstance(event, Notice)]
            for _ in range(2)
        )

    assert len(first) == 1
    assert first[0].startswith("draft embedded is left out: its tokens are not those of the target")
    assert second == []


def test_a_base_model_without_a_chat_template_continues_the_text_and_says_so(tmp_path):
    shutil.copytree(speaking(), tmp_path, dirs_exist_ok=True)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|end|>"}')
    engine = load_engine(tiny_profile().override({"models.target": str(tmp_path)}))

    with engine.create_session() as session:
        events = list(session.ask(Request("once upon a time", max_tokens=2)))
        assert session.turns[-1].rendered_prompt == "once upon a time\n"

    assert isinstance(events[0], Notice)
    assert "has no chat template" in events[0].text


def test_a_drafter_that_is_no_candidate_observes_only_after_its_first_use(embedded):
    with embedded.create_session() as session:
        assert session.drafters["lookup"] not in session.generation.drafters
        list(session.ask(Request("hello", variant="lookup", max_tokens=4)))
        list(session.ask(Request("hello", variant="lookup", max_tokens=4)))

        assert 1 == session.generation.drafters.count(session.drafters["lookup"])


@pytest.mark.full
def test_the_small_model_quotes_its_reference_corpus_and_keeps_the_prompt(embedded):
    question = Request("What is a generator in Python?", max_tokens=60)
    with embedded.create_session() as session:
        events = list(session.ask(question))
        first_turn, answered = session.turns[-1], session.turns[-1].answer
        list(session.ask(Request("Thanks!", max_tokens=8)))

        assert any(isinstance(event, Routed) for event in events)
        assert "Reference:\ngenerator:" in first_turn.rendered_prompt
        assert "generator iterator" in answered
        assert session.turns[-1].prompt_ids[: len(first_turn.prompt_ids)] == first_turn.prompt_ids


def test_the_reason_names_only_auto_candidates(embedded):
    with embedded.create_session() as session:
        [routed] = [
            each for each in session.ask(Request("Say it again: a b c", max_tokens=2)) if isinstance(each, Routed)
        ]

    assert "auto" == routed.variant
    assert "lookup" not in routed.reason


@pytest.mark.full
def test_waiting_requests_reduce_the_draft_tokens(embedded):
    question = Request("Copy the code exactly.\n\n```python\n" + "total = total + price\n" * 8 + "```", max_tokens=60)
    widest = []
    for waiting, is_urgent in ((0, False), (7, False), (0, True)):
        with embedded.create_session() as session:
            session.set_load(waiting, is_urgent=is_urgent)
            steps = [event for event in session.ask(question) if isinstance(event, StepDone)]
            widest.append(max(len(step.draft_tokens) for step in steps))

    assert widest[2] == 0 < widest[1] <= 2 < widest[0]


def test_an_answer_that_cannot_be_made_is_an_error(embedded):
    with pytest.raises(SpecchatError, match="variant 'dflash' is of a plugin"):
        measure_answer(embedded, Request("x", variant="dflash"))


def test_every_built_in_drafter_but_auto_has_a_builder():
    assert ["auto"] == [name for name, drafter in DRAFTERS.items() if not drafter.builder]


def test_a_gguf_file_is_prepared_with_a_report_and_then_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    path = str(write_gguf(tmp_path / "tiny.gguf"))
    profile = Profile().override({"models.target": path, "models.draft": path, "models.device": "cpu"})
    events = []

    engine = load_engine(profile, events.append)

    first = events[0]
    assert first.label == "target"
    assert first.text == "preparing tiny.gguf…"
    assert "loading the draft model…" in {event.text for event in events}
    assert engine.resources.draft_model is not None
    assert gguf_file._read_header_once.cache_info().currsize == 0  # a header has the whole vocabulary
    with engine.create_session() as session:
        assert not any(isinstance(event, Failed) for event in session.ask(Request("hello", max_tokens=8)))
    events.clear()
    load_engine(profile, events.append)
    assert not any(event.preparation for event in events)


def test_the_first_load_says_that_the_kernels_are_compiled_and_the_next_ones_do_not(monkeypatch):
    calls = iter([True, False])
    monkeypatch.setattr("specchat.loading.load_engine.must_be_compiled", lambda: next(calls))
    first, second = [], []

    load_engine(tiny_profile(), first.append)
    load_engine(tiny_profile(), second.append)

    assert "compiling the CPU kernels, once, about 30 s…" == first[0].text
    assert second and not any(event.preparation for event in second)


def test_a_host_that_stops_ends_a_preparation(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    profile = tiny_profile().override({"models.target": str(write_gguf(tmp_path / "tiny.gguf"))})
    stopped = Flag()
    stopped.set()

    with pytest.raises(ModelError, match=r"preparing tiny\.gguf was stopped"):
        load_engine(profile, cancelled=stopped)


def reachable_storages(roots, shared) -> int:
    """The bytes of all tensors that can be reached from these objects, without going through shared ones."""
    seen, storages, waiting = {id(each) for each in shared}, dict[int, int](), list(roots)
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, type | ModuleType | FunctionType | MethodType):
            continue
        seen.add(id(each))
        if isinstance(each, torch.Tensor):
            storages[each.untyped_storage().data_ptr()] = each.untyped_storage().nbytes()
        else:
            waiting += gc.get_referents(each)
    return sum(storages.values())


def test_a_conversation_knows_the_memory_that_it_holds(embedded):
    with embedded.create_session() as session:
        for event in session.ask(Request("Write a text. " + "some words of it " * 60, max_tokens=60)):
            assert not isinstance(event, Failed)
        resources, models = embedded.resources, embedded.models
        shared = [
            embedded, models, *vars(models).values(), resources, *vars(resources).values(), *resources.heads.values(),
            *(getattr(each, "network", None) for each in resources.heads.values()),
            *(each.pool for each in (resources.target, resources.draft_model)), resources.heads, embedded.watchdog,
        ]  # fmt: skip
        caches = [
            session.generation.cache,
            *(each.cache for each in session.drafters.values() if hasattr(each, "cache")),
        ]
        held = reachable_storages(list(session.drafters.values()), [*shared, *caches, session, session.generation])
        indexes = sum(session.drafters[name].memory_bytes() for name in ("suffix", "lookup"))
        memory = session.memory_bytes()

    assert memory["drafters"] - indexes == held
    assert indexes > 0
    assert memory["kv_cache"] > 2**20


@each_row("folder, count", [(thinking, 1), (speaking, 0)])
def test_the_parser_of_thinking_is_imported_with_a_model_that_thinks(monkeypatch, folder, count):
    imports: list[None] = []
    monkeypatch.setattr("specchat.loading.load_engine.import_parser", lambda: imports.append(None))

    load_engine(tiny_profile().override({"models.target": str(folder())}))

    assert len(imports) == count
