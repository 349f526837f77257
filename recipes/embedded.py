"""Trains the embedded models, from a folder of text to the folders in the wheel.

    python -m recipes.embedded --corpus FOLDER --out FOLDER --stage all --tokens 12000000

Every stage writes checkpoints and resumes from them; a finished stage is not run again. Intermediate files are in
OUT/work, results in OUT/target, OUT/draft, OUT/eagle3, OUT/medusa, OUT/mtp and OUT/eagle.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from recipes.corpus import read_documents
from recipes.embedded_models import export_network, load_weights
from recipes.induction import initialize_copy_circuit, initialize_eagle3, is_circuit_weight
from recipes.joint_distillation import joint_student_loss
from recipes.loss_plot import plot_loss_curves
from recipes.reference_passages import collect_passages, write_passages
from recipes.row_files import load_rows, save_rows
from recipes.target_loss import target_loss
from recipes.train_tokenizer import load_tokenizer, save_tokenizer, train_tokenizer
from recipes.training_rows import Encoder, instruction_rows, pretraining_rows
from specchat_train import distillation_losses, export_weights
from specchat_train.eagle_initialization import fit_fusion
from specchat_train.optimizers import LearningRateSchedule
from specchat_train.trainable_heads import Eagle1, Eagle3, Medusa, MtpBlock
from specchat_train.trainable_llama import ModelShape, TrainableLlama
from specchat_train.trainer import PADDING_ID, Stage, TrainingBudget, run_stage
from specchat_train.training_batches import plan_batches

TOKENIZER_SAMPLE_CHARACTERS = 36_000_000
MAX_ROW_TOKENS = 1536
MAX_DISTILLATION_TOKENS = 768  # the heads' runs keep whole attention matrices
EAGLE_VOCABULARY = 4096
SAMPLE_ROWS = 48


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the result besides the text."""

    out: Path
    corpus: Path | None = None
    effort: TrainingBudget = TrainingBudget(tokens=12_000_000)
    shape: ModelShape = ModelShape()
    draft: ModelShape = ModelShape(layers=2, hidden_size=192, num_heads=3, intermediate_size=384)
    batch_tokens: int = 4096
    row_tokens: int = 9_000_000
    seed: int = 11
    device: str = "cpu"
    save_every_seconds: float = 100.0

    @property
    def work(self) -> Path:
        return self.out / "work"

    @property
    def tokenizer(self) -> Path:
        return self.work / "tokenizer"

    def rows(self, name: str) -> Path:
        return self.work / "rows" / f"{name}.npz"

    def checkpoint(self, stage: str) -> Path:
        return self.work / f"{stage}.pt"


def make_tokenizer(recipe: Recipe) -> None:
    """Learn the pieces from a sample of the training text."""
    if (recipe.tokenizer / "tokenizer.json").exists():
        return
    documents = list(read_documents(recipe.corpus, validation=False, tiers=("A", "B")))
    random.Random(0).shuffle(documents)
    sizes = itertools.accumulate(min(len(document.text), 20_000) for document in documents)
    sample = [d.text[:20_000] for d, size in zip(documents, sizes, strict=True) if size < TOKENIZER_SAMPLE_CHARACTERS]
    save_tokenizer(train_tokenizer(sample), recipe.tokenizer, recipe.shape.max_positions)


def make_rows(recipe: Recipe) -> None:
    """Write the rows of both stages of the target."""
    encoder = Encoder(load_tokenizer(recipe.tokenizer))
    if not recipe.rows("pretrain").exists():
        rows = pretraining_rows(encoder, recipe.corpus, recipe.row_tokens // 6, recipe.seed + 1)
        save_rows(rows, recipe.rows("pretrain"))
    if not recipe.rows("instruct").exists():
        save_rows(instruction_rows(encoder, recipe.corpus, recipe.row_tokens, recipe.seed), recipe.rows("instruct"))


def make_reference(recipe: Recipe) -> None:
    """Write the passages that the demo quotes from."""
    write_passages(collect_passages(recipe.corpus), recipe.out / "reference.jsonl")


def stage_of(recipe: Recipe, name: str, rows: str, student: nn.Module, effort: TrainingBudget) -> Stage:
    """What all stages have in common; the loss is filled in by the stage itself."""
    shelf = load_rows(recipe.rows(rows))
    return Stage(
        name=name,
        folder=recipe.work,
        student=student,
        loss=lambda _batch, _step: {},
        packed_rows=shelf,
        batch_plan=plan_batches(shelf, recipe.batch_tokens, recipe.seed, MAX_ROW_TOKENS),
        budget=effort,
        save_every_seconds=recipe.save_every_seconds,
        device=torch.device(recipe.device),
    )


def budget_fraction(effort: TrainingBudget, part: float) -> TrainingBudget:
    """This part of an effort."""
    return TrainingBudget(
        tokens=None if effort.tokens is None else round(effort.tokens * part),
        minutes=None if effort.minutes is None else effort.minutes * part,
    )


def new_target(recipe: Recipe) -> TrainableLlama:
    network = TrainableLlama(recipe.shape)
    initialize_copy_circuit(network, recipe.seed)
    return network.to(recipe.device)


def trained_target(recipe: Recipe) -> TrainableLlama:
    network = TrainableLlama(recipe.shape)
    load_weights(network, recipe.checkpoint("instruct"))
    return network.to(recipe.device).eval().requires_grad_(False)


def train_target(recipe: Recipe, name: str, pace: LearningRateSchedule, start: str | None, part: float) -> None:
    """One stage of the target, from the stage before or from its first weights."""
    network = new_target(recipe)
    if start is not None and recipe.checkpoint(start).exists():
        load_weights(network, recipe.checkpoint(start))
    forward = torch.compile(network, dynamic=True) if recipe.device != "cpu" else network
    stage = stage_of(recipe, name, name, network, budget_fraction(recipe.effort, part))
    stage.loss, stage.schedule = target_loss(network, forward, recipe.shape.early_exit_layers), pace
    stage.uses_slow_lr = lambda weight: is_circuit_weight(weight, recipe.shape)
    run_stage(stage)


def pretrain(recipe: Recipe) -> None:
    train_target(recipe, "pretrain", LearningRateSchedule(warmup_fraction=0.03, decay_fraction=0.0), None, 0.15)


def instruct(recipe: Recipe) -> None:
    train_target(recipe, "instruct", LearningRateSchedule(warmup_fraction=0.005, decay_fraction=0.7), "pretrain", 1.0)
    export_network(trained_target(recipe), recipe.out / "target", recipe.tokenizer)


@dataclass(frozen=True)
class StudentRecipe:
    """A small one that learns from the target: how it begins, what its loss is, how it ships."""

    initialize: Callable[[Recipe], Any]
    loss: Callable[[Recipe, Any], distillation_losses.StudentLoss]
    export: Callable[[Recipe, Any], None]


def initialize_draft(recipe: Recipe) -> TrainableLlama:
    """The draft reads the rows by itself first."""
    draft = TrainableLlama(recipe.draft).to(recipe.device)
    initialize_copy_circuit(draft, recipe.seed + 1)
    stage = stage_of(recipe, "draft-words", "instruct", draft, budget_fraction(recipe.effort, 0.35))
    stage.loss, stage.schedule = (
        target_loss(draft, draft, exits=()),
        LearningRateSchedule(warmup_fraction=0.01, decay_fraction=0.3, slow_lr=3e-4),
    )
    stage.uses_slow_lr = lambda weight: is_circuit_weight(weight, recipe.draft)
    run_stage(stage)
    return draft


def initialize_eagle3_head(recipe: Recipe) -> Eagle3:
    """An EAGLE-3 head whose vocabulary is what the rows use most, its output matrix begun as the target's."""
    tokens = torch.from_numpy(load_rows(recipe.rows("instruct")).tokens.astype("int64"))
    size = min(EAGLE_VOCABULARY, recipe.shape.vocab_size // 2)
    eagle = Eagle3(
        recipe.shape, distillation_losses.draft_vocabulary(tokens, recipe.shape.vocab_size, size, required_ids=(0,))
    )
    target = trained_target(recipe).cpu()
    sample = load_rows(recipe.rows("instruct")).batch(range(8), MAX_ROW_TOKENS, PADDING_ID)
    with torch.no_grad():
        stream = target(sample.tokens)
        sizes = [
            stream[tap].pow(2).mean().sqrt() for tap in export_weights.eagle3_hidden_state_layers(recipe.shape.layers)
        ]
        eagle.hidden_state_scale.copy_(1.0 / torch.stack(sizes).repeat_interleave(recipe.shape.hidden_size))
        eagle.lm_head.weight.copy_(target.model.embed_tokens.weight[eagle.draft_token_ids])
        eagle.norm.weight.copy_(target.model.norm.weight)
    initialize_eagle3(eagle.fc.weight, eagle.midlayer.self_attn, recipe.shape, recipe.seed)
    return eagle.to(recipe.device)


def fit_fusion_head(recipe: Recipe) -> Eagle1:
    """The first EAGLE, with a sample of what the target thinks as its first lesson."""
    eagle, target = Eagle1(recipe.shape), trained_target(recipe).cpu()
    shelf = load_rows(recipe.rows("instruct"))
    sample = shelf.batch(range(min(SAMPLE_ROWS, len(shelf))), MAX_ROW_TOKENS, PADDING_ID)
    with torch.no_grad():
        states = target.model.norm(target(sample.tokens)[-1])
    is_text = sample.tokens[:, 1:] != PADDING_ID
    pairs = torch.cat((target.model.embed_tokens.weight[sample.tokens[:, 1:]], states[:, :-1]), dim=-1)
    fit_fusion(eagle.fc.weight, eagle.layer.self_attn, pairs[is_text], states[:, 1:][is_text])
    return eagle.to(recipe.device)


def initialize_mtp(recipe: Recipe) -> MtpBlock:
    block = MtpBlock(recipe.shape)
    with torch.no_grad():
        block.norm.weight.copy_(trained_target(recipe).model.norm.weight.cpu())
    return block.to(recipe.device)


STUDENTS: dict[str, StudentRecipe] = {
    "draft": StudentRecipe(
        initialize_draft,
        lambda _recipe, draft: distillation_losses.draft_loss(draft),
        lambda recipe, draft: export_network(draft, recipe.out / "draft", recipe.tokenizer),
    ),
    "eagle3": StudentRecipe(
        initialize_eagle3_head,
        lambda recipe, eagle: distillation_losses.eagle3_loss(
            eagle, export_weights.eagle3_hidden_state_layers(recipe.shape.layers)
        ),
        lambda recipe, eagle: export_weights.export_eagle3(eagle, recipe.shape, recipe.out / "eagle3"),
    ),
    "medusa": StudentRecipe(
        lambda recipe: Medusa(recipe.shape.hidden_size).to(recipe.device),
        lambda _recipe, medusa: distillation_losses.medusa_loss(medusa),
        lambda recipe, medusa: export_weights.export_medusa(medusa, recipe.shape, recipe.out / "medusa"),
    ),
    "mtp": StudentRecipe(
        initialize_mtp,
        lambda _recipe, block: distillation_losses.mtp_loss(block),
        lambda recipe, block: export_weights.export_mtp(block, recipe.shape, recipe.out / "mtp"),
    ),
    "eagle": StudentRecipe(
        fit_fusion_head,
        lambda _recipe, eagle: distillation_losses.eagle1_loss(eagle),
        lambda recipe, eagle: export_weights.export_eagle1(eagle, recipe.out / "eagle"),
    ),
}


def student_stage(*names: str) -> Callable[[Recipe], None]:
    """A stage that teaches these side by side, on one silent pass of the target for all of them."""

    def stage_for(recipe: Recipe) -> None:
        learners = nn.ModuleDict({name: STUDENTS[name].initialize(recipe) for name in names})
        stage = stage_of(recipe, "+".join(names), "instruct", learners, budget_fraction(recipe.effort, 0.15))
        losses = {name: STUDENTS[name].loss(recipe, learners[name]) for name in names}
        stage.batch_plan = plan_batches(stage.packed_rows, recipe.batch_tokens, recipe.seed, MAX_DISTILLATION_TOKENS)
        stage.loss = joint_student_loss(trained_target(recipe), losses)
        stage.schedule = LearningRateSchedule(
            muon_lr=0.03, adamw_lr=3e-3, slow_lr=5e-4, warmup_fraction=0.01, decay_fraction=0.7
        )
        stage.uses_slow_lr = lambda weight: is_circuit_weight_of_head(weight, recipe)
        run_stage(stage)
        for name in names:
            STUDENTS[name].export(recipe, learners[name])

    return stage_for


def is_circuit_weight_of_head(weight: str, recipe: Recipe) -> bool:
    """Whether a weight of a learner, named with the learner's name before it, began as part of a copying circuit."""
    return weight.startswith(("eagle3.fc", "eagle3.midlayer.self_attn")) or (
        weight.startswith("draft.") and is_circuit_weight(weight, recipe.draft)
    )


STAGES: dict[str, Callable[[Recipe], None]] = {
    "tokenizer": make_tokenizer,
    "data": make_rows,
    "reference": make_reference,
    "pretrain": pretrain,
    "instruct": instruct,
    "draft": student_stage("draft"),
    "eagle3": student_stage("eagle3"),
    "medusa": student_stage("medusa"),
    "mtp": student_stage("mtp"),
    "eagle": student_stage("eagle"),
    "heads": student_stage("draft", "eagle3", "medusa", "mtp", "eagle"),
}

# A fresh network can copy, so the instruction rows alone teach it; pretraining pays when tokens are plenty.
ALL = ("tokenizer", "data", "reference", "instruct", "heads")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.embedded", description="Train the embedded models.")
    parser.add_argument("--corpus", type=Path, help="folder of *.jsonl.gz; without one, the interpreter's own library")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stage", choices=[*STAGES, "all"], default="all")
    parser.add_argument("--tokens", type=int, default=12_000_000, help="tokens that the target reads")
    parser.add_argument("--minutes", type=float, help="minutes that the target may take, instead of tokens")
    parser.add_argument("--threads", type=int, help="threads of torch")
    parser.add_argument("--seed", type=int, default=11)
    chosen = parser.parse_args(arguments)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    effort = TrainingBudget(minutes=chosen.minutes) if chosen.minutes else TrainingBudget(tokens=chosen.tokens)
    recipe = replace(
        Recipe(chosen.out),
        corpus=chosen.corpus,
        effort=effort,
        seed=chosen.seed,
        row_tokens=max(100_000, chosen.tokens * 3 // 4),
        device="cuda" if torch.cuda.is_available() else "cpu",
    )
    for name in ALL if chosen.stage == "all" else [chosen.stage]:
        STAGES[name](recipe)
    plot_loss_curves(recipe.work / "curves")


if __name__ == "__main__":
    main()
