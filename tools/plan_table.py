"""Writes the table of docs/models.md that shows what is loaded of today's models on GPUs of several sizes.

Each cell is the plan of `specchat vram -P` for a profile with that target, its first drafter and the default context.
Nothing is downloaded or loaded.

    python -m tools.plan_table
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from specchat.devices import CPU, FLOAT_FORMAT
from specchat.hub.catalog import CatalogEntry, catalog
from specchat.hub.machine import Device, Machine, simulated_gpu
from specchat.hub.memory_plan import GIB
from specchat.loading.fitted_plan import plan_for_machine
from specchat.loading.load_plan import LoadPlan
from specchat.profile.keys import Profile
from specchat_bench.columns import markdown_table

PAGE = Path(__file__).parents[1] / "docs" / "models.md"
BEGIN, END = "<!-- plans -->\n", "<!-- end of plans -->"
SIZES_GB = (8, 12, 16, 24, 48)
MODELS = (
    "openbmb/MiniCPM5-2B", "Qwen/Qwen3-8B", "google/gemma-4-12B-it", "openai/gpt-oss-20b",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct", "ibm-granite/granite-4.1-30b",
)  # fmt: skip
MAIN_MEMORY = Device(CPU, "a CPU", 64 * GIB, 64 * GIB)


def profile_of(entry: CatalogEntry) -> Profile:
    """With the first head that the engine runs, or else the first draft model."""
    heads = [entry.usable_heads[0].id] if entry.usable_heads else []
    draft = entry.draft_models[0] if entry.draft_models and not heads else ""
    return Profile().override({"models.target": entry.id, "models.draft": draft, "models.heads": heads})


def cell(plan: LoadPlan, *, had_drafter: bool) -> str:
    memory = plan.memory()
    if plan.refusal or memory is None:
        return "does not fit"
    chosen = plan.target.options.quant_format
    weights = "bf16" if chosen == FLOAT_FORMAT else chosen
    has_drafter = plan.draft is not None or plan.heads
    lost = "" if has_drafter or not had_drafter else ", no drafter"
    there, count = memory.main_memory_bytes / GIB, plan.target.options.cpu_layers
    beside = f", and {there:.1f} beside it ({count} layers)" if count else ""
    return f"{weights}{lost}, {plan.context_tokens}: {memory.total_bytes / GIB:.1f}{beside}"


def rows() -> Iterator[list[str]]:
    for name in MODELS:
        entry = catalog()[name]
        profile = profile_of(entry)
        drafter = next(iter((*profile.models.heads, profile.models.draft)), "") or "none"
        plans = (plan_for_machine(profile, Machine((simulated_gpu(size), MAIN_MEMORY))) for size in SIZES_GB)
        yield [name, drafter, *(cell(plan, had_drafter=drafter != "none") for plan in plans)]


def table() -> str:
    return markdown_table(["target", "drafter", *(f"{size} GB" for size in SIZES_GB)], list(rows()))


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: f"{BEGIN}{table()}\n{END}", page), encoding="utf-8")


if __name__ == "__main__":
    main()
