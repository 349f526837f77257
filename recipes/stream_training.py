"""Trains EAGLE-3 heads on an endless stream of the target's own answers, on one GPU, for a fixed time.

    python -m recipes.stream_training --target FOLDER --questions FILE --out FOLDER --minutes 9 --device cuda

Rounds of answers and of training take turns; each round trains on its answers and on a sample of all earlier ones. The
learning rate follows the clock, so the end of the time is the end of the schedule. Every minute the heads are exported
to FOLDER/heads, and as files of limited size to FOLDER/parts (`recipes.file_parts` joins them). FOLDER/log.jsonl has a
line for each round and each evaluation on held-out questions.
"""

from __future__ import annotations

import argparse
import json
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch

from recipes.answer_store import AnswerStore, StreamAnswer, load_answer_batch
from recipes.answer_stream import AnswerStream, StreamSizes
from recipes.batched_llama import BatchedLlama
from recipes.file_parts import split_folder
from recipes.fitted_eagle3 import fitted_eagle3
from recipes.stream_evaluation import measure_heads
from recipes.stream_heads import HeadSize, StreamHead, TargetStates, head_shape_of, scored_positions
from specchat_train.distillation_losses import draft_vocabulary
from specchat_train.load_trained import load_eagle3
from specchat_train.unrolled_attention import has_flash_kernel

UNROLL_STEPS = ((0.1, 2), (1.0, 4))  # until this share of the training: so many steps
TRAINING_RATIO = 2.0  # of the seconds of training and of writing
LAST_ROUND = 0.88  # share of the training after which no answers are written
SAVE_SECONDS, EVALUATION_SECONDS, RESERVED_SECONDS = 60.0, 120.0, 30.0  # reserved for the last evaluation and export
MIN_VOCABULARY_TOKENS = 1_000_000  # of answers from which the draft vocabularies are made
PREPARATION_SHARE = 0.25  # of the time, at most
FIT_ANSWERS = 160
MAX_FAILURES = 5
INTERIM_SHARE = 8  # one of so many held-out answers is in the evaluations before the last


@dataclass
class Clock:
    """Shares of a limited time."""

    seconds: float
    reserved: float
    started: float
    trains_since: float = 0.0

    @property
    def elapsed(self) -> float:
        return monotonic() - self.started

    @property
    def progress(self) -> float:
        """The share of the training that is over; 1 and more where the last evaluation is due."""
        return (self.elapsed - self.trains_since) / max(self.seconds - self.reserved - self.trains_since, 1e-3)

    def is_over(self) -> bool:
        return self.elapsed >= self.seconds - self.reserved


class StreamTraining:
    """The whole run: its answers, its heads, its log."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments, self.device = arguments, torch.device(arguments.device)
        self.out: Path = arguments.out
        self.out.mkdir(parents=True, exist_ok=True)
        seconds = 60.0 * arguments.minutes
        self.clock = Clock(seconds, min(RESERVED_SECONDS, 0.2 * seconds), monotonic() - arguments.started_ago)
        self.model = BatchedLlama(arguments.target, self.device)
        sizes = StreamSizes(**{field.name: getattr(arguments, field.name) for field in fields(StreamSizes)})
        self.stream = AnswerStream(self.model, arguments.target, sizes, arguments.seed, self.clock.is_over)
        self.stream.read_questions(arguments.questions)
        self.store, self.rng = AnswerStore(), np.random.default_rng(arguments.seed)
        self.batch_tokens: int = arguments.batch_tokens
        self.heads, self.held_out = list[StreamHead](), list[StreamAnswer]()
        self.system_tokens = len(self.stream.turns.opening)
        self.trained_tokens = self.trained_answer_tokens = self.updates = self.failures = 0
        self.saved_at = self.evaluated_at = monotonic()

    def log(self, kind: str, **values: Any) -> None:
        line = json.dumps({"kind": kind, "seconds": round(self.clock.elapsed, 1)} | values)
        print(line, flush=True)
        with (self.out / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def run(self) -> None:
        """Everything; heads that exist are exported and evaluated also when something fails on the way."""
        self.log(
            "start", questions=len(self.stream.questions), held_out=len(self.stream.held_out), torch=torch.__version__,
            joined_attention=has_flash_kernel(self.device.type, torch.bfloat16),
        )  # fmt: skip
        self.survive(self.prepare)
        while self.heads and not self.clock.is_over() and self.failures <= MAX_FAILURES:
            self.survive(self.next_round)
        if self.heads:
            self.survive(self.save)
            self.survive(lambda: self.evaluate(self.held_out))
        self.log("end", **self.totals())

    def survive(self, step: Callable[[], None]) -> None:
        """What was trained so far is worth more than the reason of a failure."""
        try:
            step()
        except Exception:  # noqa: BLE001 - whatever it is: the next step may go well, and heads are to be exported
            self.failures += 1
            self.log("failure", traceback=traceback.format_exc())

    def prepare(self) -> None:
        """Held-out answers, the first rounds, and the heads with their draft vocabularies."""
        started = monotonic()
        answers = self.stream.evaluation_answers()
        self.held_out = [answers[index] for index in self.rng.permutation(len(answers))]
        tokens = sum(len(answer.answered) for answer in self.held_out)
        self.log("held_out", answers=len(self.held_out), tokens=tokens, writing=round(monotonic() - started, 1))
        while self.store.answer_tokens < self.arguments.vocabulary_tokens:
            if self.clock.elapsed > PREPARATION_SHARE * self.clock.seconds and (
                self.store.answers or self.clock.is_over()
            ):
                break
            self.write_answers()
        self.clock.trains_since = self.clock.elapsed
        self.heads = [self.new_head(size) for size in self.arguments.heads]
        self.evaluate(self.held_out[::INTERIM_SHARE])

    def new_head(self, size: HeadSize) -> StreamHead:
        answered = np.concatenate([answer.answered for answer in self.store.answers])
        tokens = torch.from_numpy(answered.astype(np.int64))
        ids = draft_vocabulary(tokens, self.model.shape.vocab_size, size.vocabulary, self.stream.stop_ids)
        chosen = self.rng.permutation(len(self.store.answers))[:FIT_ANSWERS]
        states = [self.read_states(self.store.answers[index]) for index in chosen]
        norm_weight, embedding = (self.model.weights[f"model.{name}.weight"] for name in ("norm", "embed_tokens"))
        torch.manual_seed(self.arguments.seed)
        shape = head_shape_of(self.model, size)
        return StreamHead(
            str(size), fitted_eagle3(shape, ids, states, norm_weight.float().cpu(), embedding.float().cpu()), self.model
        )

    @torch.no_grad()
    def read_states(self, answer: StreamAnswer) -> torch.Tensor:
        tokens = torch.tensor(answer.tokens, device=self.device, dtype=torch.int64)[None]
        return self.model.read_texts(tokens)[0].float().cpu()

    def write_answers(self) -> np.ndarray:
        """A round of answers; their numbers in the store."""
        started, before = monotonic(), self.store.answer_tokens
        answers = self.stream.next_round()
        numbers, seconds = self.store.add(answers), monotonic() - started
        kinds = {kind: sum(answer.kind == kind for answer in answers) for kind in {each.kind for each in answers}}
        tokens = self.store.answer_tokens - before
        self.log(
            "answers", new=kinds, tokens=tokens, tokens_per_second=round(tokens / seconds), writing=round(seconds, 1),
            in_all=self.store.answer_tokens, memory=self.used_memory(),
        )  # fmt: skip
        return numbers

    def next_round(self) -> None:
        """New answers, each once, and earlier ones until the training has had its share of the time."""
        started, fresh = monotonic(), np.arange(len(self.store.answers))
        if self.trained_tokens:
            fresh = fresh[:0] if self.clock.progress > LAST_ROUND else self.write_answers()
        writing, started = monotonic() - started, monotonic()
        queue, losses = self.store.batches(fresh, self.batch_tokens, self.rng), list[list[float]]()
        before, updates = self.trained_tokens, self.updates
        while not self.clock.is_over():
            if not queue:
                if len(losses) and monotonic() - started >= TRAINING_RATIO * writing:
                    break
                numbers = self.rng.choice(len(self.store.answers), min(2048, len(self.store.answers)), replace=False)
                queue = self.store.batches(numbers, self.batch_tokens, self.rng)
            losses += self.train_or_split(queue)
            self.save_and_evaluate()
        seconds = monotonic() - started
        self.log(
            "training", progress=round(self.clock.progress, 3), updates=self.updates - updates,
            loss=np.mean(losses[-50:], axis=0).round(3).tolist() if losses else [],
            tokens_per_second=round((self.trained_tokens - before) / max(seconds, 1e-3)), **self.totals(),
        )  # fmt: skip

    def train_or_split(self, queue: list[list[StreamAnswer]]) -> list[list[float]]:
        """Train on the last batch of the queue, and put it back in halves if the memory does not suffice."""
        answers = queue.pop()
        try:
            return [self.train(answers)]
        except torch.OutOfMemoryError:
            if len(answers) == 1:
                raise
            self.batch_tokens //= 2
            print(f"out of memory: batches of {self.batch_tokens} tokens from now on", flush=True)
        for head in self.heads:
            head.working.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        queue += [answers[: len(answers) // 2], answers[len(answers) // 2 :]]
        return []

    def train(self, answers: Sequence[StreamAnswer]) -> list[float]:
        """One update of every head."""
        batch = load_answer_batch(answers, self.system_tokens, self.device)
        states, is_scored = TargetStates.of(self.model, batch), scored_positions(batch)
        progress, losses = self.clock.progress, list[torch.Tensor]()
        steps = next(count for share, count in UNROLL_STEPS if progress <= share or share == 1.0)
        for head in self.heads:
            loss = head.loss(states, is_scored, steps)
            loss.backward()
            head.update(min(progress, 1.0))
            losses.append(loss.detach())
        self.updates += 1
        self.trained_tokens += sum(len(answer.tokens) for answer in answers)
        self.trained_answer_tokens += sum(len(answer.answered) for answer in answers)
        return torch.stack(losses).tolist()

    def save_and_evaluate(self) -> None:
        if monotonic() - self.saved_at > SAVE_SECONDS:
            self.save()
        if monotonic() - self.evaluated_at > EVALUATION_SECONDS:
            self.evaluate(self.held_out[::INTERIM_SHARE])

    def save(self) -> None:
        """Export all heads; a reader finds the earlier ones or the new ones."""
        for head in self.heads:
            unfinished = self.out / "unfinished" / head.name
            head.export(self.model.shape, unfinished)
            (self.out / "heads" / head.name).mkdir(parents=True, exist_ok=True)
            for file in unfinished.iterdir():
                file.replace(self.out / "heads" / head.name / file.name)
        split_folder(self.out / "heads", self.out / "parts")
        self.saved_at = monotonic()

    def evaluate(self, answers: Sequence[StreamAnswer]) -> None:
        """A line for each head, kind of question and temperature."""
        started, measured = monotonic(), {head.name: head.working for head in self.heads}
        if self.arguments.baseline:
            config = json.loads((self.arguments.baseline / "config.json").read_text(encoding="utf-8"))
            shape = replace(self.model.shape, intermediate_size=config["intermediate_size"])
            measured["baseline"] = load_eagle3(self.arguments.baseline, shape).to(self.device, torch.bfloat16)
        try:
            results = measure_heads(measured, self.model, answers, self.arguments.evaluation_tokens)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            self.arguments.evaluation_tokens //= 4
            results = measure_heads(measured, self.model, answers, self.arguments.evaluation_tokens)
        for name, counts in results.items():
            for (kind, temperature), count in counts.items():
                self.log("evaluation", head=name, questions=kind, temperature=temperature, **count.summary())
        self.evaluated_at = monotonic()
        self.log("evaluated", took=round(self.evaluated_at - started, 1), progress=round(self.clock.progress, 3))

    def totals(self) -> dict[str, Any]:
        return {
            "trained_tokens": self.trained_tokens,
            "trained_answer_tokens": self.trained_answer_tokens,
            "answer_tokens": self.store.answer_tokens,
            "answers": len(self.store.answers),
            "skipped": [head.skipped for head in self.heads],
            "memory": self.used_memory(),
        }

    def used_memory(self) -> float:
        """The largest use so far, in GB."""
        return round(torch.cuda.max_memory_allocated() / 1e9, 1) if self.device.type == "cuda" else 0.0


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--target", "--questions", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--baseline", type=Path, help="a head to compare with")
    parser.add_argument("--heads", type=HeadSize.of, nargs="+", default=[HeadSize(6144, 1024), HeadSize(8192, 2048)])
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--started-ago", type=float, default=0.0, help="seconds of the minutes that are over")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch-tokens", type=int, default=32768)
    parser.add_argument("--evaluation-tokens", type=int, default=8192, help="of a batch of the evaluation")
    parser.add_argument("--vocabulary-tokens", type=int, default=MIN_VOCABULARY_TOKENS)
    for field in fields(StreamSizes):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=int, default=field.default)
    return parser.parse_args(argv)


def set_up_device() -> None:
    """Kernels with one plan for all shapes, and memory without holes: lengths differ in every wave and batch."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_cudnn_sdp(False)


def main() -> None:
    arguments = parse_arguments()
    set_up_device()
    StreamTraining(arguments).run()


if __name__ == "__main__":
    main()
