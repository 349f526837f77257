"""Training can stop at any moment and goes on as if it had not."""

import random

import pytest
import torch

from specchat.train.distillation_losses import (
    draft_loss,
    eagle1_loss,
    eagle3_loss,
    joint_student_loss,
    medusa_loss,
    mtp_loss,
    run_target,
)
from specchat.train.optimizers import LearningRateSchedule
from specchat.train.target_loss import target_loss
from specchat.train.trainable_heads import Eagle1, Eagle3, HeadOutput, Medusa, MtpBlock
from specchat.train.trainable_llama import TrainableLlama
from specchat.train.trainer import Stage, TrainingBudget, run_stage
from specchat.train.training_batches import TrainingRow, load_rows, plan_batches, save_rows


@pytest.fixture
def rows(tmp_path):
    dice = random.Random(0)
    made = [TrainingRow([dice.randrange(512) for _ in range(dice.randint(10, 60))], []) for _ in range(60)]
    save_rows(
        (TrainingRow(row.tokens, [0.0] * 4 + [1.0] * (len(row.tokens) - 4), dice.random()) for row in made),
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


def fresh(shape):
    torch.manual_seed(7)
    return TrainableLlama(shape)


def test_an_interrupted_stage_ends_with_the_weights_of_an_uninterrupted_one(tiny_shape, rows, tmp_path):
    whole, broken = fresh(tiny_shape), fresh(tiny_shape)
    run_stage(stage_of(whole, rows, tmp_path / "whole"))

    run_stage(stage_of(broken, rows, tmp_path / "broken"), stop_after_steps=3)
    again = fresh(tiny_shape)
    position = run_stage(stage_of(again, rows, tmp_path / "broken"))

    assert position.step == 8
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


def test_batches_hold_each_row_once_and_short_ones_share_short_batches(rows):
    plan = plan_batches(rows, 256, 1)
    members = [index for batch in plan.row_indices for index in batch]

    assert len(set(members)) == len(members) >= 50
    assert all(
        rows.length(index) <= length
        for length, batch in zip(plan.padded_lengths, plan.row_indices, strict=True)
        for index in batch
    )


def test_the_schedule_warms_up_and_ends_at_zero():
    pace = LearningRateSchedule(warmup_fraction=0.1, decay_fraction=0.5)

    assert pace.lr_factor(0.05) == pytest.approx(0.5)
    assert 1.0 == pace.lr_factor(0.3)
    assert 0.0 == pace.lr_factor(1.0)


@pytest.mark.full
def test_every_student_learns_from_the_silent_target(tiny_network, tiny_shape, rows, tmp_path):
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


def test_the_first_eagle_is_praised_for_the_states_that_the_target_comes_to(tiny_network, tiny_shape, rows):
    class Foresight(Eagle1):
        """Knows the target's next state."""

        def runs(self, hidden, embedded, count):
            for _ in range(count):
                yield HeadOutput(hidden.roll(-1, dims=1), hidden.roll(-1, dims=1))

    with torch.no_grad():
        tiny_network.model.norm.weight.fill_(0.1)  # else its scores leave no doubt, and tokens cost nothing
        lesson = run_target(tiny_network, rows.batch([0, 1, 2, 3], 64, 5), 0)
        least = eagle1_loss(Foresight(tiny_shape))(lesson)
        tokens_alone = (
            0.1 * torch.distributions.Categorical(logits=lesson.target_logits).entropy().mean() * (1 + 0.8 + 0.64)
        )

        assert least == pytest.approx(float(tokens_alone), rel=0.05)
        assert eagle1_loss(Eagle1(tiny_shape))(lesson) > least + 0.5
