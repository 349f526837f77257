"""A sweep as it is printed, written to files, and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.bench.client_latency import ClientLatency, as_rows
from specchat.bench.client_latency import as_table as as_client_table
from specchat.bench.sweep_cells import Grid, SweepSample
from specchat.bench.sweep_plot import draw_sweep
from specchat.bench.sweep_report import CombinationResult, as_csv, as_json, as_table, group_samples, recommendations
from specchat.errors import InputError


@dataclass(frozen=True)
class SweepReport:
    """A sweep as it is printed, written and drawn."""

    samples: Sequence[SweepSample]
    grid: Grid
    skipped: Mapping[str, str]
    is_complete: bool
    metadata: Mapping[str, Any]
    client_latencies: tuple[ClientLatency, ...] = ()

    @property
    def rows(self) -> list[CombinationResult]:
        """By combination."""
        return group_samples(self.samples, self.grid)

    def to_text(self) -> str:
        """Table, words, and what a client saw."""
        words = [f"{kind}: {each}" for kind, each in recommendations(self.rows).items()]
        client = ["", "seen by a client of the engine process:", "", as_client_table(self.client_latencies)] * bool(
            self.client_latencies
        )
        missing = ["", *self.skipped.values()] if self.skipped else []
        return "\n".join([as_table(self.rows), "", *words, *client, *missing])

    def write(self, json_file: Path | None, csv_file: Path | None, picture: Path | None) -> None:
        """The files that were asked for. InputError when one cannot be written."""
        about = {**self.metadata, "is_whole": self.is_complete, "client": as_rows(self.client_latencies)}
        title = (
            f"{self.metadata['target']} on {self.metadata['device']}, {self.metadata['dtype']}, {self.metadata['date']}"
        )
        try:
            if json_file is not None:
                json_file.write_text(as_json(self.rows, about, self.skipped), encoding="utf-8")
            if csv_file is not None:
                csv_file.write_text(as_csv(self.rows), encoding="utf-8")
            if picture is not None:
                draw_sweep(self.rows, picture, title)
        except OSError as error:
            raise InputError(f"{error.filename}: cannot be written: {error.strerror}") from error
