"""A sweep as it is printed, written to files, and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.bench.latency_host import Waited, as_rows
from specchat.bench.latency_host import as_table as as_client_table
from specchat.bench.sweep_cells import Grid, Sample
from specchat.bench.sweep_plot import draw
from specchat.bench.sweep_report import Measured, as_csv, as_json, as_table, measured, recommended
from specchat.errors import InputError


@dataclass(frozen=True)
class Report:
    """A sweep as it is printed, written and drawn."""

    samples: Sequence[Sample]
    grid: Grid
    skipped: Mapping[str, str]
    is_whole: bool
    about: Mapping[str, Any]
    waited: tuple[Waited, ...] = ()

    @property
    def rows(self) -> list[Measured]:
        """By combination."""
        return measured(self.samples, self.grid)

    def text(self) -> str:
        """Table, words, and what a client saw."""
        words = [f"{kind}: {each}" for kind, each in recommended(self.rows).items()]
        client = ["", "seen by a client of the engine process:", "", as_client_table(self.waited)] * bool(self.waited)
        missing = ["", *self.skipped.values()] if self.skipped else []
        return "\n".join([as_table(self.rows), "", *words, *client, *missing])

    def write(self, json_file: Path | None, csv_file: Path | None, picture: Path | None) -> None:
        """The files that were asked for. InputError when one cannot be written."""
        about = {**self.about, "is_whole": self.is_whole, "client": as_rows(self.waited)}
        title = f"{self.about['target']} on {self.about['device']}, {self.about['dtype']}, {self.about['date']}"
        try:
            if json_file is not None:
                json_file.write_text(as_json(self.rows, about, self.skipped), encoding="utf-8")
            if csv_file is not None:
                csv_file.write_text(as_csv(self.rows), encoding="utf-8")
            if picture is not None:
                draw(self.rows, picture, title)
        except OSError as error:
            raise InputError(f"{error.filename}: cannot be written: {error.strerror}") from error
