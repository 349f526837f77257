"""A head for a target of one's own: from questions to a folder that the engine loads, and a gate in front of it."""

import json
import random
import resource
import shutil
from collections import Counter
from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.chat.request import Request
from specchat.errors import ModelError, SpecchatError, UsageError
from specchat.heads.detect import inspect_head
from specchat.heads.networks import load_head
from specchat.models.load import EMBEDDED, LoadOptions, load_model
from specchat.train import train_head
from specchat.train.compare_heads import TurnAcceptance, compare_acceptance, measure_acceptance
from specchat.train.distillation_batches import TrainingData
from specchat.train.feature_cache import FeatureCache, check_disk_space, with_final_norm
from specchat.train.fingerprint import fingerprint, trained_target_fingerprint
from specchat.train.frozen_target import FrozenTarget, head_shape
from specchat.train.head_kinds import (
    HEAD_KINDS,
    head_kind,
    hidden_state_layers_of,
    load_head_for_training,
    shape_from_config,
)
from specchat.train.target_answers import TargetAnswer, generate_answers
from specchat.train.train_head import (
    HeadTrainingRequest,
    train_and_install_head,
    train_head_as_worker,
    warn_of_changed_target,
)
from specchat.train.trainer import TrainingBudget
from specchat.train.training_prompts import TrainingPrompt, split_prompts
from tests.tiny import SPEAKING, network, speaking
from tests.train.forked import together

LIMIT = 12
SOME = TrainingBudget(tokens=2_000)
FULL = pytest.mark.full


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """One whose next token hangs on the last one alone, so that there is something that can be learned in seconds."""
    folder = tmp_path_factory.mktemp("target") / "plain"
    shutil.copytree(speaking(layers=5), folder)
    weights = load_file(folder / "model.safetensors")
    silent = {name: torch.zeros_like(each) for name, each in weights.items() if "o_proj" in name or "down_proj" in name}
    save_file(weights | silent, folder / "model.safetensors", metadata={"format": "pt"})
    return FrozenTarget(str(folder), LoadOptions(dtype="float32", device="cpu"))


@pytest.fixture(scope="module")
def parted():
    dice = random.Random(3)
    return split_prompts(
        [TrainingPrompt(f"q{n}", Request("".join(dice.choices("abcdef ", k=8)))) for n in range(24)], 6, 24
    )


@pytest.fixture(scope="module")
def answers(target, parted, tmp_path_factory):
    """The file of the target's answers, which all who train here take."""
    kept = tmp_path_factory.mktemp("answers") / "answers.jsonl"
    generate_answers(target, [target.prompt(question) for question in parted.lessons], LIMIT, kept)
    return kept


@pytest.fixture(scope="module")
def make(target, parted, answers):
    """Trains as ordered; returns the verdict, and what was said."""

    def make(order):
        said = []
        work = order.out / "work" / target.fingerprint
        work.mkdir(parents=True, exist_ok=True)
        shutil.copy(answers, work)
        return train_and_install_head(order, target, parted, said.append), "\n".join(said)

    return make


@pytest.fixture(scope="module")
def made(make, tmp_path_factory):
    """The folder of a trained head of this kind, and what was said; made once."""
    folder = tmp_path_factory.mktemp("made")

    @lru_cache
    def made(kind):
        return folder / kind, make(order(kind, folder / kind))[1]

    return made


def order(kind, out, **more):
    return HeadTrainingRequest(
        kind, out, max_answer_tokens=LIMIT, batch_tokens=512, **({"effort": SOME, "is_forced": True} | more)
    )


@pytest.mark.parametrize("kind", HEAD_KINDS)
def test_a_head_of_each_kind_is_trained_tried_and_saved_as_its_publishers_do(kind, made, target):
    folder, said = made(kind)

    if kind == "draft":
        assert target.model.vocabulary == load_model(folder, LoadOptions(device="cpu")).vocab_size
        assert f'draft = "{folder}"' in said
    else:
        load_head(inspect_head(folder), target.model, None, torch.device("cpu"))
        assert kind == inspect_head(folder).kind
        assert f'heads = ["{folder}"]' in said
    assert target.fingerprint in (folder / "README.md").read_text()
    assert trained_target_fingerprint(folder) == target.fingerprint
    assert (folder / "loss.png").is_file() and (folder / "trial.png").is_file()


@pytest.mark.parametrize(
    "kind", ["eagle3", "mtp", pytest.param("eagle", marks=FULL), pytest.param("medusa", marks=FULL)]
)
def test_a_head_goes_on_as_it_was_and_one_that_is_no_better_is_forced_in_only_with_a_word(kind, made, make, tmp_path):
    head, _ = made(kind)

    verdict, said = make(order(kind, tmp_path, start=head, against=head, effort=TrainingBudget(tokens=1)))

    assert verdict.before == verdict.after
    assert "installed by force" in said
    assert f"continued from `{kind}`" in (tmp_path / "README.md").read_text()


@pytest.mark.full
def test_training_teaches_what_the_target_says_and_shuffled_text_does_not(make, tmp_path, monkeypatch):
    """The gate lets the first in over a hardly trained head, and then keeps one that learned from shuffled text out."""
    make(order("eagle3", tmp_path / "raw", effort=TrainingBudget(tokens=1)))
    good = order(
        "eagle3", tmp_path / "good", effort=TrainingBudget(tokens=10_000), against=tmp_path / "raw", is_forced=False
    )

    verdict, _ = make(good)

    assert verdict.is_better
    monkeypatch.setattr(train_head, "write_answers", shuffled_answers)
    with pytest.raises(SpecchatError, match="not installed"):
        make(replace(good, out=tmp_path / "worse", against=tmp_path / "good"))
    assert not (tmp_path / "worse" / "config.json").exists()
    assert "eagle3" == inspect_head(tmp_path / "worse" / "refused").kind


def shuffled_answers(target, prompts, limit, kept, ranks):
    dice = random.Random(0)
    answers = generate_answers(target, prompts, limit, kept, ranks)
    mixed = [
        dice.sample(answer.tokens[answer.answer_start :], len(answer.tokens) - answer.answer_start)
        for answer in answers
    ]
    return [
        TargetAnswer([*each.tokens[: each.answer_start], *rest], each.answer_start)
        for each, rest in zip(answers, mixed, strict=True)
    ]


def test_nothing_is_written_or_read_twice(made, make, target, monkeypatch):
    folder, _ = made("eagle")
    weights = load_file(folder / "model.safetensors")
    monkeypatch.setattr(target, "write", None)
    monkeypatch.setattr(target, "states", None)

    _, said = make(order("eagle", folder))

    assert "0.0 MB to be made" in said
    again = load_file(folder / "model.safetensors")
    assert all(torch.equal(tensor, again[name]) for name, tensor in weights.items())


@pytest.mark.full
def test_training_that_was_interrupted_goes_on_as_if_it_had_not_been(made, make, tmp_path, monkeypatch):
    steps = 0

    def interrupted(lessons, batch, step):
        nonlocal steps
        steps += 1
        if steps == 3:
            raise KeyboardInterrupt
        return lesson(lessons, batch, step)

    lesson = TrainingData.distillation_batch
    monkeypatch.setattr(train_head, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(TrainingData, "lesson", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make(order("eagle3", tmp_path / "out"))
    monkeypatch.setattr(TrainingData, "lesson", lesson)

    make(order("eagle3", tmp_path / "out"))

    whole, again = (load_file(folder / "model.safetensors") for folder in (made("eagle3")[0], tmp_path / "out"))
    assert all(torch.equal(tensor, again[name]) for name, tensor in whole.items())


def test_answers_go_on_after_a_line_that_was_cut_off(target, tmp_path):
    kept, prompts = tmp_path / "answers.jsonl", [[5, 6, 7], [8, 9]]
    whole = generate_answers(target, prompts, LIMIT, kept)
    kept.write_text(kept.read_text()[:-10])

    assert whole == generate_answers(target, prompts, LIMIT, kept)
    assert 2 == len(kept.read_text().splitlines())


def test_answers_that_several_processes_had_begun_are_taken(target, tmp_path):
    kept, prompts = tmp_path / "answers.jsonl", [[5, 6, 7], [8, 9], [10, 11]]
    whole = generate_answers(target, prompts, LIMIT, kept)
    first, second, third = kept.read_text().splitlines(keepends=True)
    kept.write_text(first)
    (tmp_path / "answers.0.jsonl").write_text(second)
    (tmp_path / "answers.1.jsonl").write_text(third[:-10])

    assert whole == generate_answers(target, prompts, LIMIT, kept)
    assert [kept] == list(tmp_path.iterdir())
    assert {first, second, third} == set(kept.read_text().splitlines(keepends=True))


def test_two_processes_divide_answers_and_states(target, parted, answers, tmp_path):
    prompts = [target.prompt(question) for question in parted.lessons]
    alone = generate_answers(target, prompts, LIMIT, answers)

    def made(ranks):
        """The answers, the states, and how many of each this process made."""
        written, read = target.write, target.states
        own = []
        target.write = lambda *arguments: own.append("answer") or written(*arguments)
        target.states = lambda *arguments: own.append("states") or read(*arguments)
        with ranks.joined(target.device):
            found = generate_answers(target, prompts, LIMIT, tmp_path / "answers.jsonl", ranks)
            cache = cache_of(target, tmp_path / "states")
            cache.fill(target, ranks)
        return found, [cache.hidden_states(index).tolist() for index in (0, 35)], Counter(own)

    one, other = together(made)

    assert one[:2] == other[:2]
    assert alone == one[0]
    assert Counter(answer=9, states=32) == one[2]
    assert Counter(answer=9, states=8) == other[2]
    assert {"answers.jsonl", "states"} == {path.name for path in tmp_path.iterdir()}


def test_two_processes_make_one_head_and_the_first_installs_it(target, parted, tmp_path):
    def made(ranks):
        wish, said = order("medusa", tmp_path, ranks=ranks), []
        if ranks.is_first:
            train_and_install_head(wish, target, parted, said.append)
        else:
            train_head_as_worker(wish, target, parted)
        return "\n".join(said)

    one, other = together(made)

    assert f'heads = ["{tmp_path}"]' in one
    assert "" == other
    assert "medusa" == inspect_head(tmp_path).kind


def test_answers_are_the_greedy_ones_of_plain_decoding(target):
    from specchat.engine.drafter import Drafter

    prompt = target.tokenizer.encode("abc abc abc")

    assert target.write(prompt, LIMIT).tokens == target.write(prompt, LIMIT, Drafter()).tokens


def cache_of(target, folder, count=40):
    answers = [TargetAnswer([7 + n % 50, 8, 9, 10 + n % 30, 11], 2) for n in range(count)]
    taps = with_final_norm(hidden_state_layers_of("eagle3", target.shape.layers))
    return FeatureCache(folder, answers, taps, target.shape.width)


def test_the_cache_holds_the_states_of_every_answer_and_says_their_size_before(target, tmp_path):
    cache = cache_of(target, tmp_path)
    promised = cache.missing_bytes

    cache.fill(target)

    assert 0 == cache.missing_bytes
    assert sum(cache.hidden_states(index).nbytes for index in range(len(cache.answers))) == promised
    wanted = target.states(cache.answers[35].tokens, cache.hidden_state_layers).bfloat16()
    assert torch.equal(cache.hidden_states(35), wanted)


def test_an_interrupted_cache_makes_only_the_shards_that_are_missing(target, tmp_path):
    cache = cache_of(target, tmp_path)
    cache.fill(target)
    first, second = sorted(tmp_path.glob("*.safetensors"))
    before, _ = first.stat().st_mtime_ns, second.unlink()

    cache.fill(target)

    assert second.is_file()
    assert before == first.stat().st_mtime_ns


def test_a_disk_that_is_too_small_is_told_before_anything_is_written(tmp_path):
    with pytest.raises(SpecchatError, match="are free"):
        check_disk_space(10**18, tmp_path)


def test_a_disk_that_fills_up_is_told_and_what_was_written_stays(target, tmp_path):
    cache = cache_of(target, tmp_path)
    cache.fill(target)
    first, second = sorted(tmp_path.glob("*.safetensors"))
    second.unlink()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(SpecchatError, match="cannot be written"):
            cache.fill(target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert [first] == list(tmp_path.iterdir())


def test_a_target_that_changed_since_is_told(made, target, tmp_path):
    head, said = shutil.copytree(made("medusa")[0], tmp_path / "head"), []
    config = head / "config.json"
    config.write_text(config.read_text().replace(target.fingerprint, "another"))
    (tmp_path / "work" / "another").mkdir(parents=True)

    warn_of_changed_target(
        order("medusa", tmp_path, start=head), target, tmp_path / "work" / target.fingerprint, said.append
    )

    assert "has changed since another: its answers and states are made anew" in said[0]
    assert "the target has changed since this was trained (another" in said[1]


def test_a_fingerprint_tells_weights_of_one_shape_apart():
    assert fingerprint(speaking(2)) == fingerprint(speaking(2))
    assert fingerprint(speaking(2)) != fingerprint(speaking(2, seed=9))


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"model_type": "mamba"}, "mamba.*num_attention_heads"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "recurrent"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "a way of its own"),
    ],
    ids=["no attention", "recurrent", "rope"],
)
def test_a_family_that_heads_cannot_take_is_told(config, word):
    known = json.loads((speaking(2) / "config.json").read_text()) | config
    if config.get("model_type") == "mamba":
        known.pop("num_attention_heads")

    with pytest.raises(ModelError, match=word):
        head_shape(known, "org/name")


def test_a_kind_or_depth_that_cannot_be_is_told(target, tmp_path):
    with pytest.raises(UsageError, match="unknown kind"):
        head_kind("hydra")
    with pytest.raises(ModelError, match="take eagle, medusa, mtp"):
        hidden_state_layers_of("eagle3", 4)
    with pytest.raises(ModelError):
        load_head_for_training("eagle3", tmp_path, target.shape)


@pytest.mark.parametrize(
    ("config", "word"),
    [({"num_attention_heads": 4, "num_key_value_heads": 2}, "share"), ({"rope_scaling": {"type": "yarn"}}, "yarn")],
    ids=["shared keys", "turned"],
)
def test_a_head_that_ours_has_no_place_for_is_told(config, word, target):
    with pytest.raises(ModelError, match=word):
        shape_from_config(config, target.shape)


def test_a_head_that_names_no_base_is_turned_as_its_publishers_do(target):
    assert 10000.0 == shape_from_config({}, replace(target.shape, theta=5e5)).rope_theta


def test_the_interval_is_over_pairs_of_turns():
    before = [TurnAcceptance(10, place % 30) for place in range(40)]
    after = [TurnAcceptance(10, turn.accepted_tokens + 2) for turn in before]

    verdict = compare_acceptance(before, after)

    assert verdict.is_better
    assert verdict.interval_low == pytest.approx(verdict.interval_high) == pytest.approx(0.05)
    assert not compare_acceptance(before, before).is_better
    assert not compare_acceptance(after, before).is_better


def test_the_trial_counts_the_passes_of_the_engine(target):
    (tried,) = measure_acceptance(target, None, [target.tokenizer.encode("abab")], LIMIT)

    assert LIMIT >= tried.target_passes >= 1
    assert tried.target_passes + tried.accepted_tokens <= LIMIT


@FULL
def test_shuffled_text_does_not_get_past_the_head_of_the_embedded_target(tmp_path, monkeypatch):
    """What the embedded target really says, mixed up: a head of that is worse than the one which ships."""
    embedded = FrozenTarget("embedded", LoadOptions(device="cpu"))
    asked = [
        TrainingPrompt(
            f"q{number}",
            Request(f"Rename `value` to `{name}`.\n\n```\ndef f(value):\n    return value + {number}\n```"),
        )
        for number, name in enumerate(f"name_{number}" for number in range(32))
    ]
    monkeypatch.setattr(train_head, "write_answers", shuffled_answers)
    wish = order("eagle3", tmp_path, effort=TrainingBudget(tokens=40_000), against=EMBEDDED / "eagle3", is_forced=False)

    with pytest.raises(SpecchatError, match="not installed"):
        train_and_install_head(replace(wish, limit=40), embedded, split_prompts(asked, 8, 32), [].append)


@pytest.mark.parametrize("shape", ["qwen3", pytest.param("gemma2", marks=FULL)])
def test_targets_of_other_families_and_passes_can_be_learned_from(shape, parted, tmp_path):
    folder = tmp_path / shape
    network(shape, layers=1, vocabulary=SPEAKING).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(speaking(1) / name, folder)
    strange = FrozenTarget(str(folder), LoadOptions(dtype="float32", device="cpu"))

    verdict = train_and_install_head(
        order("eagle", tmp_path / "out", effort=TrainingBudget(tokens=500)), strange, parted, [].append
    )

    assert 6 == verdict.turn_count
