"""The training loop of a stage: batches, optimizer steps, checkpoints, and resuming at any step.

A stage defines the loss; the loop knows no targets, drafts or heads. With a budget in tokens, the result does not
depend on interruptions. With several processes (`distributed.py`), each takes its own batches, and rank 0 keeps the
time and writes the files.
"""

import csv
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from specchat.terminal import raw_stream
from specchat_train.distributed import SINGLE_PROCESS, DistributedContext
from specchat_train.optimizers import LearningRateSchedule, MuonAdamW
from specchat_train.training_batches import Batch, BatchPlan, PackedRows

PADDING_ID = 5

Loss = Callable[[Batch, int], dict[str, Tensor]]


@dataclass(frozen=True)
class TrainingBudget:
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
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    is_finished: bool = False


@dataclass
class Stage:
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
    """Train until the budget is spent, from the last checkpoint if there is one.

    With several processes, call it inside `distributed.process_group`.
    """
    distributed = stage.distributed
    optimizer = MuonAdamW(stage.student, stage.schedule, stage.uses_slow_lr)
    progress = load_checkpoint(stage, optimizer)
    distributed.check_same_value(progress.step, stage.folder)
    distributed.broadcast_weights(stage.student)
    if progress.is_finished:
        return progress
    stage.folder.mkdir(parents=True, exist_ok=True)
    saved_at = started_at = time.monotonic()
    previous_seconds, first_step, mean_loss = progress.seconds, progress.step, None
    with progress_bar(is_shown=distributed.is_main_process) as bar:
        task = bar.add_task(stage.name, total=1.0, loss="")
        while True:
            fraction = stage.budget.fraction_done(progress.tokens, progress.seconds)
            has_no_budget = stage.budget.fraction_done(1, 60.0) == 0.0
            if fraction >= 1.0 or (has_no_budget and progress.step * distributed.world_size >= len(stage.batch_plan)):
                break
            batch_index = distributed.batch_index(progress.step)
            batch = next_batch(stage, batch_index)
            losses = stage.loss(batch, batch_index)
            losses["loss"].backward()
            distributed.average_gradients(optimizer.parameters)
            gradient_norm = optimizer.step(fraction)
            progress.step += 1
            progress.tokens += distributed.all_reduce_sum(batch.token_count)
            progress.seconds = distributed.broadcast_value(previous_seconds + time.monotonic() - started_at)
            values = distributed.all_reduce_means({name: float(value.detach()) for name, value in losses.items()})
            mean_loss = values["loss"] if mean_loss is None else 0.95 * mean_loss + 0.05 * values["loss"]
            append_loss_curve(stage, progress, values, gradient_norm)
            bar.update(task, completed=fraction, loss=f"{mean_loss:.3f}")
            if time.monotonic() - saved_at > stage.save_every_seconds:
                save_checkpoint(stage, optimizer, progress)
                saved_at = time.monotonic()
            if stop_after_steps is not None and progress.step - first_step >= stop_after_steps:
                save_checkpoint(stage, optimizer, progress)
                return progress
    progress.is_finished = True
    save_checkpoint(stage, optimizer, progress)
    return progress


def next_batch(stage: Stage, batch_index: int) -> Batch:
    index = batch_index % len(stage.batch_plan)
    batch = stage.packed_rows.batch(
        stage.batch_plan.row_indices[index], stage.batch_plan.padded_lengths[index], PADDING_ID
    )
    return Batch(batch.tokens.to(stage.device), batch.weights.to(stage.device))


def save_checkpoint(stage: Stage, optimizer: MuonAdamW, progress: StageProgress) -> None:
    """Write a checkpoint atomically."""
    if not stage.distributed.is_main_process:
        return
    partial = stage.checkpoint.with_suffix(".part")
    content = {
        "student": stage.student.state_dict(),
        "optimizer": optimizer.state_dicts(),
        "progress": vars(progress).copy(),
    }
    torch.save(content, partial)
    partial.replace(stage.checkpoint)


def load_checkpoint(stage: Stage, optimizer: MuonAdamW) -> StageProgress:
    if not stage.checkpoint.exists():
        return StageProgress()
    content = torch.load(stage.checkpoint, map_location=stage.device, weights_only=True)
    stage.student.load_state_dict(content["student"])
    optimizer.load_state_dicts(content["optimizer"])
    progress = StageProgress(**content["progress"])
    truncate_loss_curve(stage, progress.step)
    return progress


def truncate_loss_curve(stage: Stage, last_step: int) -> None:
    """Remove the lines of steps that are repeated after a resume."""
    path = stage.folder / "curves" / f"{stage.name}.csv"
    if path.exists() and stage.distributed.is_main_process:
        header, *lines = path.read_text().splitlines(keepends=True)
        path.write_text(header + "".join(line for line in lines if int(line.split(",")[0]) <= last_step))


def append_loss_curve(stage: Stage, progress: StageProgress, values: dict[str, float], gradient_norm: float) -> None:
    if not stage.distributed.is_main_process:
        return
    path = stage.folder / "curves" / f"{stage.name}.csv"
    is_new = not path.exists()
    path.parent.mkdir(exist_ok=True)
    with path.open("a", newline="") as out:
        writer = csv.writer(out)
        if is_new:
            writer.writerow(["step", "tokens", "seconds", "gradient", *values])
        losses = [f"{value:.4f}" for value in values.values()]
        writer.writerow([progress.step, progress.tokens, f"{progress.seconds:.1f}", f"{gradient_norm:.3f}", *losses])


def progress_bar(*, is_shown: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>5.1f} %  loss {task.fields[loss]}"),
        TimeRemainingColumn(),
        console=Console(file=raw_stream(sys.stderr)),
        refresh_per_second=1,
        disable=not is_shown,
    )
