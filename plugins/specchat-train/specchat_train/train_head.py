"""The training pipeline: answers, hidden states, training, comparison, and installation.

Intermediate results stay in OUT/work under the target's fingerprint and are reused. OUT itself contains only a head
that is better than the baseline with 95 % confidence; otherwise the head is in OUT/rejected.
"""

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

from specchat.drafters.heads.detect import inspect_head, target_dimensions
from specchat.drafters.heads.spec import mismatches
from specchat.errors import ModelError, SpecchatError
from specchat_train.compare_heads import HeadComparison, compare_acceptance, measure_acceptance
from specchat_train.distillation_batches import TargetMatrices, TrainingData, build_training_data
from specchat_train.distributed import SINGLE_PROCESS, DistributedContext
from specchat_train.draft_models import check_draft_tokens, is_draft_model
from specchat_train.feature_cache import FeatureCache, format_megabytes, with_final_norm
from specchat_train.fingerprint import trained_target_fingerprint
from specchat_train.frozen_target import FrozenTarget
from specchat_train.head_kinds import HeadInitInputs, head_kind, hidden_state_layers_of, load_head_for_training
from specchat_train.model_card import HeadSummary, finish_config, profile_line, write_model_card
from specchat_train.optimizers import LearningRateSchedule
from specchat_train.precision import training_dtype
from specchat_train.target_answers import TargetAnswer, generate_answers
from specchat_train.trainer import Stage, StageProgress, TrainingBudget, run_stage
from specchat_train.training_prompts import PromptSplit, TrainingPrompt, check_enough_prompts

MIN_ANSWER_TOKENS = 4  # shorter answers are left out
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
    kind: str
    output_folder: Path
    initial_head: Path | None = None  # the head to train further; None: a new one
    baseline_head: Path | None = None  # the head to beat; None: suffix decoding
    budget: TrainingBudget = TrainingBudget(minutes=4.0)
    max_answer_tokens: int = 120
    batch_tokens: int = 2048
    seed: int = 0
    installs_anyway: bool = False  # even if it is not better
    distributed: DistributedContext = SINGLE_PROCESS


@dataclass(frozen=True)
class _TrainedHead:
    head: nn.Module
    progress: StageProgress


@dataclass(frozen=True)
class _TrainingResult:
    trained: _TrainedHead
    answers: Sequence[TargetAnswer]
    held_out_prompts: Sequence[list[int]]
    folder: Path


def train_and_install_head(
    request: HeadTrainingRequest, target: FrozenTarget, prompts: PromptSplit, print_line: PrintLine
) -> HeadComparison:
    """Train a head and install it in `request.output_folder` if it is better than the baseline.

    SpecchatError for a head that is not better; it is in the subfolder `rejected` then.
    """
    result = _train_with_answers(request, target, prompts, print_line)
    trained, held_out, head = result.trained, result.held_out_prompts, result.folder / "head"
    before = measure_acceptance(target, request.baseline_head, held_out, request.max_answer_tokens)
    shutil.rmtree(head, ignore_errors=True)
    head_kind(request.kind).export(trained.head, target, head)
    after = measure_acceptance(target, head, held_out, request.max_answer_tokens)
    comparison = compare_acceptance(before, after)
    _write_summary(request, target, result.answers, trained.progress, head, comparison)
    _install(request, head, comparison, print_line)
    return comparison


def train_head_as_worker(request: HeadTrainingRequest, target: FrozenTarget, prompts: PromptSplit) -> None:
    """Compute the share of answers, hidden states and batches of a process other than rank 0."""
    _train_with_answers(request, target, prompts, lambda _line: None)


def _train_with_answers(
    request: HeadTrainingRequest, target: FrozenTarget, split: PromptSplit, print_line: PrintLine
) -> _TrainingResult:
    """All steps up to the trained head; every process takes part."""
    layers = hidden_state_layers_of(request.kind, target.shape.layers)
    work, max_tokens = request.output_folder / "work" / target.fingerprint, request.max_answer_tokens
    check_heads(request, target)
    warn_of_changed_target(request, target, work, print_line)
    held_out = _tokenize_prompts(target, split.held_out, max_tokens, print_line)
    prompts = _tokenize_prompts(target, split.training, max_tokens, print_line)
    prompts = [prompt for prompt in prompts if prompt not in held_out]
    check_enough_prompts(len(prompts), len(held_out), "the different questions that fit the context window")
    print_line(
        f"{len(prompts)} training questions, {len(held_out)} held out; all files stay in {request.output_folder}"
    )
    with request.distributed.process_group(target.device):
        answers = generate_answers(target, prompts, max_tokens, work / "answers.jsonl", request.distributed)
        answers = [answer for answer in answers if len(answer.tokens) - answer.answer_start >= MIN_ANSWER_TOKENS]
        check_enough_prompts(len(answers), len(held_out), f"answers of at least {MIN_ANSWER_TOKENS} tokens")
        folder = work / _digest(request.kind, [answer.content_hash for answer in answers])
        cache = FeatureCache(folder / "states", answers, with_final_norm(layers), target.shape.hidden_size)
        missing = format_megabytes(cache.missing_bytes)
        print_line(f"hidden states: {format_megabytes(cache.total_bytes)} in {cache.folder}, {missing} missing")
        cache.fill(target, request.distributed)
        return _TrainingResult(_train(request, target, cache, folder), answers, held_out, folder)


def _tokenize_prompts(
    target: FrozenTarget, prompts: Sequence[TrainingPrompt], max_tokens: int, print_line: PrintLine
) -> list[list[int]]:
    """The distinct prompts as tokens; those that leave no space for an answer are left out."""
    distinct = list({tuple(prompt): prompt for prompt in map(target.prompt_tokens, prompts)}.values())
    fitting = [prompt for prompt in distinct if len(prompt) + max_tokens < target.model.context_window]
    if too_long := len(distinct) - len(fitting):
        print_line(f"{too_long} questions do not fit the context window of the target and are left out")
    return fitting


def _train(request: HeadTrainingRequest, target: FrozenTarget, cache: FeatureCache, folder: Path) -> _TrainedHead:
    """Train a head, from the last checkpoint if there is one."""
    torch.manual_seed(request.seed)
    kind, matrices = head_kind(request.kind), _target_matrices(target)
    data = build_training_data(cache, matrices, request.batch_tokens, request.seed)
    inputs = HeadInitInputs(target.shape, matrices, target.final_norm_weight, data, target.tokenizer.stop_token_ids)
    if request.initial_head is None:
        head = kind.initialize(inputs)
    else:
        head = load_head_for_training(request.kind, request.initial_head, target.shape)
        kind.prepare_resumed(head, inputs)
    head.to(target.device)
    stage = _stage(request, head, data, folder)
    stage.loss, stage.device = data.step_loss(kind.loss(head, target.shape)), target.device
    with redirect_stdout(sys.stderr):
        progress = run_stage(stage)
    return _TrainedHead(head.eval(), progress)


def _target_matrices(target: FrozenTarget) -> TargetMatrices:
    """In the precision of the training, or in a higher one of the target."""
    lowest = training_dtype(target.device)
    weights = (target.embedding_weight, target.lm_head_weight)
    return TargetMatrices(*(weight.to(torch.promote_types(weight.dtype, lowest)) for weight in weights))


def _stage(request: HeadTrainingRequest, head: nn.Module, data: TrainingData, folder: Path) -> Stage:
    """The stage; its name contains all that determines the result, so that other requests do not reuse it."""
    initial = str(request.initial_head.resolve()) if request.initial_head else ""
    world_size = [] if request.distributed.is_single_process else [request.distributed.world_size]
    budget = request.budget
    digest = _digest(initial, budget.tokens, budget.minutes, request.batch_tokens, *world_size)[:6]
    return Stage(
        name=f"{request.kind}-{digest}-{request.seed}",
        folder=folder,
        student=head,
        loss=lambda _batch, _step: {},
        packed_rows=data.packed_rows,
        batch_plan=data.batch_plan,
        budget=budget,
        schedule=NEW_HEAD_SCHEDULE if request.initial_head is None else RESUMED_HEAD_SCHEDULE,
        save_every_seconds=SAVE_SECONDS,
        distributed=request.distributed,
    )


def check_heads(request: HeadTrainingRequest, target: FrozenTarget) -> None:
    """ModelError for a head that does not fit the target or cannot be trained further, before any long step."""
    dimensions = target_dimensions(target.folder)
    for head in _heads_of(request):
        if is_draft_model(head):
            check_draft_tokens(head, target)
        elif reasons := mismatches(inspect_head(head), dimensions):
            raise ModelError(f"{head}: this head does not fit {target.source}: {'; '.join(reasons)}")
    if request.initial_head is not None:
        load_head_for_training(request.kind, request.initial_head, target.shape)


def warn_of_changed_target(
    request: HeadTrainingRequest, target: FrozenTarget, work: Path, print_line: PrintLine
) -> None:
    """Print a warning when the target differs from that of the last run or of a given head."""
    others = [path for path in work.parent.glob("*") if path.is_dir() and path != work]
    if others and not work.is_dir():
        print_line(f"{target.source} has changed since {others[0].name}: answers and hidden states are computed again")
    for head in _heads_of(request):
        if (trained := trained_target_fingerprint(head)) and trained != target.fingerprint:
            print_line(f"{head}: the target has changed since it was trained ({trained}, now {target.fingerprint})")


def _heads_of(request: HeadTrainingRequest) -> set[Path]:
    return {head for head in (request.initial_head, request.baseline_head) if head is not None}


def _write_summary(
    request: HeadTrainingRequest,
    target: FrozenTarget,
    answers: Sequence[TargetAnswer],
    progress: StageProgress,
    folder: Path,
    comparison: HeadComparison,
) -> None:
    summary = HeadSummary(
        kind=request.kind,
        target=target.source,
        fingerprint=target.fingerprint,
        initial_head=request.initial_head.name if request.initial_head else "",
        baseline=f"the head `{request.baseline_head.name}`" if request.baseline_head else "suffix decoding",
        training_prompts=len(answers),
        answer_tokens=sum(len(answer.tokens) - answer.answer_start for answer in answers),
        trained_tokens=progress.tokens,
        minutes=progress.seconds / 60.0,
        seed=request.seed,
        comparison=comparison,
    )
    finish_config(folder, target.config, summary)
    write_model_card(folder, summary)


def _install(request: HeadTrainingRequest, head: Path, comparison: HeadComparison, print_line: PrintLine) -> None:
    """Copy a better head to the output folder. SpecchatError for one that is not better."""
    print_line(str(comparison))
    rejected = request.output_folder / "rejected"
    shutil.rmtree(rejected, ignore_errors=True)
    if not comparison.is_better and not request.installs_anyway:
        shutil.copytree(head, rejected)
        raise SpecchatError(f"not installed: it is not better; the head is in {rejected} (--force installs it)")
    for path in head.iterdir():
        shutil.copy(path, request.output_folder / path.name)
    if not comparison.is_better:
        print_line("installed with --force, although it is not better")
    print_line(f"in a profile, under [models]: {profile_line(request.kind, request.output_folder)}")


def _digest(*values: object) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:12]
