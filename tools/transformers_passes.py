"""Forward passes of our own beside those of transformers, over the same weights: they take turns, width by width.

Other load on the machine slows both sides of a ratio.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specchat.forward.batch import BatchLimits
from specchat.hub.find_models import find_model
from specchat_bench.chain_passes import MedianRange, random_context
from specchat_bench.columns import markdown_table
from specchat_hybrids.gguf_conversion import safetensors_folder
from tools.pass_costs import MeasuredModel, Progress, pass_seconds

COMPARED_ROWS = (1, 4, 8, 16)


@dataclass(frozen=True)
class ComparedPasses:
    """One dtype at one context."""

    dtype: str
    context: int
    own_seconds: Mapping[int, MedianRange]  # by rows
    ratios: Mapping[int, MedianRange]  # the seconds of transformers by our own, of the same round


def compare_with_transformers(
    loaded: MeasuredModel, target: str, context: int, rounds: int, progress: Progress
) -> ComparedPasses:
    """Measure the loaded target and the same folder in transformers; the first round warms up."""
    from specchat.weights.transformers_files import load_with_transformers  # its import takes seconds

    own, layout = loaded.target, loaded.target.pool.layout
    folder = safetensors_folder(find_model(target))
    theirs = load_with_transformers(folder, layout.device, layout.dtype, own.context_window, BatchLimits())
    seconds = {rows: list[tuple[float, float]]() for rows in COMPARED_ROWS}
    with random_context(own, context) as ours, random_context(theirs, context) as others:
        for number in range(rounds + 1):
            for rows in COMPARED_ROWS:
                pair = pass_seconds(own, ours.cache, rows), pass_seconds(theirs, others.cache, rows)
                seconds[rows] += [pair] if number else []
            progress(f"{loaded.dtype}, {context} tokens, beside transformers: round {number}")
    return ComparedPasses(
        loaded.dtype,
        context,
        {rows: MedianRange.from_values(own for own, _theirs in pairs) for rows, pairs in seconds.items()},
        {rows: MedianRange.from_values(theirs / own for own, theirs in pairs) for rows, pairs in seconds.items()},
    )


def comparison_table(results: list[ComparedPasses]) -> str:
    """How many times as long transformers takes, as Markdown."""
    header = ["dtype", "context", "rows", "own passes ms", "transformers / own"]
    return markdown_table(
        header,
        (
            [each.dtype, str(each.context), str(rows), each.own_seconds[rows].to_text(1, 1000), ratio.to_text(2)]
            for each in results
            for rows, ratio in each.ratios.items()
        ),
    )
