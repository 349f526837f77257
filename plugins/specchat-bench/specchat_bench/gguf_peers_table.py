"""The table of `specchat bench peers --gguf`, and the text below it that says where and how its figures were measured.

Knows what was measured, and runs no model.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from statistics import median

from specchat.hub.machine import cpu_features, cpu_name
from specchat.loading.engine_memory import compute_features
from specchat.loading.load_plan import plan_load
from specchat.profile.keys import Profile
from specchat_bench.chain_passes import MedianRange
from specchat_bench.columns import markdown_table
from specchat_bench.compared_engines import PairedRuns
from specchat_bench.gguf_peers import PASS_CONTEXT, ComparedPassCost, ComparedPrompt, gguf_file

HEADER = (
    "measured", "threads", "llama.cpp", "ours plain", "ours auto", "plain / llama.cpp", "auto / llama.cpp",
    "tokens/step of auto", "same text",
)  # fmt: skip


def as_table(compared: Iterable[ComparedPrompt | ComparedPassCost]) -> str:
    """A row for each task and number of threads, as Markdown; of a ratio above 1, ours is better."""
    prompts, lines = dict[tuple[str, int], list[ComparedPrompt]](), list[list[str]]()
    for each in compared:
        if isinstance(each, ComparedPrompt):
            prompts.setdefault((each.task, each.threads), []).append(each)
        else:
            lines.append(_pass_cells(each))
    return markdown_table(HEADER, [*(_prompt_cells(group) for group in prompts.values()), *lines])


def _prompt_cells(prompts: Sequence[ComparedPrompt]) -> list[str]:
    with_auto = [(prompt, prompt.auto) for prompt in prompts if prompt.auto is not None]
    speeds = [
        _median_text(prompt.tokens_per_second(prompt.plain.theirs) for prompt in prompts),
        _median_text(prompt.tokens_per_second(prompt.plain.ours) for prompt in prompts),
        _median_text(prompt.tokens_per_second(auto.ours) for prompt, auto in with_auto),
    ]
    autos = [auto for _prompt, auto in with_auto]
    ratios = [_ratio([prompt.plain for prompt in prompts]), _ratio(autos)]
    same = f"{sum(prompt.has_same_text for prompt in prompts)} of {len(prompts)}"
    name = f"{prompts[0].task}, tokens/s"
    return [name, str(prompts[0].threads), *speeds, *ratios, _tokens_per_step(autos), same]


def _pass_cells(cost: ComparedPassCost) -> list[str]:
    costs = [f"{each.median:.2f}" for each in (cost.theirs, cost.ours)]
    return [f"c({cost.row_count}), plain passes", str(cost.threads), *costs, "", cost.ratio.to_text(2), "", "", ""]


def _median_text(values: Iterable[float]) -> str:
    found = list(values)
    return f"{median(found):.1f}" if found else ""


def _ratio(pairs: Sequence[PairedRuns]) -> str:
    return MedianRange.from_values(pair.speedup for pair in pairs).to_text(2) if pairs else ""


def _tokens_per_step(pairs: Sequence[PairedRuns]) -> str:
    runs = [run for pair in pairs for run in pair.ours]
    steps = sum(run.target_passes for run in runs)
    return f"{sum(len(run.tokens) for run in runs) / steps:.2f}" if steps else ""


def explanation(profile: Profile, max_tokens: int, command: str, llama_cpp_release: str) -> str:
    """What was measured and how, for below the table."""
    theirs = f"llama.cpp ({llama_cpp_release})" if llama_cpp_release else "llama.cpp"
    file, features = gguf_file(profile), cpu_features()
    weights = plan_load(profile, compute_features()).target.options.quant_format
    machine = f"{cpu_name()} with {', '.join(features)}" if features else cpu_name()
    return f"""\
`{command}`, {time.strftime("%Y-%m-%d")}, {machine}.
{file.name} in {theirs} and here with --weights {weights}; greedy, answers of at most {max_tokens} tokens.

A speed is the median of the prompts. A ratio is seconds per token, those of llama.cpp by ours: median (lowest-highest)
of the prompts; above 1 ours is faster. Each prompt runs plain, auto, llama.cpp, llama.cpp, auto, plain, with one number
of threads after the other, before the next prompt. The time of tokens/s has the prompt in it, too; "prefill 512" is
the tokens of a prompt by the seconds to the first token of the answer.
auto is measured as in a conversation that is under way: it has answered another question of this kind before,
unmeasured, and learned from it. Its time, with template and tokenizing, ends with the last text: behind that, the
engine measures plain passes for the speed that it shows.
c(M) is the time of a pass over M rows by that of a pass over one row, behind {PASS_CONTEXT} tokens: the median of the
rounds. Its ratio is c(M) of llama.cpp by ours of the same round; above 1 more rows cost less in ours.
Same text: the prompts to which plain and auto wrote what llama.cpp wrote."""
