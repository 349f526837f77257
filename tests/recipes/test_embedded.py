"""The recipe runs from text to shipped folders, which load and can be measured."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from recipes.acceptance_by_position import Answer, guess_of_draft, guess_of_exit, measure
from recipes.embedded import STAGES, Recipe
from recipes.evaluate import DEPTH, measure_drafters
from recipes.scores import loops
from specchat.engine.model import FINAL
from specchat.forward.batch import Pass
from specchat.heads.detect import inspect_head
from specchat.heads.networks import load_head
from specchat.models.load import Loading, load_model
from specchat.train.loss_plot import plot_curves
from specchat.train.read_weights import read_shipped
from specchat.train.trainable_llama import Shape
from specchat.train.trainer import Effort

pytestmark = pytest.mark.full

TINY = Shape(layers=7, width=64, heads=2, head_width=32, inner=64, vocabulary=8192, context=2048)
TINY_DRAFT = Shape(layers=2, width=32, heads=1, head_width=32, inner=48, vocabulary=8192, context=2048)


@pytest.fixture(scope="module")
def recipe(corpus, tmp_path_factory):
    recipe = Recipe(
        tmp_path_factory.mktemp("out"),
        corpus,
        Effort(tokens=9000),
        TINY,
        TINY_DRAFT,
        batch_tokens=1536,
        row_tokens=14_000,
    )
    for stage in ("tokenizer", "data", "pretrain", "instruct", "heads"):
        STAGES[stage](recipe)
    return recipe


def test_the_shipped_target_and_draft_are_ordinary_folders(recipe):
    for name in ("target", "draft"):
        model = AutoModelForCausalLM.from_pretrained(recipe.out / name, dtype=torch.float32)
        prompt = AutoTokenizer.from_pretrained(recipe.out / name).apply_chat_template(
            [{"role": "user", "content": "Hello"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        assert prompt["input_ids"].shape[1] < model.generate(**prompt, max_new_tokens=3).shape[1]


def test_what_is_shipped_reads_back_and_every_drafter_can_be_measured(recipe):
    shipped = read_shipped(recipe.out)

    measured = measure_drafters(shipped, [Answer(list(range(20, 60)), 10)])

    assert {"draft", "eagle3", "mtp", "medusa", "eagle", "exit after 4"} == measured.keys()
    assert all(DEPTH == len(found.by_position) for found in measured.values())


def test_the_first_eagle_drafts_from_its_folder_what_it_drafted_in_training(recipe):
    target = load_model(recipe.out / "target", Loading(dtype="float32", device="cpu"))
    head = load_head(inspect_head(recipe.out / "eagle"), target, None, torch.device("cpu"))
    trained = read_shipped(recipe.out).first_eagle
    hidden, tokens = torch.randn(12, TINY.width), list(range(100, 112))
    embedded = head.embed(torch.tensor(tokens))
    nodes = Pass(tokens, torch.arange(12), torch.ones(12, 12, dtype=torch.bool).tril(), 0)

    cache = head.pool.open()
    with head.pool.seated(cache, 32), torch.no_grad():
        read = head.run(hidden, embedded, nodes, cache)
        first = next(trained.runs(hidden[None], embedded[None], 1))

    assert ("eagle", (FINAL,)) == (head.kind, head.taps)
    assert torch.allclose(first.feature[0], read.hidden, atol=1e-4)
    assert torch.allclose(target.score(first.prediction[0]), read.logits, atol=1e-3)


def test_a_drafter_that_is_the_target_is_always_right_on_its_own_answer(recipe):
    target = read_shipped(recipe.out).target
    tokens = list(range(20, 30))
    for _ in range(12):
        with torch.no_grad():
            tokens.append(int(target.logits(target(torch.tensor([tokens]))[-1])[0, -1].argmax()))
    answers = [Answer(tokens, 10)]

    assert (1.0,) * 3 == measure(target, answers, guess_of_draft(target, 3), 3).by_position
    assert (1.0,) * 3 == measure(target, answers, guess_of_exit(target, 7, 3), 3).by_position


def test_a_finished_recipe_runs_again_without_training(recipe):
    before = (recipe.out / "target" / "model.safetensors").read_bytes()

    STAGES["instruct"](recipe)

    assert before == (recipe.out / "target" / "model.safetensors").read_bytes()


def test_curves_become_pictures(recipe):
    plot_curves(recipe.work / "curves")

    assert (recipe.work / "curves" / "instruct.png").stat().st_size > 1000


def test_a_loop_is_seen_and_prose_is_none():
    assert loops([1, 2, 3, 4, 5, 6, 7, 8] * 3)
    assert not loops(list(range(100)))
