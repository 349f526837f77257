"""How often each format of an answer led to a new text, by model: what decides which one is asked for first.

One file beside the history has counts by hashes of models, and nothing of a text or an instruction. A file that is
damaged, or something else, counts as none. Knows no model.
"""

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from specchat.edit.edit_plan import FORMATS
from specchat.host.spawn import history_path
from specchat.paths import read_json_object, write_atomically

MIN_EDITS, MAX_COUNT, MAX_MODELS = 8, 64, 32  # fewer edits in a format say nothing
UNKNOWN_SUCCESS = 0.5
AT_ONCE, REPAIRED, FAILED = OUTCOMES = ("at once", "repaired", "failed")  # repaired: after it was told of an error
SHORT, LONG = LENGTHS = ("short", "long")  # texts
KEYS = set(map(", ".join, product(FORMATS, LENGTHS, OUTCOMES)))


def measured_success(counts: Mapping[str, int], key: str) -> tuple[float, str]:
    """The share of edits whose text was taken, of which repaired ones count half, and the numbers in words, if any."""
    at_once, repaired, failed = (counts.get(f"{key}, {each}", 0) for each in OUTCOMES)
    if (edits := at_once + repaired + failed) < MIN_EDITS:
        return UNKNOWN_SUCCESS, ""
    return (at_once + repaired / 2) / edits, f"{at_once + repaired} of {edits} were taken"


def read_counts() -> dict[str, dict[str, int]]:
    """What was counted, by model."""
    content = read_json_object(_path())
    is_ours = all(isinstance(each, dict) and all(map(_is_count, each.items())) for each in content.values())
    return content if is_ours else {}


def add_counts(model: str, counts: Counter[str]) -> None:
    """Count these edits, too. Old ones fade, also those of a format that is not tried any more: it gets its place back.

    If the disk refuses, they are not counted.
    """
    stored = read_counts()
    own = Counter(stored.pop(model, {})) + counts
    while max(own.values()) > MAX_COUNT:
        own = Counter({key: number // 2 for key, number in own.items()})
    with suppress(OSError):
        write_atomically(_path(), json.dumps(dict([*stored.items(), (model, own)][-MAX_MODELS:])), mode=0o600)


def _path() -> Path:
    return history_path().with_name("edit_formats.json")


def _is_count(item: tuple[str, Any]) -> bool:
    return item[0] in KEYS and isinstance(item[1], int) and 0 <= item[1] <= MAX_COUNT
