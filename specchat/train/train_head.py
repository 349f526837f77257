"""From questions to an installed head: answers, states, training, trial, and the gate at the end.

What is made on the way stays in OUT/work under the target's fingerprint and is taken up again; OUT itself holds
nothing but a head that is certainly better than what there was. One that is not lies in OUT/refused.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from specchat.errors import ModelError, SpecchatError
from specchat.heads.detect import inspect_head, target_dimensions
from specchat.heads.spec import mismatches
from specchat.train.compare_heads import HeadComparison, TurnAcceptance, compare_acceptance, measure_acceptance
from specchat.train.distillation_batches import TargetMatrices, TrainingData, build_training_data
from specchat.train.distributed import SINGLE_PROCESS, DistributedContext
from specchat.train.draft_models import check_draft_tokens, is_draft_model
from specchat.train.feature_cache import FeatureCache, format_megabytes, with_final_norm
from specchat.train.fingerprint import trained_target_fingerprint
from specchat.train.frozen_target import FrozenTarget
from specchat.train.head_kinds import HeadInitInputs, head_kind, hidden_state_layers_of, load_head_for_training
from specchat.train.loss_plot import plot_head_comparison, plot_loss_curves
from specchat.train.model_card import HeadSummary, finish_config, profile_line, write_model_card
from specchat.train.optimizers import LearningRateSchedule
from specchat.train.target_answers import TargetAnswer, generate_answers
from specchat.train.trainer import Stage, StageProgress, TrainingBudget, run_stage
from specchat.train.training_prompts import PromptSplit, TrainingPrompt, check_enough_prompts

MIN_ANSWER_TOKENS = 4  # tokens; shorter ones teach nothing
SAVE_SECONDS = 15.0
NEW_HEAD_SCHEDULE = LearningRateSchedule(
    muon_lr=0.02, adamw_lr=2e-3, slow_lr=5e-4, warmup_fraction=0.02, decay_fraction=0.7
)
RESUMED_HEAD_SCHEDULE = LearningRateSchedule(
    muon_lr=0.004, adamw_lr=5e-4, slow_lr=2e-4, warmup_fraction=0.05, decay_fraction=0.8
)

PrintLine = Callable[[str], None]


@dataclass(frozen=True)
class HeadTrainingRequest:
    """What is wanted, besides the target and the questions."""

    kind: str
    output_folder: Path
    initial_head: Path | None = None  # the head that goes on; None: a new one
    baseline_head: Path | None = None  # the head that it must beat; None: guesses that copy
    budget: TrainingBudget = TrainingBudget(minutes=4.0)
    max_answer_tokens: int = 120  # tokens of an answer
    batch_tokens: int = 2048
    seed: int = 0
    installs_anyway: bool = False  # install it whatever the trial says
    distributed: DistributedContext = SINGLE_PROCESS


@dataclass(frozen=True)
class _Trained:
    head: nn.Module
    progress: StageProgress
    stage_name: str


@dataclass(frozen=True)
class _TrainedWithData:
    """A head that is not tried yet, what it learned from, and what it is tried on; the folder is for what comes of it."""

    trained: _Trained
    answers: Sequence[TargetAnswer]
    held_out_prompts: Sequence[list[int]]
    folder: Path


def train_and_install_head(
    request: HeadTrainingRequest, target: FrozenTarget, prompts: PromptSplit, print_line: PrintLine
) -> HeadComparison:
    """Train a head and install it in `order.out` if it is better than `order.against`.

    SpecchatError with the verdict for a head that is not; it lies in `order.out`/refused then.
    """
    learned = _train_with_answers(request, target, prompts, print_line)
    trained, trials, fresh = learned.trained, learned.held_out_prompts, learned.folder / "head"
    plot_loss_curves(learned.folder / "curves")
    before = measure_acceptance(target, request.baseline_head, trials, request.max_answer_tokens)
    shutil.rmtree(fresh, ignore_errors=True)
    head_kind(request.kind).export(trained.head, target, fresh)
    after = measure_acceptance(target, fresh, trials, request.max_answer_tokens)
    verdict = compare_acceptance(before, after)
    _write_summary(request, target, learned.answers, trained.progress, fresh, verdict)
    curve = learned.folder / "curves" / f"{trained.stage_name}.png"
    if curve.is_file():  # it took more than a single step
        shutil.copy(curve, fresh / "loss.png")
    plot_head_comparison(
        [_accepted_per_pass(turn) for turn in before], [_accepted_per_pass(turn) for turn in after], fresh / "trial.png"
    )
    _install(request, fresh, verdict, print_line)
    return verdict


def train_head_as_worker(request: HeadTrainingRequest, target: FrozenTarget, prompts: PromptSplit) -> None:
    """What a process does that is not the first of `order.ranks`: its share of answers, states and batches."""
    _train_with_answers(request, target, prompts, lambda _line: None)


def _train_with_answers(
    order: HeadTrainingRequest, target: FrozenTarget, questions: PromptSplit, say: PrintLine
) -> _TrainedWithData:
    """Everything up to a trained head, together with the other processes."""
    taps = hidden_state_layers_of(order.kind, target.shape.layers)
    work = order.output_folder / "work" / target.fingerprint
    check_heads(order, target)
    warn_of_changed_target(order, target, work, say)
    trials = _tokenize_prompts(target, questions.held_out, order.max_answer_tokens, say)
    lessons = [
        prompt
        for prompt in _tokenize_prompts(target, questions.training, order.max_answer_tokens, say)
        if prompt not in trials
    ]
    check_enough_prompts(len(lessons), len(trials), "the different questions that fit the window")
    say(f"{len(lessons)} questions to learn from, {len(trials)} held out; everything stays in {order.output_folder}")
    with order.distributed.process_group(target.device):
        answers = generate_answers(target, lessons, order.max_answer_tokens, work / "answers.jsonl", order.distributed)
        answers = [answer for answer in answers if len(answer.tokens) - answer.answer_start >= MIN_ANSWER_TOKENS]
        check_enough_prompts(len(answers), len(trials), f"answers of {MIN_ANSWER_TOKENS} tokens and more")
        folder = work / _digest(order.kind, [answer.content_hash for answer in answers])
        cache = FeatureCache(folder / "states", answers, with_final_norm(taps), target.shape.hidden_size)
        say(
            f"hidden states: {format_megabytes(cache.total_bytes)} in {cache.folder}, {format_megabytes(cache.missing_bytes)} to be made"
        )
        cache.fill(target, order.distributed)
        return _TrainedWithData(_train(order, target, cache, folder), answers, trials, folder)


def _tokenize_prompts(
    target: FrozenTarget, questions: Sequence[TrainingPrompt], limit: int, say: PrintLine
) -> list[list[int]]:
    """The questions as tokens, each once; those that leave no room for an answer are left out, and said so."""
    prompts = list({tuple(prompt): prompt for prompt in map(target.prompt_tokens, questions)}.values())
    fitting = [prompt for prompt in prompts if len(prompt) + limit < target.model.context_window]
    if left_out := len(prompts) - len(fitting):
        say(f"{left_out} questions are longer than the window of the target and were left out")
    return fitting


def _train(order: HeadTrainingRequest, target: FrozenTarget, cache: FeatureCache, folder: Path) -> _Trained:
    """A trained head, from its last checkpoint if there is one."""
    torch.manual_seed(order.seed)
    kind, ends = head_kind(order.kind), TargetMatrices(target.embedding_weight, target.lm_head_weight)
    lessons = build_training_data(cache, ends, order.batch_tokens, order.seed)
    ground = HeadInitInputs(target.shape, ends, target.final_norm_weight, lessons, target.tokenizer.stop_token_ids)
    if order.initial_head is None:
        head = kind.initialize(ground)
    else:
        head = load_head_for_training(order.kind, order.initial_head, target.shape)
        kind.prepare_resumed(head, ground)
    head.to(target.device)
    stage = _stage(order, head, lessons, folder)
    stage.loss, stage.device = lessons.step_loss(kind.loss(head, target.shape)), target.device
    with redirect_stdout(sys.stderr):
        position = run_stage(stage)
    return _Trained(head.eval(), position, stage.name)


def _stage(order: HeadTrainingRequest, head: nn.Module, lessons: TrainingData, folder: Path) -> Stage:
    """Its name holds all that decides the result, so that another wish is not taken for the same one."""
    began = str(order.initial_head.resolve()) if order.initial_head else ""
    together = [] if order.distributed.is_single_process else [order.distributed.world_size]
    wish = _digest(began, order.budget.tokens, order.budget.minutes, order.batch_tokens, *together)[:6]
    return Stage(
        name=f"{order.kind}-{wish}-{order.seed}",
        folder=folder,
        student=head,
        loss=lambda _batch, _step: {},
        packed_rows=lessons.packed_rows,
        batch_plan=lessons.batch_plan,
        budget=order.budget,
        schedule=NEW_HEAD_SCHEDULE if order.initial_head is None else RESUMED_HEAD_SCHEDULE,
        save_every_seconds=SAVE_SECONDS,
        distributed=order.distributed,
    )


def check_heads(request: HeadTrainingRequest, target: FrozenTarget) -> None:
    """ModelError for a head that does not fit the target or cannot go on, before anything long is done."""
    facts = target_dimensions(target.folder)
    for head in {head for head in (request.initial_head, request.baseline_head) if head is not None}:
        if is_draft_model(head):
            check_draft_tokens(head, target)
        elif reasons := mismatches(inspect_head(head), facts):
            raise ModelError(f"{head}: this head does not fit {target.source}: {'; '.join(reasons)}")
    if request.initial_head is not None:
        load_head_for_training(request.kind, request.initial_head, target.shape)


def warn_of_changed_target(
    request: HeadTrainingRequest, target: FrozenTarget, work: Path, print_line: PrintLine
) -> None:
    """Say so when the target is not the one of the last run, or of the head that goes on."""
    others = [path for path in work.parent.glob("*") if path.is_dir() and path != work]
    if others and not work.is_dir():
        print_line(f"{target.source} has changed since {others[0].name}: its answers and states are made anew")
    for head in {head for head in (request.initial_head, request.baseline_head) if head is not None}:
        if (known := trained_target_fingerprint(head)) and known != target.fingerprint:
            print_line(f"{head}: the target has changed since this was trained ({known}, now {target.fingerprint})")


def _write_summary(
    order: HeadTrainingRequest,
    target: FrozenTarget,
    answers: Sequence[TargetAnswer],
    position: StageProgress,
    folder: Path,
    verdict: HeadComparison,
) -> None:
    made = HeadSummary(
        kind=order.kind,
        target=target.source,
        fingerprint=target.fingerprint,
        initial_head=order.initial_head.name if order.initial_head else "",
        baseline=f"the head `{order.baseline_head.name}`" if order.baseline_head else "guesses that copy from the text",
        training_prompts=len(answers),
        answer_tokens=sum(len(answer.tokens) - answer.answer_start for answer in answers),
        trained_tokens=position.tokens,
        minutes=position.seconds / 60.0,
        seed=order.seed,
        comparison=verdict,
    )
    finish_config(folder, target.config, made)
    write_model_card(folder, made)


def _install(order: HeadTrainingRequest, fresh: Path, verdict: HeadComparison, say: PrintLine) -> None:
    """The gate. SpecchatError for a head that does not pass it."""
    say(str(verdict))
    if not verdict.is_better and not order.installs_anyway:
        aside = order.output_folder / "refused"
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(fresh, aside)
        raise SpecchatError(
            f"not installed, for it is not certainly better; the head lies in {aside} (--force takes it)"
        )
    shutil.rmtree(order.output_folder / "refused", ignore_errors=True)
    for path in fresh.iterdir():
        shutil.copy(path, order.output_folder / path.name)
    if not verdict.is_better:
        say("installed by force, though it is not certainly better")
    say(f"in a profile, under [models]: {profile_line(order.kind, order.output_folder)}")


def _accepted_per_pass(turn: TurnAcceptance) -> float:
    return turn.accepted_tokens / max(turn.target_passes, 1)


def _digest(*values: object) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:12]
