"""The speedup that a given acceptance brings on this machine: a drafter that knows the answer errs on purpose.

Like the synthetic acceptance of llama.cpp: the n-th draft token of a chain is accepted with the n-th given probability,
if those before it were accepted. A real drafter with this acceptance gains this speedup, less the cost of drafting.

    python -m tools.synthetic_acceptance 0.9,0.8,0.8 --model-shape 0.5b --dtype bfloat16
"""

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import click

from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import DraftContext, Drafter
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.profile.keys import MAX_DRAFT_TOKENS
from specchat.profile.profile_files import load_profile
from specchat_bench.chain_passes import MedianRange, random_context
from specchat_bench.columns import markdown_table
from tools.pass_costs import MeasuredModel, Progress, load_models, pass_seconds
from tools.random_models import random_model_folder


class OracleDrafter(Drafter):
    """Drafts the known text; a draft token that must be rejected is replaced by another token."""

    name = "oracle"

    def __init__(self, text: Sequence[int], acceptance_by_depth: Sequence[float]) -> None:
        self.text, self.acceptance_by_depth = text, acceptance_by_depth

    def propose(self, context: DraftContext) -> DraftTree:
        """A chain. The random numbers depend on the position only, so that every run is the same."""
        tree, position = DraftTree(context.tokens[-1]), len(context.tokens)
        correct = self.text[position : position + context.max_draft_tokens]
        accepted = [
            random.Random(f"{position} {depth}").random() < rate for depth, rate in enumerate(self.acceptance_by_depth)
        ]
        draft_tokens = [
            token if is_accepted else token ^ 1 for token, is_accepted in zip(correct, accepted, strict=False)
        ]
        tree.add_chain(draft_tokens, source=self.name)
        return tree


@dataclass(frozen=True)
class OracleRow:
    """The result of one chain length, against plain decoding of the same text in the same round."""

    dtype: str
    context: int
    draft_tokens: int
    tokens_per_step: float
    relative_pass_cost: MedianRange  # c of a pass over the draft tokens and their root
    speedup: MedianRange

    @property
    def predicted_speedup(self) -> float:
        """Tokens per step by pass cost: the speedup without host time."""
        return self.tokens_per_step / self.relative_pass_cost.median


@dataclass(frozen=True)
class _Run:
    text: list[int]  # prompt and answer
    tokens: int  # of the answer
    steps: int
    seconds: float


@dataclass(frozen=True)
class _Trial:
    run: _Run
    plain: _Run
    relative_pass_cost: float


def measure_synthetic_acceptance(
    loaded: MeasuredModel,
    context: int,
    acceptance_by_depth: Sequence[float],
    max_tokens: int,
    rounds: int,
    progress: Progress,
) -> list[OracleRow]:
    """Measure plain decoding and chains of 1, 2, … draft tokens in turn, on one answer of `max_tokens` tokens."""
    target, label = loaded.target, f"{loaded.dtype}, {context} tokens"
    trials: dict[int, list[_Trial]] = {
        depth: [] for depth in range(1, min(len(acceptance_by_depth), target.max_rows - 1) + 1)
    }
    with random_context(target, context, max_tokens) as generation:
        length = len(generation.tokens)
        text = _timed_run(generation, Drafter(), length, max_tokens).text
        for number in range(rounds + 1):  # the first one warms up
            plain, single_row_seconds = (
                _timed_run(generation, Drafter(), length, max_tokens),
                pass_seconds(target, generation.cache, 1),
            )
            for depth, rows in trials.items():
                run = _timed_run(generation, OracleDrafter(text, acceptance_by_depth[:depth]), length, max_tokens)
                if run.text != text:
                    progress(f"{label}: {depth} draft tokens changed the text (a near tie)")
                if number:
                    rows.append(
                        _Trial(run, plain, pass_seconds(target, generation.cache, depth + 1) / single_row_seconds)
                    )
            if number:
                progress(f"{label}, synthetic acceptance: round {number}")
    return [_row_of_trials(loaded.dtype, context, depth, rows) for depth, rows in trials.items()]


def as_table(rows: Sequence[OracleRow]) -> str:
    header = ["dtype", "context", "draft tokens", "tokens/step", "c", "speedup", "predicted speedup"]
    return markdown_table(header, map(_cells, rows))


def _cells(row: OracleRow) -> list[str]:
    return [
        row.dtype, str(row.context), str(row.draft_tokens), f"{row.tokens_per_step:.2f}",
        f"{row.relative_pass_cost.median:.2f}", row.speedup.to_text(2), f"{row.predicted_speedup:.2f}",
    ]  # fmt: skip


def _row_of_trials(dtype: str, context: int, depth: int, trials: Sequence[_Trial]) -> OracleRow:
    first = trials[0].run
    return OracleRow(
        dtype, context, depth, first.tokens / first.steps,
        relative_pass_cost=MedianRange.from_values(each.relative_pass_cost for each in trials),
        speedup=MedianRange.from_values(each.plain.seconds / each.run.seconds for each in trials),
    )  # fmt: skip


def _timed_run(generation: Generation, drafter: Drafter, length: int, max_tokens: int) -> _Run:
    """Generate and time one answer, then truncate it."""
    started_at = perf_counter()
    steps = list(generation.decode(GenerationConfig(drafter, Sampler(), MAX_DRAFT_TOKENS, max_tokens)))
    seconds = perf_counter() - started_at
    run = _Run(generation.tokens.copy(), len(generation.tokens) - length, len(steps), seconds)
    generation.truncate(length)
    return run


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("acceptance")
@click.option("--target", default="embedded", show_default=True, help="the target model")
@click.option("--model-shape", default="", help="random weights instead: 0.5b, 8b, or a config.json")
@click.option("--dtype", default="auto", show_default=True)
@click.option("--context", default=128, show_default=True, help="tokens before the answer")
@click.option("--limit", default=64, show_default=True, help="tokens of the answer")
@click.option("--rounds", default=9, show_default=True)
@click.option("--threads", default=0, help="0 leaves the number to the engine")
def main(
    acceptance: str, target: str, model_shape: str, dtype: str, context: int, limit: int, rounds: int, threads: int
) -> None:
    """ACCEPTANCE is a rate for each depth, as 0.8,0.7."""
    folder = str(random_model_folder(model_shape)) if model_shape else target
    profile, rates = load_profile("chat").override({"models.target": folder}), list(map(float, acceptance.split(",")))
    for loaded in load_models(profile, [dtype], context, threads):
        report = lambda message: print(message, file=sys.stderr)
        print(as_table(measure_synthetic_acceptance(loaded, context, rates, limit, rounds, report)))


if __name__ == "__main__":
    main()
