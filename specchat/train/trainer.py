"""The loop that all stages share: batches in, weights moved, a checkpoint now and then, resume at any moment.

A stage says what a loss is; the loop knows nothing about targets, drafts or heads. With a budget in tokens the
result is the same with and without an interruption; with one in minutes the clock decides. Of several processes
(`ranks.py`) each takes its own batches, the first one's clock decides, and the first alone writes.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from specchat.train.distributed import SINGLE_PROCESS, DistributedContext
from specchat.train.optimizers import LearningRateSchedule, MuonAdamW
from specchat.train.training_batches import Batch, BatchPlan, PackedRows

PADDING_ID = 5

Loss = Callable[[Batch, int], dict[str, Tensor]]


@dataclass(frozen=True)
class TrainingBudget:
    """When a stage is over: after so many tokens, or after so many minutes of training."""

    tokens: int | None = None
    minutes: float | None = None

    def fraction_done(self, tokens: int, seconds: float) -> float:
        if self.tokens is not None:
            return tokens / self.tokens
        if self.minutes is not None:
            return seconds / 60.0 / self.minutes
        return 0.0


@dataclass
class StageProgress:
    """How far a stage has come; saved with every checkpoint."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    is_finished: bool = False


@dataclass
class Stage:
    """One stage of training: what moves, on which rows, for how long."""

    name: str
    folder: Path
    student: nn.Module
    loss: Loss
    packed_rows: PackedRows
    batch_plan: BatchPlan
    budget: TrainingBudget
    schedule: LearningRateSchedule = field(default_factory=LearningRateSchedule)
    uses_slow_lr: Callable[[str], bool] = lambda _name: False
    save_every_seconds: float = 120.0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    distributed: DistributedContext = SINGLE_PROCESS

    @property
    def checkpoint(self) -> Path:
        return self.folder / f"{self.name}.pt"


def run_stage(stage: Stage, stop_after_steps: int | None = None) -> StageProgress:
    """Train until the effort is spent, from the last checkpoint if there is one.

    Processes that train together must have joined each other.
    """
    ranks = stage.distributed
    optimiser = MuonAdamW(stage.student, stage.schedule, stage.uses_slow_lr)
    position = load_checkpoint(stage, optimiser)
    ranks.check_same_value(position.step, stage.folder)
    ranks.broadcast_weights(stage.student)
    if position.is_finished:
        return position
    stage.folder.mkdir(parents=True, exist_ok=True)
    saved_at = begun = time.monotonic()
    before, first_step, smooth = position.seconds, position.step, None
    with progress_bar(is_shown=ranks.is_main_process) as bar:
        task = bar.add_task(stage.name, total=1.0, loss="")
        while True:
            progress = stage.budget.fraction_done(position.tokens, position.seconds)
            has_no_effort = stage.budget.fraction_done(1, 60.0) == 0.0
            if progress >= 1.0 or (has_no_effort and position.step * ranks.world_size >= len(stage.batch_plan)):
                break
            place = ranks.batch_index(position.step)
            batch = next_batch(stage, place)
            parts = stage.loss(batch, place)
            parts["loss"].backward()
            ranks.average_gradients(optimiser.parameters)
            norm = optimiser.step(progress)
            position.step += 1
            position.tokens += ranks.all_reduce_sum(batch.token_count)
            position.seconds = ranks.broadcast_value(before + time.monotonic() - begun)
            values = ranks.all_reduce_means({name: float(value.detach()) for name, value in parts.items()})
            smooth = values["loss"] if smooth is None else 0.95 * smooth + 0.05 * values["loss"]
            append_loss_curve(stage, position, values, norm)
            bar.update(task, completed=progress, loss=f"{smooth:.3f}")
            if time.monotonic() - saved_at > stage.save_every_seconds:
                save_checkpoint(stage, optimiser, position)
                saved_at = time.monotonic()
            if stop_after_steps is not None and position.step - first_step >= stop_after_steps:
                save_checkpoint(stage, optimiser, position)
                return position
    position.is_finished = True
    save_checkpoint(stage, optimiser, position)
    return position


def next_batch(stage: Stage, batch_index: int) -> Batch:
    index = batch_index % len(stage.batch_plan)
    batch = stage.packed_rows.batch(
        stage.batch_plan.row_indices[index], stage.batch_plan.padded_lengths[index], PADDING_ID
    )
    return Batch(batch.tokens.to(stage.device), batch.weights.to(stage.device))


def save_checkpoint(stage: Stage, optimiser: MuonAdamW, position: StageProgress) -> None:
    """Write a checkpoint beside the old one, then swap: a kill in between loses nothing."""
    if not stage.distributed.is_main_process:
        return
    partial = stage.checkpoint.with_suffix(".part")
    content = {
        "student": stage.student.state_dict(),
        "optimiser": optimiser.state_dicts(),
        "position": vars(position).copy(),
    }
    torch.save(content, partial)
    partial.replace(stage.checkpoint)


def load_checkpoint(stage: Stage, optimiser: MuonAdamW) -> StageProgress:
    if not stage.checkpoint.exists():
        return StageProgress()
    content = torch.load(stage.checkpoint, map_location=stage.device, weights_only=True)
    stage.student.load_state_dict(content["student"])
    optimiser.load_state_dicts(content["optimiser"])
    position = StageProgress(**content["position"])
    truncate_loss_curve(stage, position.step)
    return position


def truncate_loss_curve(stage: Stage, last_step: int) -> None:
    """Forget the lines of steps that are done again."""
    path = stage.folder / "curves" / f"{stage.name}.csv"
    if path.exists() and stage.distributed.is_main_process:
        head, *lines = path.read_text().splitlines(keepends=True)
        path.write_text(head + "".join(line for line in lines if int(line.split(",")[0]) <= last_step))


def append_loss_curve(stage: Stage, position: StageProgress, values: dict[str, float], gradient_norm: float) -> None:
    if not stage.distributed.is_main_process:
        return
    path = stage.folder / "curves" / f"{stage.name}.csv"
    is_new = not path.exists()
    path.parent.mkdir(exist_ok=True)
    with path.open("a", newline="") as out:
        writer = csv.writer(out)
        if is_new:
            writer.writerow(["step", "tokens", "seconds", "gradient", *values])
        numbers = [f"{value:.4f}" for value in values.values()]
        writer.writerow([position.step, position.tokens, f"{position.seconds:.1f}", f"{gradient_norm:.3f}", *numbers])


def progress_bar(*, is_shown: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>5.1f} %  loss {task.fields[loss]}"),
        TimeRemainingColumn(),
        refresh_per_second=1,
        disable=not is_shown,
    )
