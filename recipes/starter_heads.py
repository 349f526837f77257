"""Trains an EAGLE-3 head for the starter, on the answers of `starter_answers` with the states of `starter_states`.

    python -m recipes.starter_heads --target FOLDER --answers FOLDER [FOLDER ...] --out FOLDER --minutes 60

The head learns the target's distribution over a draft vocabulary at the tokens of the answers, and with less weight at
those of the questions. It is unrolled over more steps as training goes on: the first draft token decides most. A run
continues from its checkpoint, and reads answers that were written meanwhile.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor

from recipes.answer_files import load_answers
from recipes.fitted_eagle3 import fitted_eagle3
from specchat.text.tokenizer import Tokenizer
from specchat.weights.load_options import LoadOptions
from specchat.weights.tensor_files import TensorFiles
from specchat_hybrids.gguf_conversion import safetensors_folder
from specchat_train.chunked_cross_entropy import chunked_cross_entropy, probabilities
from specchat_train.compare_heads import compare_acceptance, measure_acceptance
from specchat_train.distillation_losses import STEP_LOSS_DECAY, draft_vocabulary
from specchat_train.export_weights import export_eagle3
from specchat_train.frozen_target import FrozenTarget, head_shape, read_config
from specchat_train.model_card import HeadSummary, finish_config, write_model_card
from specchat_train.optimizers import LearningRateSchedule, MuonAdamW
from specchat_train.trainable_heads import Eagle3
from specchat_train.trainable_llama import ModelShape

DRAFT_VOCABULARY, INTERMEDIATE_SIZE = 6144, 1024  # a larger head costs more time than it saves
BATCH_TOKENS, SORTED_ROWS, INIT_ANSWERS = 2560, 512, 120
SYSTEM_TOKENS = 24  # of the template: the same in every prompt
PROMPT_WEIGHT, PROMPT_SHARE, LATER_STEP_SHARE = 0.3, 0.34, 0.5  # shares of the rows that are scored
UNROLL_STEPS = ((0.5, 1), (0.7, 2), (1.0, 3))  # until this share of the training: so many steps
SCHEDULE = LearningRateSchedule(muon_lr=0.02, adamw_lr=1e-3, slow_lr=1e-3, warmup_fraction=0.02, decay_fraction=0.5)
SAVE_SECONDS = 60.0
COMPARED_TURNS, COMPARED_TOKENS = 40, 96
README_NOTE = """The head is part of specchat, Apache-2.0 as its target. The questions are templates,
and rows of permissively licensed code and documentation; the answers are the target's own."""


@dataclass(frozen=True)
class AnswerRow:
    """Where the tokens and states of one answer are."""

    path: Path
    tokens: Tensor
    answer_start: int
    first_state: int

    @property
    def states(self) -> Tensor:
        """[L-1, 4 * D]"""
        with safe_open(self.path, framework="pt") as file:
            return file.get_slice("states")[self.first_state : self.first_state + len(self.tokens) - 1]


@dataclass(frozen=True)
class AnswerBatch:
    """Padded rows: tokens [B, L+1], states [B, L, 4 * D], and whether a position is part of an answer [B, L] or prompt."""

    tokens: Tensor
    states: Tensor
    is_answer: Tensor
    is_prompt: Tensor


def read_answer_rows(folders: Sequence[Path], *, held_out: bool) -> list[AnswerRow]:
    """All stored answers of one side of the split."""
    rows = list[AnswerRow]()
    for path in sorted(path for folder in folders for path in folder.glob("*.safetensors")):
        first_state = 0
        for answer in load_answers(path):
            if answer.is_held_out == held_out:
                rows.append(AnswerRow(path, torch.tensor(answer.tokens), answer.start, first_state))
            first_state += len(answer.tokens) - 1
    return rows


def batches(rows: Sequence[AnswerRow], rng: random.Random) -> Iterator[list[AnswerRow]]:
    """All rows once, in batches of similar length."""
    shuffled = rng.sample(rows, len(rows))
    found = list[list[AnswerRow]]()
    for start in range(0, len(shuffled), SORTED_ROWS):
        batch = list[AnswerRow]()
        for row in sorted(shuffled[start : start + SORTED_ROWS], key=lambda row: len(row.tokens)):
            if batch and (len(batch) + 1) * len(row.tokens) > BATCH_TOKENS:
                found.append(batch)
                batch = []
            batch.append(row)
        found.append(batch)
    rng.shuffle(found)
    yield from found


def load_batch(rows: Sequence[AnswerRow], system_tokens: int = SYSTEM_TOKENS) -> AnswerBatch:
    """Position t predicts token t+2, so the last position of a row has no target."""
    length, first = max(len(row.tokens) for row in rows) - 1, rows[0].states
    states = torch.zeros(len(rows), length, first.shape[1], dtype=first.dtype)
    tokens = torch.zeros(len(rows), length + 1, dtype=torch.int64)
    is_answer, is_prompt = torch.zeros(2, len(rows), length, dtype=torch.bool)
    for index, row in enumerate(rows):
        last = len(row.tokens) - 1
        states[index, :last], tokens[index, : last + 1] = row.states, row.tokens
        is_answer[index, row.answer_start - 1 : last - 1] = True
        is_prompt[index, system_tokens : row.answer_start - 1] = True
    return AnswerBatch(tokens, states, is_answer, is_prompt)


def new_eagle3(
    shape: ModelShape,
    rows: Sequence[AnswerRow],
    target: TensorFiles,
    stop_ids: Sequence[int],
    vocabulary: int = DRAFT_VOCABULARY,
) -> Eagle3:
    """A head whose fusion layer is a linear fit of the target's next state."""
    answers = torch.cat([row.tokens[row.answer_start :] for row in rows])
    ids = draft_vocabulary(answers, shape.vocab_size, vocabulary, tuple(stop_ids))
    states = [row.states.float() for row in rows[:INIT_ANSWERS]]
    norm_weight, embedding = (target.read_tensor(f"model.{name}.weight").float() for name in ("norm", "embed_tokens"))
    return fitted_eagle3(replace(shape, intermediate_size=INTERMEDIATE_SIZE), ids, states, norm_weight, embedding)


def batch_loss(eagle: Eagle3, batch: AnswerBatch, embedding: Tensor, steps: int) -> Tensor:
    """The loss over the draft vocabulary; positions whose token is not in it carry none."""
    is_scored = batch.is_answer | batch.is_prompt & (torch.rand(batch.is_prompt.shape) < PROMPT_SHARE)
    is_scored[:, :-1] &= eagle.t2d[batch.tokens[:, 2:]]
    positions = is_scored.flatten().nonzero().squeeze(1)
    weights = torch.where(batch.is_answer.flatten()[positions], 1.0, PROMPT_WEIGHT)
    hidden_size = embedding.shape[1]
    final = batch.states[..., 3 * hidden_size :].flatten(0, 1)[positions + 1]
    target = probabilities(final, embedding[eagle.draft_token_ids], torch.bfloat16)
    total = torch.zeros(())
    outputs = eagle.unroll(batch.states[..., : 3 * hidden_size], F.embedding(batch.tokens[:, 1:], embedding), steps)
    for step, output in enumerate(outputs):
        share = 1.0 if step == 0 else LATER_STEP_SHARE
        used = (positions % is_scored.shape[1] >= step) & (torch.rand(len(positions)) < share)
        prediction = output.prediction.flatten(0, 1)[positions[used]]
        for weight in (1.0, PROMPT_WEIGHT):
            chosen = (weights[used] == weight).nonzero().squeeze(1)
            loss = chunked_cross_entropy(prediction[chosen], eagle.lm_head.weight, target[used][chosen])
            share_of_weight = weight * len(chosen) / weights[used].sum()
            total = total + STEP_LOSS_DECAY**step * share_of_weight * loss
    return total


@torch.no_grad()
def acceptance_by_position(eagle: Eagle3, rows: Sequence[AnswerRow], embedding: Tensor, depth: int = 4) -> list[float]:
    """The share of positions of held-out answers where a chain of this length or more is right."""
    accepted, starts = torch.zeros(depth), 0
    for row in rows:
        batch = load_batch([row])
        states = batch.states[..., : 3 * embedding.shape[1]]
        positions = batch.is_answer[0].nonzero().squeeze(1)
        with torch.autocast("cpu", torch.bfloat16):
            outputs = eagle.unroll(states, F.embedding(batch.tokens[:, 1:], embedding), depth)
            best = [
                eagle.draft_token_ids[eagle.lm_head(output.prediction[0, positions]).argmax(-1)] for output in outputs
            ]
        is_right = torch.stack([drafted == row.tokens[positions + 2] for drafted in best])
        count = len(positions) - depth + 1
        for start in range(max(count, 0)):
            chain = is_right[torch.arange(depth), start + torch.arange(depth)]
            accepted += chain.cumprod(0)
            starts += 1
    return (accepted / max(starts, 1)).tolist()


def write_summary(
    folder: Path, target: FrozenTarget, rows: Sequence[AnswerRow], held_out: Sequence[AnswerRow], minutes: float
) -> None:
    """Compare the head with suffix decoding in the engine, and write its README and its target's fingerprint."""
    prompts = [row.tokens[: row.answer_start].tolist() for row in held_out[:COMPARED_TURNS]]
    before, after = (measure_acceptance(target, head, prompts, COMPARED_TOKENS) for head in (None, folder))
    summary = HeadSummary(
        kind="eagle3",
        target="HuggingFaceTB/SmolLM2-135M-Instruct",
        fingerprint=target.fingerprint,
        initial_head="",
        baseline="suffix decoding",
        training_prompts=len(rows),
        answer_tokens=sum(len(row.tokens) - row.answer_start for row in rows),
        trained_tokens=sum(len(row.tokens) for row in rows),
        minutes=minutes,
        seed=0,
        comparison=compare_acceptance(before, after),
        note=README_NOTE,
        licence="apache-2.0",
    )
    finish_config(folder, target.config, summary)
    write_model_card(folder, summary)


def train(arguments: argparse.Namespace) -> None:
    shape = head_shape(read_config(arguments.target), str(arguments.target))
    files = TensorFiles.from_files(arguments.target, sorted(safetensors_folder(arguments.target).glob("*.safetensors")))
    embedding = files.read_tensor("model.embed_tokens.weight")
    rows = read_answer_rows(arguments.answers, held_out=False)
    checkpoint, rng = arguments.out / "eagle3.pt", random.Random(time.time())
    eagle = new_eagle3(shape, rows, files, sorted(Tokenizer(arguments.target).stop_token_ids))
    optimizer, seconds, steps = MuonAdamW(eagle, SCHEDULE, lambda name: name.startswith("fc.")), 0.0, 0
    if checkpoint.is_file():
        saved = torch.load(checkpoint, weights_only=True)
        eagle = Eagle3(eagle.shape, saved["ids"])
        eagle.load_state_dict(saved["head"])
        eagle.hidden_state_scale.copy_(saved["scale"])
        optimizer, seconds = MuonAdamW(eagle, SCHEDULE, lambda name: name.startswith("fc.")), saved["seconds"]
        optimizer.load_state_dicts(saved["optimizer"])
    started, saved_at, queue = time.monotonic() - seconds, time.monotonic(), list[list[AnswerRow]]()
    while (fraction := (time.monotonic() - started) / (60.0 * arguments.minutes)) < 1.0:
        queue = queue or list(batches(read_answer_rows(arguments.answers, held_out=False), rng))
        depth = next(count for share, count in UNROLL_STEPS if fraction <= share)
        with torch.autocast("cpu", torch.bfloat16):
            loss = batch_loss(eagle, load_batch(queue.pop()), embedding, depth)
        loss.backward()
        optimizer.step(fraction)
        steps += 1
        if time.monotonic() - saved_at > SAVE_SECONDS:
            saved_at = time.monotonic()
            content = {"ids": eagle.draft_token_ids, "head": eagle.state_dict(), "scale": eagle.hidden_state_scale}
            content |= {"optimizer": optimizer.state_dicts(), "seconds": saved_at - started}
            torch.save(content, checkpoint.with_suffix(".part"))
            checkpoint.with_suffix(".part").replace(checkpoint)
            print(f"{fraction:.0%}, {steps} steps, loss {float(loss.detach()):.3f}", flush=True)
    held_out = read_answer_rows(arguments.answers, held_out=True)
    print("acceptance by position:", acceptance_by_position(eagle.eval(), held_out, embedding))
    export_eagle3(eagle, shape, arguments.out / "eagle3")
    target = FrozenTarget(str(arguments.target), LoadOptions("bfloat16", "cpu"))
    write_summary(arguments.out / "eagle3", target, rows, held_out, arguments.minutes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--answers", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60.0)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    train(arguments)


if __name__ == "__main__":
    main()
