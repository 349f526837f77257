"""Training a head for a target: from questions to an installed folder that the engine loads."""

import json
import random
import resource
import shutil
from collections import Counter
from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from forked import run_in_two_processes
from safetensors.torch import load_file, save_file

from specchat.chat.request import Request
from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.load_head import load_head
from specchat.errors import ModelError, SpecchatError, UsageError
from specchat.weights.gguf.gguf_preparation import prepared_gguf
from specchat.weights.load import load_model
from specchat.weights.load_options import EMBEDDED, LoadOptions
from specchat.weights.tensor_files import TensorFiles
from specchat_hybrids.gguf_conversion import safetensors_folder
from specchat_train import train_head
from specchat_train.compare_heads import TurnAcceptance, compare_acceptance, measure_acceptance
from specchat_train.distillation_batches import TrainingData
from specchat_train.feature_cache import FeatureCache, check_disk_space, with_final_norm
from specchat_train.fingerprint import fingerprint, trained_target_fingerprint
from specchat_train.frozen_target import FrozenTarget, head_shape
from specchat_train.head_kinds import (
    HEAD_KINDS,
    head_kind,
    hidden_state_layers_of,
    load_head_for_training,
    shape_from_config,
)
from specchat_train.target_answers import TargetAnswer, generate_answers
from specchat_train.train_head import (
    HeadTrainingRequest,
    train_and_install_head,
    train_head_as_worker,
    warn_of_changed_target,
)
from specchat_train.trainer import TrainingBudget
from specchat_train.training_prompts import TrainingPrompt, split_prompts
from tests.gguf_models import write_gguf
from tests.tiny import SPEAKING, network, speaking

LIMIT = 12
BUDGET = TrainingBudget(tokens=2_000)
FULL = pytest.mark.full


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A target whose next token depends on the last one only, so that heads learn it in seconds."""
    folder = tmp_path_factory.mktemp("target") / "plain"
    shutil.copytree(speaking(layers=5), folder)
    weights = load_file(folder / "model.safetensors")
    zeros = {name: torch.zeros_like(each) for name, each in weights.items() if "o_proj" in name or "down_proj" in name}
    save_file(weights | zeros, folder / "model.safetensors", metadata={"format": "pt"})
    return FrozenTarget(str(folder), LoadOptions(dtype="float32", device="cpu"))


@pytest.fixture(scope="module")
def split():
    rng = random.Random(3)
    return split_prompts(
        [TrainingPrompt(f"q{n}", Request("".join(rng.choices("abcdef ", k=8)))) for n in range(24)], 6, 24
    )


@pytest.fixture(scope="module")
def answers(target, split, tmp_path_factory):
    """The file of the target's answers, shared by all tests."""
    path = tmp_path_factory.mktemp("answers") / "answers.jsonl"
    generate_answers(target, [target.prompt_tokens(question) for question in split.training], LIMIT, path)
    return path


@pytest.fixture(scope="module")
def make(target, split, answers):
    """Train a head; returns the comparison and the printed lines."""

    def make(request):
        lines = []
        work = request.output_folder / "work" / target.fingerprint
        work.mkdir(parents=True, exist_ok=True)
        shutil.copy(answers, work)
        return train_and_install_head(request, target, split, lines.append), "\n".join(lines)

    return make


@pytest.fixture(scope="module")
def made(make, tmp_path_factory):
    """The folder of a trained head of this kind and the printed lines; trained once."""
    folder = tmp_path_factory.mktemp("made")

    @lru_cache
    def made(kind):
        return folder / kind, make(request_for(kind, folder / kind))[1]

    return made


def request_for(kind, out, **more):
    return HeadTrainingRequest(
        kind, out, batch_tokens=512, **({"budget": BUDGET, "installs_anyway": True, "max_answer_tokens": LIMIT} | more)
    )


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in ("eagle3", "draft") else FULL) for kind in HEAD_KINDS]
)
def test_a_head_of_each_kind_is_trained_and_saved_in_its_published_format(kind, made, target):
    folder, lines = made(kind)

    if kind == "draft":
        assert target.model.vocab_size == load_model(folder, LoadOptions(device="cpu")).vocab_size
        assert f'draft = "{folder}"' in lines
    else:
        load_head(inspect_head(folder), target.model, None, torch.device("cpu"))
        assert kind == inspect_head(folder).kind
        assert f'heads = ["{folder}"]' in lines
    assert target.fingerprint in (folder / "README.md").read_text()
    assert trained_target_fingerprint(folder) == target.fingerprint


@pytest.mark.parametrize("kind", ["eagle3", *(pytest.param(kind, marks=FULL) for kind in ("mtp", "eagle", "medusa"))])
def test_a_resumed_head_computes_the_same_and_force_installs_it_with_a_message(kind, made, make, tmp_path):
    head, _ = made(kind)

    comparison, lines = make(
        request_for(kind, tmp_path, initial_head=head, baseline_head=head, budget=TrainingBudget(tokens=1))
    )

    assert comparison.baseline_acceptance == comparison.new_acceptance
    assert "installed with --force" in lines
    assert f"continued from `{kind}`" in (tmp_path / "README.md").read_text()


@pytest.mark.full
def test_training_on_answers_is_better_and_training_on_shuffled_answers_is_not(make, tmp_path, monkeypatch):
    """The first head beats a hardly trained one; then one trained on shuffled text is rejected."""
    make(request_for("eagle3", tmp_path / "raw", budget=TrainingBudget(tokens=1)))
    good = request_for(
        "eagle3",
        tmp_path / "good",
        budget=TrainingBudget(tokens=2_000),
        baseline_head=tmp_path / "raw",
        installs_anyway=False,
    )

    comparison, _ = make(good)

    assert comparison.is_better
    monkeypatch.setattr(train_head, "generate_answers", shuffled_answers)
    with pytest.raises(SpecchatError, match="not installed"):
        make(replace(good, output_folder=tmp_path / "worse", baseline_head=tmp_path / "good"))
    assert not (tmp_path / "worse" / "config.json").exists()
    assert "eagle3" == inspect_head(tmp_path / "worse" / "rejected").kind


def shuffled_answers(target, prompts, max_tokens, path, ranks):
    rng = random.Random(0)
    answers = generate_answers(target, prompts, max_tokens, path, ranks)
    shuffled = [
        rng.sample(answer.tokens[answer.answer_start :], len(answer.tokens) - answer.answer_start) for answer in answers
    ]
    return [
        TargetAnswer([*each.tokens[: each.answer_start], *rest], each.answer_start)
        for each, rest in zip(answers, shuffled, strict=True)
    ]


def test_answers_and_hidden_states_are_computed_once(made, make, target, monkeypatch):
    folder, _ = made("eagle3")
    weights = load_file(folder / "model.safetensors")
    monkeypatch.setattr(target, "generate", None)
    monkeypatch.setattr(target, "hidden_states", None)

    _, lines = make(request_for("eagle3", folder))

    assert "0.0 MB missing" in lines
    again = load_file(folder / "model.safetensors")
    assert all(torch.equal(tensor, again[name]) for name, tensor in weights.items())


@pytest.mark.full
def test_interrupted_training_resumes_with_the_same_result(made, make, tmp_path, monkeypatch):
    steps = 0

    def interrupted(data, batch, step):
        nonlocal steps
        steps += 1
        if steps == 3:
            raise KeyboardInterrupt
        return original(data, batch, step)

    original = TrainingData.distillation_batch
    monkeypatch.setattr(train_head, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(TrainingData, "distillation_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make(request_for("eagle3", tmp_path / "out"))
    monkeypatch.setattr(TrainingData, "distillation_batch", original)

    make(request_for("eagle3", tmp_path / "out"))

    whole, again = (load_file(folder / "model.safetensors") for folder in (made("eagle3")[0], tmp_path / "out"))
    assert all(torch.equal(tensor, again[name]) for name, tensor in whole.items())


def test_a_truncated_answer_is_generated_again(target, tmp_path):
    path, prompts = tmp_path / "answers.jsonl", [[5, 6, 7], [8, 9]]
    whole = generate_answers(target, prompts, LIMIT, path)
    path.write_text(path.read_text()[:-10])

    assert whole == generate_answers(target, prompts, LIMIT, path)
    assert 2 == len(path.read_text().splitlines())


def test_the_answer_files_of_several_processes_are_merged(target, tmp_path):
    path, prompts = tmp_path / "answers.jsonl", [[5, 6, 7], [8, 9], [10, 11]]
    whole = generate_answers(target, prompts, LIMIT, path)
    first, second, third = path.read_text().splitlines(keepends=True)
    path.write_text(first)
    (tmp_path / "answers.0.jsonl").write_text(second)
    (tmp_path / "answers.1.jsonl").write_text(third[:-10])

    assert whole == generate_answers(target, prompts, LIMIT, path)
    assert [path] == list(tmp_path.iterdir())
    assert {first, second, third} == set(path.read_text().splitlines(keepends=True))


def test_two_processes_divide_answers_and_hidden_states(target, split, answers, tmp_path):
    prompts = [target.prompt_tokens(question) for question in split.training]
    alone = generate_answers(target, prompts, LIMIT, answers)

    def made(ranks):
        """The answers, the hidden states, and how many of each this process computed."""
        generate, hidden_states = target.generate, target.hidden_states
        own = []
        target.generate = lambda *arguments: own.append("answer") or generate(*arguments)
        target.hidden_states = lambda *arguments: own.append("states") or hidden_states(*arguments)
        with ranks.process_group(target.device):
            result = generate_answers(target, prompts, LIMIT, tmp_path / "answers.jsonl", ranks)
            cache = cache_of(target, tmp_path / "states")
            cache.fill(target, ranks)
        return result, [cache.hidden_states(index).tolist() for index in (0, 35)], Counter(own)

    one, other = run_in_two_processes(made)

    assert one[:2] == other[:2]
    assert alone == one[0]
    assert Counter(answer=9, states=32) == one[2]
    assert Counter(answer=9, states=8) == other[2]
    assert {"answers.jsonl", "states"} == {path.name for path in tmp_path.iterdir()}


def test_two_processes_train_one_head_and_rank_0_installs_it(target, split, tmp_path):
    def made(ranks):
        request, lines = request_for("medusa", tmp_path, distributed=ranks), []
        if ranks.is_main_process:
            train_and_install_head(request, target, split, lines.append)
        else:
            train_head_as_worker(request, target, split)
        return "\n".join(lines)

    one, other = run_in_two_processes(made)

    assert f'heads = ["{tmp_path}"]' in one
    assert "" == other
    assert "medusa" == inspect_head(tmp_path).kind


def test_answers_are_those_of_greedy_plain_decoding(target):
    from specchat.engine.drafter import Drafter

    prompt = target.tokenizer.encode("abc abc abc")

    assert target.generate(prompt, LIMIT).tokens == target.generate(prompt, LIMIT, Drafter()).tokens


def cache_of(target, folder, count=40):
    answers = [TargetAnswer([7 + n % 50, 8, 9, 10 + n % 30, 11], 2) for n in range(count)]
    layers = with_final_norm(hidden_state_layers_of("eagle3", target.shape.layers))
    return FeatureCache(folder, answers, layers, target.shape.hidden_size)


def test_the_cache_has_the_states_of_every_answer_and_knows_their_size_before(target, tmp_path):
    cache = cache_of(target, tmp_path)
    planned = cache.missing_bytes

    cache.fill(target)

    assert 0 == cache.missing_bytes
    assert sum(cache.hidden_states(index).nbytes for index in range(len(cache.answers))) == planned
    expected = target.hidden_states(cache.answers[35].tokens, cache.hidden_state_layers).bfloat16()
    assert torch.equal(cache.hidden_states(35), expected)


def test_an_interrupted_cache_computes_only_missing_shards(target, tmp_path):
    cache = cache_of(target, tmp_path)
    cache.fill(target)
    first, second = sorted(tmp_path.glob("*.safetensors"))
    before, _ = first.stat().st_mtime_ns, second.unlink()

    cache.fill(target)

    assert second.is_file()
    assert before == first.stat().st_mtime_ns


def test_a_disk_that_is_too_small_is_an_error_before_writing(tmp_path):
    with pytest.raises(SpecchatError, match="are free"):
        check_disk_space(10**18, tmp_path)


def test_a_full_disk_is_an_error_and_complete_shards_stay(target, tmp_path):
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


def test_a_changed_target_is_a_warning(made, target, tmp_path):
    head, lines = shutil.copytree(made("medusa")[0], tmp_path / "head"), []
    config = head / "config.json"
    config.write_text(config.read_text().replace(target.fingerprint, "another"))
    (tmp_path / "work" / "another").mkdir(parents=True)

    warn_of_changed_target(
        request_for("medusa", tmp_path, initial_head=head),
        target,
        tmp_path / "work" / target.fingerprint,
        lines.append,
    )

    assert "has changed since another: answers and hidden states are computed again" in lines[0]
    assert "the target has changed since it was trained (another" in lines[1]


def test_fingerprints_of_different_weights_differ():
    assert fingerprint(speaking(2)) == fingerprint(speaking(2))
    assert fingerprint(speaking(2)) != fingerprint(speaking(2, seed=9))


def test_a_gguf_file_has_one_fingerprint_whether_it_is_converted_or_not(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CACHE", str(tmp_path / "cache"))
    folder = prepared_gguf(write_gguf(tmp_path / "model.gguf", storage="Q4_1"))

    assert fingerprint(folder) == fingerprint(safetensors_folder(folder))


def test_fingerprint_is_that_of_the_model_and_not_of_its_files(tmp_path):
    files = TensorFiles.from_files(speaking(2), sorted(speaking(2).glob("*.safetensors")))
    tensors = {name: files.read_tensor(name) for name in files.locations}
    config = json.loads((speaking(2) / "config.json").read_text())
    for index, name in enumerate(tensors):
        save_file({name: tensors[name]}, tmp_path / f"model-{index}.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config | {"transformers_version": "1", "dtype": "bfloat16"}))
    assert fingerprint(tmp_path) == fingerprint(speaking(2))

    (tmp_path / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.5}))
    assert fingerprint(tmp_path) != fingerprint(speaking(2))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "mamba"}, "mamba.*num_attention_heads"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "recurrent"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "unsupported RoPE type"),
    ],
    ids=["no attention", "recurrent", "rope"],
)
def test_unsupported_families_are_an_error(config, message):
    config_json = json.loads((speaking(2) / "config.json").read_text()) | config
    if config.get("model_type") == "mamba":
        config_json.pop("num_attention_heads")

    with pytest.raises(ModelError, match=message):
        head_shape(config_json, "org/name")


def test_an_unknown_kind_or_a_shallow_target_is_an_error(target, tmp_path):
    with pytest.raises(UsageError, match="unknown kind"):
        head_kind("hydra")
    with pytest.raises(ModelError, match="choose eagle, medusa, mtp"):
        hidden_state_layers_of("eagle3", 4)
    with pytest.raises(ModelError):
        load_head_for_training("eagle3", tmp_path, target.shape)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_attention_heads": 4, "num_key_value_heads": 2}, "grouped-query"),
        ({"rope_scaling": {"type": "yarn"}}, "yarn"),
    ],
    ids=["grouped-query", "rope"],
)
def test_an_unsupported_head_is_an_error(config, message, target):
    with pytest.raises(ModelError, match=message):
        shape_from_config(config, target.shape)


def test_a_head_without_rope_theta_has_the_default(target):
    assert 10000.0 == shape_from_config({}, replace(target.shape, rope_theta=5e5)).rope_theta


def test_the_interval_is_over_pairs_of_turns():
    before = [TurnAcceptance(10, index % 30) for index in range(40)]
    after = [TurnAcceptance(10, turn.accepted_tokens + 2) for turn in before]

    comparison = compare_acceptance(before, after)

    assert comparison.is_better
    assert comparison.interval_low == pytest.approx(comparison.interval_high) == pytest.approx(0.05)
    assert not compare_acceptance(before, before).is_better
    assert not compare_acceptance(after, before).is_better


def test_the_comparison_counts_the_passes_of_the_engine(target):
    (turn,) = measure_acceptance(target, None, [target.tokenizer.encode("abab")], LIMIT)

    assert LIMIT >= turn.target_passes >= 1
    assert turn.target_passes + turn.accepted_tokens <= LIMIT


@FULL
def test_a_head_trained_on_shuffled_text_does_not_beat_the_embedded_head(tmp_path, monkeypatch):
    """A head trained on shuffled answers of the embedded target is worse than the embedded head."""
    embedded = FrozenTarget("embedded", LoadOptions(device="cpu"))
    prompts = [
        TrainingPrompt(
            f"q{number}",
            Request(f"Rename `value` to `{name}`.\n\n```\ndef f(value):\n    return value + {number}\n```"),
        )
        for number, name in enumerate(f"name_{number}" for number in range(32))
    ]
    monkeypatch.setattr(train_head, "generate_answers", shuffled_answers)
    request = request_for(
        "eagle3",
        tmp_path,
        budget=TrainingBudget(tokens=2_000),
        baseline_head=EMBEDDED / "eagle3",
        installs_anyway=False,
        max_answer_tokens=40,
    )

    with pytest.raises(SpecchatError, match="not installed"):
        train_and_install_head(request, embedded, split_prompts(prompts, 8, 32), [].append)


@pytest.mark.parametrize("shape", ["qwen3", pytest.param("gemma2", marks=FULL)])
def test_heads_can_be_trained_for_targets_of_other_families(shape, split, tmp_path):
    folder = tmp_path / shape
    network(shape, layers=1, vocabulary=SPEAKING).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(speaking(1) / name, folder)
    other = FrozenTarget(str(folder), LoadOptions(dtype="float32", device="cpu"))

    request = request_for("eagle", tmp_path / "out", budget=TrainingBudget(tokens=500))
    comparison = train_and_install_head(request, other, split, [].append)

    assert 6 == comparison.turn_count
