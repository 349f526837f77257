"""Several processes train one network."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from specchat.errors import SpecchatError, UsageError
from specchat.train.distributed import SINGLE_PROCESS, DistributedContext, distributed_context
from specchat.train.optimizers import MuonAdamW
from specchat.train.trainer import PADDING_ID, Stage, TrainingBudget, run_stage
from specchat.train.training_batches import TrainingRow, load_rows, plan_batches, save_rows
from tests.train.forked import together

CPU = torch.device("cpu")
VOCABULARY = 64
BATCH = 256  # tokens: four rows of 64
TOLD = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "here"}
SOME = TrainingBudget(tokens=8 * BATCH)


@pytest.fixture
def rows(tmp_path):
    dice = random.Random(0)
    made = [[dice.randrange(VOCABULARY) for _ in range(dice.randint(40, 60))] for _ in range(64)]
    save_rows((TrainingRow(tokens, [1.0] * len(tokens)) for tokens in made), tmp_path / "rows.npz")
    return load_rows(tmp_path / "rows.npz")


class Bigrams(torch.nn.Module):
    """The least that can be taught: which token follows which."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(VOCABULARY, 8)
        self.middle = torch.nn.Linear(8, 8)
        self.lm_head = torch.nn.Linear(8, VOCABULARY)

    def loss(self, batch, _place):
        logits = self.lm_head(self.middle(self.embed_tokens(batch.tokens[:, :-1])))
        return {"loss": F.cross_entropy(logits.flatten(0, 1), batch.tokens[:, 1:].flatten())}


def stage_of(rows, folder, ranks=SINGLE_PROCESS, effort=SOME):
    """Four steps of two processes. Each begins with other weights."""
    torch.manual_seed(7 + ranks.rank)
    network = Bigrams()
    return Stage("small", folder, network, network.loss, rows, plan_batches(rows, BATCH, 1), effort, distributed=ranks)


def weights(network):
    return torch.nn.utils.parameters_to_vector(network.parameters()).tolist()


def train(stage, **how):
    """The weights and the position that a stage comes to."""
    with stage.ranks.joined(CPU):
        position = run_stage(stage, **how)
    return weights(stage.student), vars(position)


def test_two_processes_come_to_the_same_weights_though_they_began_with_others(rows, tmp_path):
    one, other = together(lambda ranks: train(stage_of(rows, tmp_path, ranks)))

    assert one == other
    assert 4 == one[1]["step"]
    assert 64 * 4 * 8 == one[1]["tokens"]


def test_a_step_of_two_has_the_gradient_of_one_over_the_mean_of_both_losses(rows, tmp_path, monkeypatch):
    alone, gradients = stage_of(rows, tmp_path / "alone", effort=TrainingBudget(tokens=1)), []
    pair = [
        alone.packed_rows.batch(alone.batch_plan.row_indices[place], alone.batch_plan.padded_lengths[place], PADDING_ID)
        for place in (0, 1)
    ]

    def of_both(_batch, step):
        return {"loss": torch.stack([alone.student.loss(batch, step)["loss"] for batch in pair]).mean()}

    def note(optimiser, _progress):
        gradients.extend(torch.nn.utils.parameters_to_vector([each.grad for each in optimiser.parameters]).tolist())
        return 0.0

    monkeypatch.setattr(MuonAdamW, "step", note)
    run_stage(replace(alone, loss=of_both))

    def of_ranks(ranks):
        gradients.clear()
        train(stage_of(rows, tmp_path / "both", ranks, TrainingBudget(tokens=1)))
        return gradients

    expected = list(gradients)
    assert [pytest.approx(expected, rel=1e-4, abs=1e-8)] * 2 == together(of_ranks)
    assert max(map(abs, expected)) > 1e-3


def test_the_gradient_is_the_mean_and_one_that_nobody_has_stays_none():
    def averaged(ranks):
        network = torch.nn.ParameterList(torch.zeros(2) for _ in range(3))
        network[0].grad = torch.tensor([1.0, 2.0]) if ranks.is_first else torch.tensor([3.0, 6.0])
        network[1].grad = None if ranks.is_first else torch.tensor([4.0, 8.0])
        with ranks.joined(CPU):
            ranks.average_gradients(list(network))
        return [None if weight.grad is None else weight.grad.tolist() for weight in network]

    assert [[[2.0, 4.0], [2.0, 4.0], None]] * 2 == together(averaged)


@pytest.mark.full
def test_the_first_process_alone_writes(rows, tmp_path):
    def apart(ranks):
        """Each in a folder of its own, so that it can be seen who wrote what."""
        return train(stage_of(rows, tmp_path / str(ranks.number), ranks))[1]["step"]

    assert [4, 4] == together(apart)
    assert {"small.pt", "curves"} == {path.name for path in (tmp_path / "0").iterdir()}
    assert [] == list((tmp_path / "1").iterdir())


@pytest.mark.full
def test_the_clock_of_the_first_ends_it_for_both(rows, tmp_path, monkeypatch):
    def by_clock(ranks):
        ticks = iter(range(10_000))
        pace = 2.0 if ranks.is_first else 0.0  # seconds that this process thinks have gone by between two looks
        monkeypatch.setattr("specchat.train.trainer.time.monotonic", lambda: pace * next(ticks))
        return train(stage_of(rows, tmp_path, ranks, TrainingBudget(minutes=0.2)))[1]

    one, other = together(by_clock)

    assert one == other
    assert 1 < one["step"] < 8


@pytest.mark.full
def test_training_of_two_that_was_interrupted_goes_on_as_if_it_had_not_been(rows, tmp_path):
    whole, _ = together(lambda ranks: train(stage_of(rows, tmp_path / "whole", ranks)))
    together(lambda ranks: train(stage_of(rows, tmp_path / "broken", ranks), stop_after_steps=2))

    again, _ = together(lambda ranks: train(stage_of(rows, tmp_path / "broken", ranks)))

    assert again[0] == whole[0]
    steps = [line.split(",")[0] for line in (tmp_path / "broken" / "curves" / "small.csv").read_text().splitlines()]
    assert ["step", "1", "2", "3", "4"] == steps


def test_processes_that_see_other_folders_are_told(rows, tmp_path):
    train(stage_of(rows, tmp_path / "1"), stop_after_steps=2)

    _, other = together(lambda ranks: train(stage_of(rows, tmp_path / str(ranks.rank), ranks)))

    assert "must be on a disk that they share" in str(other)


def test_a_process_that_is_left_says_so_in_one_line():
    def leave(ranks):
        with ranks.joined(CPU):
            ranks.wait()
            if ranks.is_first:
                raise SpecchatError("the disk is full")
            ranks.wait()

    first, left = together(leave)

    assert "the disk is full" == str(first)
    assert "another process of this training ended" in str(left)


def test_one_process_is_alone_and_gets_back_what_it_gave():
    with SINGLE_PROCESS.process_group(CPU):
        SINGLE_PROCESS.barrier()

    assert ("cpu", 5, 0.1) == (
        SINGLE_PROCESS.device("cpu"),
        SINGLE_PROCESS.all_reduce_sum(5),
        SINGLE_PROCESS.broadcast_value(0.1),
    )
    assert {"loss": 0.1} == SINGLE_PROCESS.all_reduce_means({"loss": 0.1})
    assert [3, 4] == SINGLE_PROCESS.shard([3, 4])
    assert 7 == SINGLE_PROCESS.batch_index(7)


def test_shares_are_apart_and_together_everything():
    shares = [DistributedContext(number, 3).shard(range(10)) for number in range(3)]

    assert sorted(range(10)) == sorted(item for share in shares for item in share)


@pytest.mark.parametrize(
    ("said", "ranks"),
    [
        (TOLD, DistributedContext(5, 8, 1)),
        (TOLD | {"LOCAL_RANK": ""}, SINGLE_PROCESS),
        (TOLD | {"RANK": "many"}, SINGLE_PROCESS),
        ({}, SINGLE_PROCESS),
    ],
    ids=["torchrun", "half", "nonsense", "nothing"],
)
def test_what_torchrun_says_is_heard(said, ranks, monkeypatch):
    for name in TOLD:
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)

    assert ranks == distributed_context()


def test_every_process_takes_a_card_of_its_own(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)

    assert "cuda:1" == DistributedContext(3, 4, 1).device("auto")
    assert "cpu" == DistributedContext(3, 4, 1).device("cpu")
    with pytest.raises(UsageError, match="more processes than the 2 cards"):
        DistributedContext(2, 4, 2).device("auto")
    assert [1] == chosen
