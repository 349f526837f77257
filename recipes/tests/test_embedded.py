"""The recipe runs from text to exported folders, which load and can be measured."""

import pytest
import torch

from recipes.acceptance_by_position import Answer, draft_model_tokens, early_exit_tokens, measure
from recipes.embedded import STAGES, Recipe
from recipes.embedded_models import load_embedded_models
from recipes.evaluate import DEPTH, measure_drafters
from recipes.loss_plot import plot_loss_curves
from recipes.scores import has_repetition_loop
from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.load_head import load_head
from specchat.engine.model import FINAL_NORM
from specchat.forward.batch import RowBatch
from specchat.weights.load import load_model
from specchat.weights.load_options import LoadOptions
from specchat_train.trainable_llama import ModelShape
from specchat_train.trainer import TrainingBudget

pytestmark = pytest.mark.full

TINY = ModelShape(
    layers=7, hidden_size=64, num_heads=2, head_dim=32, intermediate_size=64, vocab_size=8192, max_positions=2048
)
TINY_DRAFT = ModelShape(
    layers=2, hidden_size=32, num_heads=1, head_dim=32, intermediate_size=48, vocab_size=8192, max_positions=2048
)


@pytest.fixture(scope="module")
def recipe(corpus, tmp_path_factory):
    recipe = Recipe(
        tmp_path_factory.mktemp("out"),
        corpus,
        TrainingBudget(tokens=9000),
        TINY,
        TINY_DRAFT,
        batch_tokens=1536,
        row_tokens=14_000,
    )
    for stage in ("tokenizer", "data", "pretrain", "instruct", "heads"):
        STAGES[stage](recipe)
    return recipe


def test_target_and_draft_are_folders_for_transformers(recipe):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    for name in ("target", "draft"):
        model = AutoModelForCausalLM.from_pretrained(recipe.out / name, dtype=torch.float32)
        prompt = AutoTokenizer.from_pretrained(recipe.out / name).apply_chat_template(
            [{"role": "user", "content": "Hello"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        assert prompt["input_ids"].shape[1] < model.generate(**prompt, max_new_tokens=3).shape[1]


def test_exported_models_load_and_every_drafter_can_be_measured(recipe):
    shipped = load_embedded_models(recipe.out)

    measured = measure_drafters(shipped, [Answer(list(range(20, 60)), 10)])

    assert {"draft", "eagle3", "mtp", "medusa", "eagle", "exit after 4"} == measured.keys()
    assert all(DEPTH == len(found.by_position) for found in measured.values())


def test_an_exported_eagle1_head_computes_the_same_as_in_training(recipe):
    target = load_model(recipe.out / "target", LoadOptions(dtype="float32", device="cpu"))
    head = load_head(inspect_head(recipe.out / "eagle"), target, None, torch.device("cpu"))
    trained = load_embedded_models(recipe.out).eagle1
    hidden, tokens = torch.randn(12, TINY.hidden_size), list(range(100, 112))
    embedded = head.embed(torch.tensor(tokens))
    nodes = RowBatch(tokens, torch.arange(12), torch.ones(12, 12, dtype=torch.bool).tril(), 0)

    cache = head.pool.open()
    with head.pool.acquire_slot(cache, 32), torch.no_grad():
        read = head.forward(hidden, embedded, nodes, cache)
        first = next(trained.unroll(hidden[None], embedded[None], 1))

    assert ("eagle", (FINAL_NORM,)) == (head.kind, head.hidden_state_layers)
    assert torch.allclose(first.feature[0], read.hidden_states, atol=1e-4)
    assert torch.allclose(target.compute_logits(first.prediction[0]), read.logits, atol=1e-3)


def test_the_target_as_its_own_drafter_has_acceptance_1(recipe):
    target = load_embedded_models(recipe.out).target
    tokens = list(range(20, 30))
    for _ in range(12):
        with torch.no_grad():
            tokens.append(int(target.logits(target(torch.tensor([tokens]))[-1])[0, -1].argmax()))
    answers = [Answer(tokens, 10)]

    assert (1.0,) * 3 == measure(target, answers, draft_model_tokens(target, 3), 3).by_position
    assert (1.0,) * 3 == measure(target, answers, early_exit_tokens(target, 7, 3), 3).by_position


def test_a_finished_recipe_runs_again_without_training(recipe):
    before = (recipe.out / "target" / "model.safetensors").read_bytes()

    STAGES["instruct"](recipe)

    assert before == (recipe.out / "target" / "model.safetensors").read_bytes()


def test_loss_curves_are_plotted(recipe):
    plot_loss_curves(recipe.work / "curves")

    assert (recipe.work / "curves" / "instruct.png").stat().st_size > 1000


def test_repetition_loops_are_detected():
    assert has_repetition_loop([1, 2, 3, 4, 5, 6, 7, 8] * 3)
    assert not has_repetition_loop(list(range(100)))
