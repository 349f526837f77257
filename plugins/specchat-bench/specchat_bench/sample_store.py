"""Measured samples on disk, one JSON line each: an interrupted bench resumes where it stopped.

The file is named by everything that the numbers depend on. A line that was cut off is ignored.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

from specchat_bench.combinations import Combination, Sample


class SampleStore:
    """Samples by combination and prompt; kept on disk where a path is given."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._samples: dict[tuple[Combination, str], Sample] = {}
        if path is not None and path.is_file():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                if (sample := _parse_sample(line)) is not None:
                    self._samples[sample.combination, sample.prompt_hash] = sample

    def __len__(self) -> int:
        return len(self._samples)

    def get(self, combination: Combination, prompt_hash: str) -> Sample | None:
        return self._samples.get((combination, prompt_hash))

    def add(self, sample: Sample) -> None:
        """Store a sample at once. A disk that fails loses only the ability to resume."""
        self._samples[sample.combination, sample.prompt_hash] = sample
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" + json.dumps(asdict(sample)))  # the last line may have been cut off
        except OSError:
            return

    def discard(self) -> None:
        """Delete the file; the samples in memory stay."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def store_path(folder: Path, dependencies: Mapping[str, Any]) -> Path:
    encoded = json.dumps(dict(dependencies), sort_keys=True, default=str)
    return folder / "bench" / f"{blake2b(encoded.encode(), digest_size=12).hexdigest()}.jsonl"


def _parse_sample(line: str) -> Sample | None:
    """One line of the file; None where it is cut off or has other fields."""
    try:
        row: dict[str, Any] = json.loads(line)
        for name in ("passes_by_depth", "accepted_by_depth"):
            row[name] = {int(depth): int(count) for depth, count in row[name].items()}
        row["combination"], row["text_intervals"] = Combination(**row["combination"]), tuple(row["text_intervals"])
        return Sample(**row)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
