"""What a sweep has measured, an answer a line: it can be ended at any time, and begins again where it ended.

The file is named by all that the numbers depend on. A line that was cut off when the machine went down is no line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

from specchat.bench.sweep_cells import Combination, SweepSample


class SampleStore:
    """Samples by combination and prompt; on disk too, where a path is given."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._samples: dict[tuple[Combination, str], SweepSample] = {}
        if path is not None and path.is_file():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                if (sample := _parse_sample(line)) is not None:
                    self._samples[sample.combination, sample.prompt_hash] = sample

    def __len__(self) -> int:
        return len(self._samples)

    def get(self, cell: Combination, prompt: str) -> SweepSample | None:
        """What was measured of this; None when nothing was."""
        return self._samples.get((cell, prompt))

    def add(self, sample: SweepSample) -> None:
        """Keep an answer, on disk before anything else is measured. A disk that refuses costs the resuming alone."""
        self._samples[sample.combination, sample.prompt_hash] = sample
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" + json.dumps(asdict(sample)))  # begins a line, whatever the last one came to
        except OSError:
            return

    def discard(self) -> None:
        """Begin anew the next time; what was read stays readable here."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def store_path(folder: Path, key_values: Mapping[str, Any]) -> Path:
    """The file for a sweep of which all this is true."""
    spelled = json.dumps(dict(key_values), sort_keys=True, default=str)
    return folder / "sweeps" / f"{blake2b(spelled.encode(), digest_size=12).hexdigest()}.jsonl"


def _parse_sample(line: str) -> SweepSample | None:
    """A line of the file, or None for what is none, or one of another time."""
    try:
        row: dict[str, Any] = json.loads(line)
        for name in ("depths", "kept"):
            row[name] = {int(depth): int(count) for depth, count in row[name].items()}
        row["cell"], row["gaps"] = Combination(**row["cell"]), tuple(row["gaps"])
        return SweepSample(**row)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
