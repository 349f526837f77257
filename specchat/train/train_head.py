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
from specchat.heads.detect import inspect_head, target_facts
from specchat.heads.spec import fits
from specchat.train.distillation_batches import Ends, Lessons, make_lessons
from specchat.train.distributed import ALONE, Ranks
from specchat.train.draft_models import check_draft, is_draft
from specchat.train.feature_cache import FeatureCache, megabytes, taps_with_final
from specchat.train.fingerprint import trained_for
from specchat.train.frozen_target import Target
from specchat.train.head_kinds import Ground, kind_named, read_head, taps_of
from specchat.train.loss_plot import plot_curves, plot_trial
from specchat.train.model_card import Made, profile_line, settle_config, write_card
from specchat.train.optimizers import Pace
from specchat.train.target_answers import Answer, write_answers
from specchat.train.trainer import Effort, Position, Stage, run_stage
from specchat.train.training_prompts import Parted, Question, check_enough
from specchat.train.trial import Tried, Verdict, judge, try_out

LEAST_ANSWER = 4  # tokens; shorter ones teach nothing
SAVE_SECONDS = 15.0
NEW = Pace(matrices=0.02, others=2e-3, gentle=5e-4, warmup=0.02, decay=0.7)
GOING_ON = Pace(matrices=0.004, others=5e-4, gentle=2e-4, warmup=0.05, decay=0.8)

Say = Callable[[str], None]


@dataclass(frozen=True)
class Order:
    """What is wanted, besides the target and the questions."""

    kind: str
    out: Path
    start: Path | None = None  # the head that goes on; None: a new one
    against: Path | None = None  # the head that it must beat; None: guesses that copy
    effort: Effort = Effort(minutes=4.0)
    limit: int = 120  # tokens of an answer
    batch_tokens: int = 2048
    seed: int = 0
    is_forced: bool = False  # install it whatever the trial says
    ranks: Ranks = ALONE


@dataclass(frozen=True)
class _Trained:
    head: nn.Module
    position: Position
    stage: str


@dataclass(frozen=True)
class _Learned:
    """A head that is not tried yet, what it learned from, and what it is tried on; the folder is for what comes of it."""

    trained: _Trained
    answers: Sequence[Answer]
    trials: Sequence[list[int]]
    folder: Path


def make_head(order: Order, target: Target, questions: Parted, say: Say) -> Verdict:
    """Train a head and install it in `order.out` if it is better than `order.against`.

    SpecchatError with the verdict for a head that is not; it lies in `order.out`/refused then.
    """
    learned = _learn(order, target, questions, say)
    trained, trials, fresh = learned.trained, learned.trials, learned.folder / "head"
    plot_curves(learned.folder / "curves")
    before = try_out(target, order.against, trials, order.limit)
    shutil.rmtree(fresh, ignore_errors=True)
    kind_named(order.kind).publish(trained.head, target, fresh)
    after = try_out(target, fresh, trials, order.limit)
    verdict = judge(before, after)
    _describe(order, target, learned.answers, trained.position, fresh, verdict)
    curve = learned.folder / "curves" / f"{trained.stage}.png"
    if curve.is_file():  # it took more than a single step
        shutil.copy(curve, fresh / "loss.png")
    plot_trial([_share(turn) for turn in before], [_share(turn) for turn in after], fresh / "trial.png")
    _install(order, fresh, verdict, say)
    return verdict


def help_to_make(order: Order, target: Target, questions: Parted) -> None:
    """What a process does that is not the first of `order.ranks`: its share of answers, states and batches."""
    _learn(order, target, questions, lambda _line: None)


def _learn(order: Order, target: Target, questions: Parted, say: Say) -> _Learned:
    """Everything up to a trained head, together with the other processes."""
    taps = taps_of(order.kind, target.shape.layers)
    work = order.out / "work" / target.fingerprint
    check_heads(order, target)
    warn_of_changes(order, target, work, say)
    trials = _prompts(target, questions.trials, order.limit, say)
    lessons = [prompt for prompt in _prompts(target, questions.lessons, order.limit, say) if prompt not in trials]
    check_enough(len(lessons), len(trials), "the different questions that fit the window")
    say(f"{len(lessons)} questions to learn from, {len(trials)} held out; everything stays in {order.out}")
    with order.ranks.joined(target.device):
        answers = write_answers(target, lessons, order.limit, work / "answers.jsonl", order.ranks)
        answers = [answer for answer in answers if len(answer.tokens) - answer.start >= LEAST_ANSWER]
        check_enough(len(answers), len(trials), f"answers of {LEAST_ANSWER} tokens and more")
        folder = work / _digest(order.kind, [answer.key for answer in answers])
        cache = FeatureCache(folder / "states", answers, taps_with_final(taps), target.shape.width)
        say(f"hidden states: {megabytes(cache.bytes)} in {cache.folder}, {megabytes(cache.missing_bytes)} to be made")
        cache.fill(target, order.ranks)
        return _Learned(_train(order, target, cache, folder), answers, trials, folder)


def _prompts(target: Target, questions: Sequence[Question], limit: int, say: Say) -> list[list[int]]:
    """The questions as tokens, each once; those that leave no room for an answer are left out, and said so."""
    prompts = list({tuple(prompt): prompt for prompt in map(target.prompt, questions)}.values())
    fitting = [prompt for prompt in prompts if len(prompt) + limit < target.model.window]
    if left_out := len(prompts) - len(fitting):
        say(f"{left_out} questions are longer than the window of the target and were left out")
    return fitting


def _train(order: Order, target: Target, cache: FeatureCache, folder: Path) -> _Trained:
    """A trained head, from its last checkpoint if there is one."""
    torch.manual_seed(order.seed)
    kind, ends = kind_named(order.kind), Ends(target.embedding, target.output)
    lessons = make_lessons(cache, ends, order.batch_tokens, order.seed)
    ground = Ground(target.shape, ends, target.last_norm, lessons, target.tokenizer.stop)
    if order.start is None:
        head = kind.begin(ground)
    else:
        head = read_head(order.kind, order.start, target.shape)
        kind.settle(head, ground)
    head.to(target.device)
    stage = _stage(order, head, lessons, folder)
    stage.loss, stage.device = lessons.loss(kind.loss(head, target.shape)), target.device
    with redirect_stdout(sys.stderr):
        position = run_stage(stage)
    return _Trained(head.eval(), position, stage.name)


def _stage(order: Order, head: nn.Module, lessons: Lessons, folder: Path) -> Stage:
    """Its name holds all that decides the result, so that another wish is not taken for the same one."""
    began = str(order.start.resolve()) if order.start else ""
    together = [] if order.ranks.is_alone else [order.ranks.count]
    wish = _digest(began, order.effort.tokens, order.effort.minutes, order.batch_tokens, *together)[:6]
    return Stage(
        name=f"{order.kind}-{wish}-{order.seed}",
        folder=folder,
        student=head,
        loss=lambda _batch, _step: {},
        shelf=lessons.shelf,
        plan=lessons.plan,
        effort=order.effort,
        pace=NEW if order.start is None else GOING_ON,
        save_every_seconds=SAVE_SECONDS,
        ranks=order.ranks,
    )


def check_heads(order: Order, target: Target) -> None:
    """ModelError for a head that does not fit the target or cannot go on, before anything long is done."""
    facts = target_facts(target.folder)
    for head in {head for head in (order.start, order.against) if head is not None}:
        if is_draft(head):
            check_draft(head, target)
        elif reasons := fits(inspect_head(head), facts):
            raise ModelError(f"{head}: this head does not fit {target.source}: {'; '.join(reasons)}")
    if order.start is not None:
        read_head(order.kind, order.start, target.shape)


def warn_of_changes(order: Order, target: Target, work: Path, say: Say) -> None:
    """Say so when the target is not the one of the last run, or of the head that goes on."""
    others = [path for path in work.parent.glob("*") if path.is_dir() and path != work]
    if others and not work.is_dir():
        say(f"{target.source} has changed since {others[0].name}: its answers and states are made anew")
    for head in {head for head in (order.start, order.against) if head is not None}:
        if (known := trained_for(head)) and known != target.fingerprint:
            say(f"{head}: the target has changed since this was trained ({known}, now {target.fingerprint})")


def _describe(
    order: Order, target: Target, answers: Sequence[Answer], position: Position, folder: Path, verdict: Verdict
) -> None:
    made = Made(
        kind=order.kind,
        target=target.source,
        fingerprint=target.fingerprint,
        began=order.start.name if order.start else "",
        against=f"the head `{order.against.name}`" if order.against else "guesses that copy from the text",
        lessons=len(answers),
        lesson_tokens=sum(len(answer.tokens) - answer.start for answer in answers),
        tokens_seen=position.tokens,
        minutes=position.seconds / 60.0,
        seed=order.seed,
        verdict=verdict,
    )
    settle_config(folder, target.config, made)
    write_card(folder, made)


def _install(order: Order, fresh: Path, verdict: Verdict, say: Say) -> None:
    """The gate. SpecchatError for a head that does not pass it."""
    say(str(verdict))
    if not verdict.is_better and not order.is_forced:
        aside = order.out / "refused"
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(fresh, aside)
        raise SpecchatError(
            f"not installed, for it is not certainly better; the head lies in {aside} (--force takes it)"
        )
    shutil.rmtree(order.out / "refused", ignore_errors=True)
    for path in fresh.iterdir():
        shutil.copy(path, order.out / path.name)
    if not verdict.is_better:
        say("installed by force, though it is not certainly better")
    say(f"in a profile, under [models]: {profile_line(order.kind, order.out)}")


def _share(turn: Tried) -> float:
    return turn.held / max(turn.passes, 1)


def _digest(*values: object) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:12]
