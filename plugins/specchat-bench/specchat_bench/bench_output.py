"""A bench as it is printed and written to files."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.errors import InputError
from specchat.loading.load_engine import Engine
from specchat_bench.columns import CombinationResult, as_csv, as_json, as_table, recommendations
from specchat_bench.combinations import Grid


@dataclass(frozen=True)
class BenchReport:
    rows: Sequence[CombinationResult]
    columns: Sequence[str]
    skipped: Mapping[str, str]  # drafters that cannot run, and why
    metadata: Mapping[str, Any]

    def to_text(self) -> str:
        sentences = [f"{kind}: {sentence}" for kind, sentence in recommendations(self.rows).items()]
        skipped = ["", *(f"{name}: {reason}" for name, reason in self.skipped.items())] if self.skipped else []
        return "\n".join([as_table(self.rows, self.columns), "", *sentences, *skipped])

    def write(self, json_file: Path | None, csv_file: Path | None) -> None:
        """Write the requested files. InputError when one cannot be written."""
        try:
            if json_file is not None:
                json_file.write_text(as_json(self.rows, self.metadata, self.skipped), encoding="utf-8")
            if csv_file is not None:
                csv_file.write_text(as_csv(self.rows), encoding="utf-8")
        except OSError as error:
            raise InputError(f"{error.filename}: cannot be written: {error.strerror}") from error


def bench_metadata(engine: Engine, grid: Grid, count: int) -> dict[str, Any]:
    models, layout = engine.models.profile.models, engine.models.target.pool.layout
    return {
        "date": time.strftime("%Y-%m-%d"), "target": models.target, "draft": models.draft, "heads": list(models.heads),
        "device": str(layout.device), "dtype": str(layout.dtype).removeprefix("torch."), "machine": platform.machine(),
        "max_tokens": grid.max_tokens, "prompts_of_each_kind": count,
    }  # fmt: skip
