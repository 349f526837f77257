"""Training resumes from a checkpoint with the same result."""

import random

import pytest
import torch

from recipes.joint_distillation import joint_student_loss, run_target
from recipes.row_files import TrainingRow, load_rows, save_rows
from recipes.target_loss import target_loss
from specchat_train.distillation_losses import (
    draft_loss,
    eagle1_loss,
    eagle3_loss,
    medusa_loss,
    mtp_loss,
)
from specchat_train.optimizers import LearningRateSchedule
from specchat_train.trainable_heads import Eagle1, Eagle3, HeadOutput, Medusa, MtpBlock
from specchat_train.trainable_llama import TrainableLlama
from specchat_train.trainer import Stage, TrainingBudget, run_stage
from specchat_train.training_batches import plan_batches


@pytest.fixture
def rows(tmp_path):
    rng = random.Random(0)
    examples = [TrainingRow([rng.randrange(512) for _ in range(rng.randint(10, 60))], []) for _ in range(60)]
    save_rows(
        (TrainingRow(row.tokens, [0.0] * 4 + [1.0] * (len(row.tokens) - 4), rng.random()) for row in examples),
        tmp_path / "r.npz",
    )
    return load_rows(tmp_path / "r.npz")


def stage_of(network, rows, folder, tokens=64 * 4 * 8):
    loss = target_loss(network, network, exits=(2,))
    return Stage(
        "small",
        folder,
        network,
        loss,
        rows,
        plan_batches(rows, 256, 1),
        TrainingBudget(tokens=tokens),
        LearningRateSchedule(),
    )


def new_network(shape):
    torch.manual_seed(7)
    return TrainableLlama(shape)


def test_an_interrupted_stage_ends_with_the_weights_of_an_uninterrupted_one(tiny_shape, rows, tmp_path):
    whole, broken = new_network(tiny_shape), new_network(tiny_shape)
    run_stage(stage_of(whole, rows, tmp_path / "whole"))

    run_stage(stage_of(broken, rows, tmp_path / "broken"), stop_after_steps=3)
    again = new_network(tiny_shape)
    progress = run_stage(stage_of(again, rows, tmp_path / "broken"))

    assert progress.step == 8
    steps = [line.split(",")[0] for line in (tmp_path / "broken" / "curves" / "small.csv").read_text().splitlines()]
    assert ["step", *map(str, range(1, 9))] == steps
    for one, other in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_finished_stage_is_not_run_again(tiny_network, rows, tmp_path):
    run_stage(stage_of(tiny_network, rows, tmp_path))
    before = [parameter.clone() for parameter in tiny_network.parameters()]

    run_stage(stage_of(tiny_network, rows, tmp_path))

    assert all(torch.equal(one, other) for one, other in zip(before, tiny_network.parameters(), strict=True))


@pytest.mark.full
def test_training_lowers_the_loss(tiny_network, rows, tmp_path):
    stage = stage_of(tiny_network, rows, tmp_path, tokens=64 * 4 * 40)
    run_stage(stage)

    values = [float(line.split(",")[4]) for line in (tmp_path / "curves" / "small.csv").read_text().splitlines()[1:]]
    assert values[-1] < values[0] - 1.0


def test_batches_have_each_row_once_and_rows_of_similar_length_share_a_batch(rows):
    plan = plan_batches(rows, 256, 1)
    members = [index for batch in plan.row_indices for index in batch]

    assert len(set(members)) == len(members) >= 50
    assert all(
        rows.row_length(index) <= length
        for length, batch in zip(plan.padded_lengths, plan.row_indices, strict=True)
        for index in batch
    )


def test_the_schedule_warms_up_and_ends_at_zero():
    schedule = LearningRateSchedule(warmup_fraction=0.1, decay_fraction=0.5)

    assert schedule.lr_factor(0.05) == pytest.approx(0.5)
    assert 1.0 == schedule.lr_factor(0.3)
    assert 0.0 == schedule.lr_factor(1.0)


@pytest.mark.full
def test_every_student_has_gradients_and_the_target_has_none(tiny_network, tiny_shape, rows, tmp_path):
    tiny_network.requires_grad_(False)
    draft, eagle = TrainableLlama(tiny_shape), Eagle3(tiny_shape, torch.arange(0, 512, 2))
    block, medusa, first_eagle = MtpBlock(tiny_shape), Medusa(64), Eagle1(tiny_shape)
    losses = {
        "draft": draft_loss(draft),
        "eagle3": eagle3_loss(eagle, (2, 3, 4)),
        "mtp": mtp_loss(block),
        "medusa": medusa_loss(medusa),
        "eagle": eagle1_loss(first_eagle),
    }
    together = torch.nn.ModuleList([draft, eagle, block, medusa, first_eagle])

    values = joint_student_loss(tiny_network, losses)(rows.batch([0, 1, 2, 3], 64, 5), 0)
    values["loss"].backward()

    assert losses.keys() < values.keys()
    assert all(bool(torch.isfinite(value)) for value in values.values())
    assert all(any(p.grad is not None and p.grad.abs().sum() > 0 for p in student.parameters()) for student in together)
    assert all(parameter.grad is None for parameter in tiny_network.parameters())


def test_the_eagle1_loss_is_minimal_for_the_next_states_of_the_target(tiny_network, tiny_shape, rows):
    class PerfectEagle(Eagle1):
        """Returns the target's next state."""

        def unroll(self, hidden, embedded, count):
            for _ in range(count):
                yield HeadOutput(hidden.roll(-1, dims=1), hidden.roll(-1, dims=1))

    with torch.no_grad():
        tiny_network.model.norm.weight.fill_(0.1)  # otherwise the logits have no entropy, and the token loss is 0
        batch = run_target(tiny_network, rows.batch([0, 1, 2, 3], 64, 5), 0)
        least = eagle1_loss(PerfectEagle(tiny_shape))(batch)
        logits = batch.target_logits(torch.arange(len(batch.supervised_rows)))
        token_loss = 0.1 * torch.distributions.Categorical(logits=logits).entropy().mean() * (1 + 0.8 + 0.64)

        assert least == pytest.approx(float(token_loss), rel=0.05)
        assert eagle1_loss(Eagle1(tiny_shape))(batch) > least + 0.5
