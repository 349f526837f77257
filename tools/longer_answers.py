"""`auto` beside plain decoding in answers of 300 tokens, by weights and threads: a table of docs/variants.md.

    python -m tools.longer_answers PROMPTS measured/ --fresh 12 > table.md

PROMPTS is a folder with `chat.jsonl`, `code.jsonl` and `edit.jsonl`. Each setting is one `specchat bench drafters`,
whose JSON is kept in the folder MEASURED: what is there is not measured again. With `--fresh`, so many prompts of each
kind are also answered by a process each, whose costs and acceptance are those that its home remembers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from statistics import median
from typing import Any

import click

from specchat.errors import SpecchatError
from specchat_bench.columns import markdown_table
from tools.instrument import run_instrument

KINDS = "chat", "code", "edit"
HEADER = "weights", "threads", "kind", "T", "answers", "`auto`", "95 %", "tokens/step", "pass", "drafting", "identical"


@dataclass(frozen=True)
class Setting:
    """What is measured in one run: the format of the weights, and the threads of a pass."""

    weights: str
    threads: int

    @property
    def name(self) -> str:
        return f"{self.weights}-{self.threads}"

    def measure(self, prompts: Path, options: Sequence[str], into: Path) -> list[dict[str, Any]]:
        """The rows of the bench, from the file where they have been measured before."""
        if not into.exists():
            into.parent.mkdir(parents=True, exist_ok=True)
            command = sys.executable, "-m", "specchat", "bench", "drafters", str(prompts), "--drafters", "auto"
            place = "--weights", self.weights, "--threads", str(self.threads), "--json", str(into)
            if subprocess.run((*command, *options, *place), stdout=subprocess.DEVNULL, check=False).returncode:
                into.unlink(missing_ok=True)
                raise SpecchatError(f"{self.name}: the bench did not end; its message is above")
        return json.loads(into.read_text())["rows"]


def prompt_files(prompts: Path, kind: str, count: int, folder: Path) -> Iterator[Path]:
    """The first prompts of a kind, each in a file of its own, which says the kind."""
    with (prompts / f"{kind}.jsonl").open() as lines:
        for place, line in enumerate(islice(lines, count)):
            alone = folder / str(place) / f"{kind}.jsonl"
            alone.parent.mkdir(exist_ok=True)
            alone.write_text(line)
            yield alone


def drafted(rows: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["drafter"] == "auto" and row["kind"] == kind]


def table_row(setting: Setting, row: dict[str, Any]) -> tuple[str, ...]:
    low, high = row["speedup_interval"]
    return (
        setting.weights, str(setting.threads), row["kind"], f"{row['temperature']:g}", str(row["answers"]),
        f"{row['speedup']:.2f}", f"{low:.2f} to {high:.2f}", f"{row['tokens_per_step']:.2f}",
        f"{row['pass_cost']:.2f}", f"{row['draft_cost']:.2f}", f"{row['identical']} of {row['answers']}",
    )  # fmt: skip


def fresh_row(setting: Setting, rows: Sequence[dict[str, Any]], kind: str, temperature: float) -> tuple[str, ...]:
    """The median of processes that answered one prompt each."""
    rows = [row for row in drafted(rows, kind) if row["temperature"] == temperature]
    speedups = sorted(row["speedup"] for row in rows)
    identical = sum(row["identical"] for row in rows)
    return (
        setting.weights, str(setting.threads), kind, f"{temperature:g}", str(len(rows)), f"{median(speedups):.2f}",
        f"{speedups[0]:.2f} to {speedups[-1]:.2f}", f"{identical} of {len(rows)}",
    )  # fmt: skip


@click.command("longer_answers")
@click.argument("prompts", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("measured", type=click.Path(file_okay=False, path_type=Path))
@click.option("--target", default="starter", show_default=True)
@click.option("--weights", default="gguf,float", show_default=True, help="Formats, separated by commas.")
@click.option("--threads", default="1,2", show_default=True)
@click.option("--count", default=40, show_default=True, help="Prompts of each kind.")
@click.option("--fresh", default=0, show_default=True, help="Prompts with a process each.")
@click.option("--limit", default=300, show_default=True, help="Most tokens of an answer.")
@click.option("--temperatures", default="0,0.2,0.8", show_default=True)
def main(
    prompts: Path, measured: Path, target: str, weights: str, threads: str, count: int, fresh: int, limit: int,
    temperatures: str,
) -> None:  # fmt: skip
    """`auto` beside plain decoding, as a table of Markdown."""
    options = ("--target", target, "--limit", str(limit), "--temperatures", temperatures)
    kinds = [option for kind in KINDS for option in ("--kind", kind)]
    settings = [Setting(each, int(number)) for number, each in product(threads.split(","), weights.split(","))]
    rows = list[tuple[str, ...]]()
    for setting in settings:
        found = setting.measure(prompts, (*options, *kinds, "--count", str(count)), measured / f"{setting.name}.json")
        rows += [table_row(setting, row) for kind in KINDS for row in drafted(found, kind)]
    click.echo(markdown_table(HEADER, rows))
    if not fresh:
        return
    setting, fresh_rows = Setting(settings[0].weights, 1), list[tuple[str, ...]]()
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            files = enumerate(prompt_files(prompts, kind, fresh, Path(folder)))
            asked, kept = (*options, "--kind", kind, "--count", "1"), measured / "alone"
            alone = [
                row for place, each in files for row in setting.measure(each, asked, kept / f"{kind}-{place}.json")
            ]
        numbers = [float(each) for each in temperatures.split(",")]
        fresh_rows += [fresh_row(setting, alone, kind, number) for number in numbers]
    click.echo("\nEach answer by a process of its own:\n")
    click.echo(markdown_table((*HEADER[:6], "range", HEADER[-1]), fresh_rows))


if __name__ == "__main__":
    sys.exit(run_instrument(main))
