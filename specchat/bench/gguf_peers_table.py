"""The table of `bench peers --gguf`, and the text below it that says how its figures were measured.

Knows what was measured, and runs no model.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from specchat.bench.columns import markdown_table
from specchat.bench.gguf_peers import ComparedPrompt, gguf_file
from specchat.bench.llama_cpp import TimedRun
from specchat.bench.pass_costs import MedianRange
from specchat.bench.peers import PairedRuns
from specchat.loading.engine_memory import compute_features
from specchat.loading.load_plan import plan_load
from specchat.profile import Profile


def as_table(compared: Iterable[ComparedPrompt]) -> str:
    """A row for each number of threads and task, as Markdown; ratios are llama.cpp's seconds by ours."""
    rows: dict[tuple[int, str], list[ComparedPrompt]] = {}
    for prompt in compared:
        rows.setdefault((prompt.threads, prompt.task), []).append(prompt)
    header = [
        "threads", "kind", "llama.cpp tokens/s", "plain tokens/s", "auto tokens/s", "plain / llama.cpp",
        "auto / llama.cpp", "tokens/step of auto", "same text",
    ]  # fmt: skip
    return markdown_table(header, (_cells(threads, task, prompts) for (threads, task), prompts in rows.items()))


def _cells(threads: int, task: str, prompts: Sequence[ComparedPrompt]) -> list[str]:
    with_auto = [(prompt, prompt.auto) for prompt in prompts if prompt.auto is not None]
    speeds = [
        _tokens_per_second([(prompt, run) for prompt in prompts for run in prompt.plain.theirs]),
        _tokens_per_second([(prompt, run) for prompt in prompts for run in prompt.plain.ours]),
        _tokens_per_second([(prompt, run) for prompt, auto in with_auto for run in auto.ours]),
    ]
    ratios = [_ratio([prompt.plain for prompt in prompts]), _ratio([auto for _prompt, auto in with_auto])]
    same = f"{sum(prompt.has_same_text for prompt in prompts)} of {len(prompts)}"
    return [str(threads), task, *speeds, *ratios, _tokens_per_step([auto for _prompt, auto in with_auto]), same]


def _tokens_per_second(runs: Sequence[tuple[ComparedPrompt, TimedRun]]) -> str:
    seconds = sum(run.seconds for _prompt, run in runs)
    return f"{sum(prompt.tokens_in(run) for prompt, run in runs) / seconds:.1f}" if seconds else ""


def _ratio(pairs: Sequence[PairedRuns]) -> str:
    return MedianRange.from_values(pair.speedup for pair in pairs).to_text(2) if pairs else ""


def _tokens_per_step(pairs: Sequence[PairedRuns]) -> str:
    runs = [run for pair in pairs for run in pair.ours]
    steps = sum(run.target_passes for run in runs)
    return f"{sum(len(run.tokens) for run in runs) / steps:.2f}" if steps else ""


def explanation(profile: Profile, max_tokens: int) -> str:
    """What was measured and how, for below the table."""
    date, file = time.strftime("%Y-%m-%d"), gguf_file(profile)
    weights = plan_load(profile, compute_features()).target.options.quant_format
    return f"""\
{date}: {file.name} in both, ours with --weights {weights}; greedy, answers of at most {max_tokens} tokens.
A ratio is seconds per token with the prompt, those of llama.cpp by ours: median (lowest-highest) of the prompts; above
1 ours is faster. Each prompt runs plain, auto, llama.cpp, llama.cpp, auto, plain. The time of tokens/s has the prompt
in it, too; "read 512" has the tokens of a prompt, by the seconds to the first token of the answer.
auto is measured as in a conversation that is under way: it has answered another question of this kind before,
unmeasured, and learned from it. Its time, with template and tokenizing, ends with the last text: behind that, the
engine measures plain passes for the speed that it shows.
Same text: the prompts to which plain and auto wrote what llama.cpp wrote."""
