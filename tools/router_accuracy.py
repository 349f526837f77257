"""How often the router names the right kind: `python -m tools.router_accuracy --prompts FOLDER`.

What a prompt is follows from the set that it comes from and its category there, by the table below. Sets that the table
does not know are counted and not judged. Loads no model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specchat.chat.request import Attachment, Request
from specchat.chat.request_kinds import first_matching_rule
from specchat.errors import InputError, SpecchatError
from specchat.profile.keys import REQUEST_KINDS, Profile
from specchat.profile.profile_files import load_profile

ANY_CATEGORY = ""  # every category that is not named
MT_BENCH_KINDS = {
    "writing": "creative", "roleplay": "creative", "coding": "code", "extraction": "structured",
    "reasoning": "chat", "math": "chat", "stem": "chat", "humanities": "chat",
}  # fmt: skip
KINDS_BY_DATASET: Mapping[str, Mapping[str, str]] = {
    "aider_polyglot": {ANY_CATEGORY: "code"},
    "aider_refactor": {ANY_CATEGORY: "edit"},
    "commit_edits": {ANY_CATEGORY: "edit"},
    "editeval": {ANY_CATEGORY: "edit"},
    "gsm8k": {ANY_CATEGORY: "chat"},  # worked answers, not a number alone
    "humaneval": {ANY_CATEGORY: "code"},
    "mbpp": {ANY_CATEGORY: "code"},
    "mt_bench": MT_BENCH_KINDS,
    "spec_bench": MT_BENCH_KINDS | {
        "translation": "short", "summarization": "files", "qa": "short", "math_reasoning": "chat", "rag": "files",
    },
    "vicuna_bench": {"roleplay": "creative", "writing": "creative", "coding": "code", ANY_CATEGORY: "chat"},
}  # fmt: skip


@dataclass(frozen=True)
class LabelledRequest:
    """A request, and the kind that it should be taken for."""

    dataset: str
    request: Request
    kind: str


def read_requests(file: Path) -> Iterator[LabelledRequest]:
    """Rows with a `kind` and a `text` say it themselves; all others by the name of their set."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield _labelled(file.stem, json.loads(line))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise InputError(f"{file}:{number}: no request in this row: {error}") from error


def _labelled(source: str, row: Mapping[str, Any]) -> LabelledRequest:
    if "text" in row and row.get("kind") in REQUEST_KINDS:
        files = tuple(Attachment(file["name"], file["text"]) for file in row.get("files", ()))
        return LabelledRequest(source, Request(row["text"], files, task=row.get("task", "")), row["kind"])
    kinds = KINDS_BY_DATASET.get(source, {})
    kind = kinds.get(row.get("category", ANY_CATEGORY), kinds.get(ANY_CATEGORY, ""))
    if "before" in row:
        file = Attachment(row.get("path", "file.py"), row["before"])
        return LabelledRequest(source, Request(row["instruction"], (file,), task="edit"), kind)
    return LabelledRequest(source, Request(row["turns"][0]), kind)


@dataclass(frozen=True)
class ConfusionMatrix:
    """How many requests of each kind were taken for which, in all and by set."""

    counts: Mapping[tuple[str, str], int]  # (should be, was taken for)
    correct_by_dataset: Mapping[str, tuple[int, int]]  # right, of how many

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def accuracy(self) -> float:
        """Right ones by all."""
        return sum(self.counts.get((kind, kind), 0) for kind in REQUEST_KINDS) / max(1, self.total)

    def recall_of(self, kind: str) -> float | None:
        """Right ones by all of a kind; None when there was none."""
        of_kind = sum(self.counts.get((kind, taken), 0) for taken in REQUEST_KINDS)
        return self.counts.get((kind, kind), 0) / of_kind if of_kind else None


def predicted_kind(request: Request, profile: Profile) -> str:
    """What the rules of this profile take a request for."""
    rule = first_matching_rule(profile.routes, request, profile.sampling.temperature)
    return rule.kind if rule else "chat"


def confusion_matrix(requests: Iterable[LabelledRequest], profile: Profile) -> ConfusionMatrix:
    """Take every labelled request for something, and count."""
    counts: Counter[tuple[str, str]] = Counter()
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for each in requests:
        if not each.kind:
            continue
        taken = predicted_kind(each.request, profile)
        counts[each.kind, taken] += 1
        total[each.dataset] += 1
        right[each.dataset] += taken == each.kind
    return ConfusionMatrix(dict(counts), {source: (right[source], total[source]) for source in total})


def as_table(confusion: ConfusionMatrix) -> str:
    """Rows are what requests are, columns what they were taken for."""
    head = f"{'':12}" + "".join(f"{kind:>11}" for kind in REQUEST_KINDS) + f"{'right':>9}"
    lines = [head]
    for kind in REQUEST_KINDS:
        share = confusion.recall_of(kind)
        row = "".join(f"{confusion.counts.get((kind, taken), 0) or '·':>11}" for taken in REQUEST_KINDS)
        lines.append(f"{kind:12}{row}" + (f"{share:>9.0%}" if share is not None else f"{'-':>9}"))
    lines += [
        "",
        *(f"{name:18} {right:5} of {of}" for name, (right, of) in sorted(confusion.correct_by_dataset.items())),
    ]
    return "\n".join([*lines, "", f"{confusion.accuracy:.1%} of {confusion.total} right"])


def main(arguments: list[str] | None = None) -> int:
    """Print the table; with --wrong, what was taken for something else."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.router_accuracy", description="How often the router names the right kind."
    )
    parser.add_argument("--prompts", type=Path, required=True, help="a file of JSON lines, or a folder of them")
    parser.add_argument("--profile", default="chat", help="whose rules")
    parser.add_argument("--untold", action="store_true", help="edits come as a chat would ask for them, without a task")
    parser.add_argument("--wrong", action="store_true", help="list what was taken for something else")
    options = parser.parse_args(arguments)
    try:
        profile = load_profile(options.profile)
        found = list(_read_all(options.prompts, drops_task=options.untold))
    except SpecchatError as error:
        print(f"routes: {error}", file=sys.stderr)
        return error.exit_code
    if options.wrong:
        _print_misrouted(found, profile)
    print(as_table(confusion_matrix(found, profile)))
    unknown = Counter(each.dataset for each in found if not each.kind)
    for source, count in unknown.items():
        print(f"{source}: {count} requests of no known kind, left out")
    return 0


def _read_all(path: Path, *, drops_task: bool) -> Iterator[LabelledRequest]:
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path}: no *.jsonl in this folder")
    for file in files:
        try:
            for each in read_requests(file):
                yield replace(each, request=replace(each.request, task="")) if drops_task else each
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{file}: cannot be read as JSON lines: {error}") from error


def _print_misrouted(found: Iterable[LabelledRequest], profile: Profile) -> None:
    for each in found:
        if each.kind and (taken := predicted_kind(each.request, profile)) != each.kind:
            shown = " ".join(each.request.text[:160].split())
            print(f"{each.dataset}: {each.kind} taken for {taken}: {shown}")


if __name__ == "__main__":
    sys.exit(main())
