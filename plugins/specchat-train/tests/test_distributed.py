"""Several processes train one network."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from forked import run_in_two_processes

from recipes.row_files import TrainingRow, load_rows, save_rows
from specchat.errors import SpecchatError, UsageError
from specchat_train.distributed import SINGLE_PROCESS, DistributedContext, distributed_context
from specchat_train.optimizers import MuonAdamW
from specchat_train.trainer import PADDING_ID, Stage, TrainingBudget, run_stage
from specchat_train.training_batches import plan_batches

CPU = torch.device("cpu")
COLLECTIVES, THREADS = "torch.distributed.nn.functional", Path("/proc/self/task")
VOCABULARY = 64
BATCH = 256  # tokens: four rows of 64
TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "here"}
BUDGET = TrainingBudget(tokens=8 * BATCH)


@pytest.fixture
def rows(tmp_path):
    rng = random.Random(0)
    examples = [[rng.randrange(VOCABULARY) for _ in range(rng.randint(40, 60))] for _ in range(64)]
    save_rows((TrainingRow(tokens, [1.0] * len(tokens)) for tokens in examples), tmp_path / "rows.npz")
    return load_rows(tmp_path / "rows.npz")


class Bigrams(torch.nn.Module):
    """A minimal network: which token follows which."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(VOCABULARY, 8)
        self.middle = torch.nn.Linear(8, 8)
        self.lm_head = torch.nn.Linear(8, VOCABULARY)

    def loss(self, batch, _step):
        logits = self.lm_head(self.middle(self.embed_tokens(batch.tokens[:, :-1])))
        return {"loss": F.cross_entropy(logits.flatten(0, 1), batch.tokens[:, 1:].flatten())}


def stage_of(rows, folder, ranks=SINGLE_PROCESS, budget=BUDGET):
    """Four steps of two processes, which start with different weights."""
    torch.manual_seed(7 + ranks.rank)
    network = Bigrams()
    return Stage("small", folder, network, network.loss, rows, plan_batches(rows, BATCH, 1), budget, distributed=ranks)


def weights(network):
    return torch.nn.utils.parameters_to_vector(network.parameters()).tolist()


def train(stage, **options):
    """The final weights and progress of a stage."""
    with stage.distributed.process_group(CPU):
        progress = run_stage(stage, **options)
    return weights(stage.student), vars(progress)


def test_two_processes_with_different_initial_weights_end_with_the_same_weights(rows, tmp_path):
    one, other = run_in_two_processes(lambda ranks: train(stage_of(rows, tmp_path, ranks)))

    assert one == other
    assert 4 == one[1]["step"]
    assert 64 * 4 * 8 == one[1]["tokens"]


def test_a_step_of_two_processes_has_the_gradient_of_the_mean_of_both_losses(rows, tmp_path, monkeypatch):
    alone, gradients = stage_of(rows, tmp_path / "alone", budget=TrainingBudget(tokens=1)), []
    pair = [
        alone.packed_rows.batch(alone.batch_plan.row_indices[index], alone.batch_plan.padded_lengths[index], PADDING_ID)
        for index in (0, 1)
    ]

    def mean_loss(_batch, step):
        return {"loss": torch.stack([alone.student.loss(batch, step)["loss"] for batch in pair]).mean()}

    def record(optimizer, _progress):
        gradients.extend(torch.nn.utils.parameters_to_vector([each.grad for each in optimizer.parameters]).tolist())
        return 0.0

    monkeypatch.setattr(MuonAdamW, "step", record)
    run_stage(replace(alone, loss=mean_loss))

    def gradients_of(ranks):
        gradients.clear()
        train(stage_of(rows, tmp_path / "both", ranks, TrainingBudget(tokens=1)))
        return gradients

    expected = list(gradients)
    assert [pytest.approx(expected, rel=1e-4, abs=1e-8)] * 2 == run_in_two_processes(gradients_of)
    assert max(map(abs, expected)) > 1e-3


def test_gradients_are_averaged_and_one_that_all_processes_lack_stays_none():
    def averaged(ranks):
        network = torch.nn.ParameterList(torch.zeros(2) for _ in range(3))
        network[0].grad = torch.tensor([1.0, 2.0]) if ranks.is_main_process else torch.tensor([3.0, 6.0])
        network[1].grad = None if ranks.is_main_process else torch.tensor([4.0, 8.0])
        with ranks.process_group(CPU):
            ranks.average_gradients(list(network))
        return [None if weight.grad is None else weight.grad.tolist() for weight in network]

    assert [[[2.0, 4.0], [2.0, 4.0], None]] * 2 == run_in_two_processes(averaged)


@pytest.mark.full
def test_only_rank_0_writes_files(rows, tmp_path):
    def apart(ranks):
        """Each process has its own folder, to see which one writes."""
        return train(stage_of(rows, tmp_path / str(ranks.rank), ranks))[1]["step"]

    assert [4, 4] == run_in_two_processes(apart)
    assert {"small.pt", "curves"} == {path.name for path in (tmp_path / "0").iterdir()}
    assert [] == list((tmp_path / "1").iterdir())


@pytest.mark.full
def test_the_clock_of_rank_0_ends_the_training_of_both(rows, tmp_path, monkeypatch):
    def by_clock(ranks):
        ticks = iter(range(10_000))
        pace = 2.0 if ranks.is_main_process else 0.0  # seconds between two calls of the clock
        monkeypatch.setattr("specchat_train.trainer.time.monotonic", lambda: pace * next(ticks))
        return train(stage_of(rows, tmp_path, ranks, TrainingBudget(minutes=0.2)))[1]

    one, other = run_in_two_processes(by_clock)

    assert one == other
    assert 1 < one["step"] < 8


@pytest.mark.full
def test_interrupted_training_of_two_processes_resumes_with_the_same_result(rows, tmp_path):
    whole, _ = run_in_two_processes(lambda ranks: train(stage_of(rows, tmp_path / "whole", ranks)))
    run_in_two_processes(lambda ranks: train(stage_of(rows, tmp_path / "broken", ranks), stop_after_steps=2))

    again, _ = run_in_two_processes(lambda ranks: train(stage_of(rows, tmp_path / "broken", ranks)))

    assert again[0] == whole[0]
    steps = [line.split(",")[0] for line in (tmp_path / "broken" / "curves" / "small.csv").read_text().splitlines()]
    assert ["step", "1", "2", "3", "4"] == steps


def test_processes_with_different_folders_are_an_error(rows, tmp_path):
    train(stage_of(rows, tmp_path / "1"), stop_after_steps=2)

    _, other = run_in_two_processes(lambda ranks: train(stage_of(rows, tmp_path / str(ranks.rank), ranks)))

    assert "--out must be on a shared disk" in str(other)


def test_a_failed_process_is_a_one_line_error_in_the_others():
    def fail_in_first(ranks):
        with ranks.process_group(CPU):
            ranks.barrier()
            if ranks.is_main_process:
                raise SpecchatError("the disk is full")
            ranks.barrier()

    first, second = run_in_two_processes(fail_in_first)

    assert "the disk is full" == str(first)
    assert "another training process ended" in str(second)


@pytest.mark.skipif(not THREADS.is_dir(), reason="this system does not list the threads of a process")
def test_the_threads_of_a_process_group_end_with_it():
    """Threads that still run when the interpreter ends may crash it."""

    def threads_left(ranks):
        sys.modules.pop(COLLECTIVES, None)
        before = len(list(THREADS.iterdir()))
        with ranks.process_group(CPU):
            ranks.barrier()
            import_module(COLLECTIVES)  # as torch does when it first needs its compiler
        return len(list(THREADS.iterdir())) - before

    assert [0, 0] == run_in_two_processes(threads_left)


def test_a_single_process_gets_its_own_values():
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


def test_shards_are_disjoint_and_complete():
    shards = [DistributedContext(rank, 3).shard(range(10)) for rank in range(3)]

    assert sorted(range(10)) == sorted(item for shard in shards for item in shard)


@pytest.mark.parametrize(
    ("environment", "ranks"),
    [
        (TORCHRUN, DistributedContext(5, 8, 1)),
        (TORCHRUN | {"LOCAL_RANK": ""}, SINGLE_PROCESS),
        (TORCHRUN | {"RANK": "many"}, SINGLE_PROCESS),
        ({}, SINGLE_PROCESS),
    ],
    ids=["torchrun", "half", "nonsense", "nothing"],
)
def test_the_environment_of_torchrun_is_read(environment, ranks, monkeypatch):
    for name in TORCHRUN:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert ranks == distributed_context()


def test_every_process_has_its_own_gpu(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)

    assert "cuda:1" == DistributedContext(3, 4, 1).device("auto")
    assert "cpu" == DistributedContext(3, 4, 1).device("cpu")
    with pytest.raises(UsageError, match="more processes than the 2 GPUs"):
        DistributedContext(2, 4, 2).device("auto")
    assert ["cuda:1"] == chosen
