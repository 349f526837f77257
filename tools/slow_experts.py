"""What `auto` costs and brings where most experts of a mixture must be fetched: seconds a token beside plain decoding.

    python -m tools.slow_experts --slow-share 0.6 --gigabytes-per-second 0.8 --count 4 --limit 120

The network counts (`random_models.py`) and its router chooses other experts for every number. Of each layer this share
of the experts burns, before each of its products, the time that its bytes would take over a bus. Each prompt is
answered plain, auto, auto, plain. The answers to `edit` are copies with a few changes, those to `rewrite` with many; in
`chat` the prompt holds every pair of numbers of the answer, followed by a wrong one, so that no copy is right.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from unittest.mock import patch

import click
from torch import Tensor

from specchat.chat.session import Session
from specchat.engine.decode import GenerationConfig
from specchat.engine.drafter import AnswerTask
from specchat.engine.sampling import Sampler
from specchat.forward.linear.expert_linear import ExpertLinear
from specchat.forward.linear.linear import QuantLinear
from specchat.loading.load_engine import Engine
from specchat.profile.keys import Profile
from specchat_bench.chain_passes import MedianRange
from specchat_bench.columns import markdown_table
from specchat_bench.combinations import PLAIN
from specchat_bench.loaded_engine import load_engine_here
from specchat_bench.measure import set_thread_count
from tools.instrument import run_instrument
from tools.random_models import FIRST_NUMBER, counting_edit_prompts, random_model_folder

AUTO = "auto"
CONFIG: Mapping[str, Any] = {
    "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 256, "intermediate_size": 256,
    "moe_intermediate_size": 256, "num_experts": 32, "num_experts_per_tok": 4, "norm_topk_prob": True,
    "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 8192,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "hidden_act": "silu",
}  # fmt: skip
ROW_COUNTS = (1, 2, 4, 8, 16)
PASSES = 9  # for each number of rows
EDIT_INTERVALS = {"edit": 24, "rewrite": 6}  # numbers between two that are replaced
CHAT = "chat"


@dataclass(frozen=True)
class FetchedLinear(QuantLinear):
    """A layer of an expert in a slow tier: its weights arrive before each product. No kernel of mixtures knows it."""

    linear: QuantLinear
    seconds: float

    @property
    def is_batch_invariant(self) -> bool:  # type: ignore[override]
        return self.linear.is_batch_invariant

    @property
    def bytes(self) -> int:
        return self.linear.bytes

    def __call__(self, rows: Tensor) -> Tensor:
        arrives_at = perf_counter() + self.seconds
        while perf_counter() < arrives_at:
            pass
        return self.linear(rows)


@contextmanager
def slow_tier(share: float, bytes_per_second: float) -> Generator[None]:
    """The mixtures that are loaded meanwhile have this share of their experts in a slow tier."""
    make = ExpertLinear.of

    def make_slow(linears: Iterable[QuantLinear], count: int, *rest: Any) -> ExpertLinear:
        made = make(linears, count, *rest)
        slow = [FetchedLinear(each, each.bytes / bytes_per_second) for each in made.experts[: round(share * count)]]
        return ExpertLinear((*slow, *made.experts[len(slow) :]))

    with patch.object(ExpertLinear, "of", make_slow):
        yield


def chat_prompts(count: int, length: int, vocab_size: int) -> Iterator[list[int]]:
    """Every two consecutive numbers of the answer are in the prompt, in any order, with a wrong one behind them."""
    rng = random.Random(2)
    for _ in range(count):
        start = rng.randrange(FIRST_NUMBER, vocab_size - length - 2)
        pairs = [(each, each + 1, rng.randrange(FIRST_NUMBER, vocab_size)) for each in range(start, start + length)]
        rng.shuffle(pairs)
        yield [*chain.from_iterable(pairs), start - 1]


@dataclass(frozen=True)
class Run:
    tokens: list[int]
    steps: int
    seconds: float


def answer(session: Session, variant: str, kind: str, prompt: list[int], max_tokens: int) -> Run:
    """Greedy; the prompt and the first measurement of costs are not in the time."""
    generation, drafter, models = session.generation, session.drafters[variant], session.models
    session.select_drafters(variant, AnswerTask(kind=kind, drafter_order=tuple(session.chooser.drafters)))
    generation.replace_tokens(prompt)
    config = GenerationConfig(drafter, Sampler(), models.profile.speculation.budget, max_tokens)
    with models.target.pool.acquire_slot(generation.cache, generation.rows_needed(max_tokens)):
        for _length in generation.prefill():
            pass
        if drafter is session.chooser:
            models.costs.calibrate(generation)
        started_at = perf_counter()
        steps = list(generation.decode(config))
        return Run(generation.tokens[len(prompt) :], len(steps), perf_counter() - started_at)


def answer_in_turns(engine: Engine, kind: str, prompt: list[int], max_tokens: int) -> list[Run]:
    """Plain, auto, auto, plain, each in a session that has seen no other text."""
    runs = list[Run]()
    for variant in (PLAIN, AUTO, AUTO, PLAIN):
        with engine.create_session() as session:
            runs.append(answer(session, variant, kind, prompt, max_tokens))
    return runs


def kind_row(kind: str, prompts: Sequence[list[Run]]) -> list[str]:
    """Of the answers to all prompts of a kind; above 1 `auto` is faster."""
    ratios = list[float]()
    for first, one, other, last in prompts:
        ratios += first.seconds / one.seconds, last.seconds / other.seconds
    drafted = [run for runs in prompts for run in runs[1:3]]
    per_step = sum(len(run.tokens) for run in drafted) / sum(run.steps for run in drafted)
    equal = sum(all(run.tokens == runs[0].tokens for run in runs) for runs in prompts)
    plain = median(run.seconds / len(run.tokens) for runs in prompts for run in (runs[0], runs[3]))
    return [
        kind, f"{1000 * plain:.1f}", MedianRange.from_values(ratios).to_text(2), f"{per_step:.2f}",
        f"{equal} of {len(prompts)}",
    ]  # fmt: skip


def pass_rows(engine: Engine, prompt: list[int]) -> Iterator[list[str]]:
    """What a pass costs by its rows, measured now and as the chooser believes it."""
    costs, target = engine.models.costs, engine.models.target
    with engine.create_session() as session:
        generation = session.generation
        generation.replace_tokens(prompt)
        with target.pool.acquire_slot(generation.cache, generation.rows_needed(max(ROW_COUNTS))):
            for _length in generation.prefill():
                pass
            rounds = [[generation.measure_pass(count, Sampler()) for count in ROW_COUNTS] for _ in range(PASSES)]
    measured = dict(zip(ROW_COUNTS, map(median, zip(*rounds, strict=True)), strict=True))
    believed = costs.trusted_pass_seconds(len(prompt), max(ROW_COUNTS)) or []
    for count, seconds in measured.items():
        shown = f"{believed[count] / believed[1]:.2f}" if count < len(believed) else "unknown"
        yield [str(count), f"{1000 * seconds:.1f}", f"{seconds / measured[1]:.2f}", shown]


@click.command("slow_experts")
@click.option("--slow-share", default=0.6, show_default=True, help="Share of the experts in the slow tier.")
@click.option("--gigabytes-per-second", default=0.8, show_default=True, help="Of the bus; the network is small.")
@click.option("--count", default=4, show_default=True, help="Prompts of each kind.")
@click.option("--limit", default=120, show_default=True, help="Tokens of an answer.")
@click.option("--threads", default=1, show_default=True, help="Threads of a pass.")
@click.option("--config", type=click.Path(path_type=Path), help="A config.json of another mixture.")
def slow_experts(
    slow_share: float, gigabytes_per_second: float, count: int, limit: int, threads: int, config: Path | None
) -> int:
    """Measure `auto` beside plain decoding with most experts in a slow tier."""
    with TemporaryDirectory() as folder:
        shape = config or Path(folder) / "config.json"
        if config is None:
            shape.write_text(json.dumps(CONFIG), encoding="utf-8")
        models = {"models.target": str(random_model_folder(str(shape), Path(folder))), "models.draft": ""}
        settings = {**models, "models.heads": (), "limits.context": 2048, "models.device": "cpu"}
        with slow_tier(slow_share, gigabytes_per_second * 1e9):
            engine = load_engine_here(Profile().override(settings))
        set_thread_count(threads)
        size, rows, differ = engine.models.target.vocab_size, list[list[str]](), False
        prompts = {kind: list(counting_edit_prompts(count, limit, each, size)) for kind, each in EDIT_INTERVALS.items()}
        prompts[CHAT] = list(chat_prompts(count, limit, size))
        for kind, each_of_kind in prompts.items():
            row = kind_row(kind, [answer_in_turns(engine, kind, prompt, limit) for prompt in each_of_kind])
            rows.append(row)
            differ = differ or row[-1] != f"{count} of {count}"
        print(markdown_table(["kind", "plain, ms a token", "auto / plain", "tokens a step", "same text"], rows))
        print(markdown_table(["rows", "ms", "c", "c as believed"], pass_rows(engine, prompts[CHAT][0])))
        engine.close()
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(run_instrument(slow_experts))
