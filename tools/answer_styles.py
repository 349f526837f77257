"""Real edits by a scripted model that is always right: is its text taken, in every style in which models answer?

The new version of each file is the answer, once in each style: bare, in a fence, with talk before or after it, in one
of two blocks, as a unified diff, and as search/replace blocks; and once without the last of its statements that was
not to change. An edit is *taken* when `specchat edit` would have a new text, *right* when it is the new version, and
*written by -y* when it needs no review.

    python -m tools.answer_styles --prompts commit_edits.jsonl --prompts editeval.jsonl
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag

import click

from specchat.bench.columns import markdown_table
from specchat.chat.events import Event, Finished, Routed, TextDelta, Totals
from specchat.chat.request import Request
from specchat.edit.edit_task import EditJob, run_edit
from specchat.edit.edit_turn import EditRun, result_of
from specchat.edit.hunks import diff_lines, split_lines, unified_diff
from specchat.edit.source_text import make_source
from specchat.errors import SpecchatError
from specchat.syntax.statements import statements
from tools.replay_edits import EditCase, read_edit_cases

WINDOW_TOKENS = 10**6
DELTA_CHARACTERS = 40


def fenced(text: str, language: str = "python") -> str:
    """A text in a fence that is longer than those inside."""
    marks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{marks}{language}\n{_ended(text)}{marks}"


def search_blocks(name: str, old: str, new: str) -> str:
    """The search/replace blocks of an edit, as aider asks for them, each with enough lines to have one place."""
    lines, new_lines, blocks = split_lines(old), split_lines(new), list[str]()
    for span in _unique_spans(lines, new_lines):
        searched, replaced = "".join(lines[span.first : span.end]), "".join(new_lines[span.new_first : span.new_end])
        blocks.append(f"<<<<<<< SEARCH\n{_ended(searched)}=======\n{_ended(replaced)}>>>>>>> REPLACE")
    return "\n\n".join(f"{name}\n```python\n{block}\n```" for block in blocks)


@dataclass(frozen=True)
class Span:
    """Old lines and the new ones in their place, each from `first` to before `end`, from 0."""

    first: int
    end: int
    new_first: int
    new_end: int

    def extended(self, old: Sequence[str]) -> Span:
        """This span with the lines before it, or after it, that make the old ones unique."""
        span = self
        while span.end < len(old) or span.first:
            lines = old[span.first : span.end]
            if "".join(lines).strip() and _count(old, lines) == 1:
                break
            if span.first:
                span = Span(span.first - 1, span.end, span.new_first - 1, span.new_end)
            else:
                span = Span(span.first, span.end + 1, span.new_first, span.new_end + 1)
        return span


def _unique_spans(old: Sequence[str], new: Sequence[str]) -> list[Span]:
    """The changes, each with lines around it that make it unique; those that then touch are one."""
    spans, shift = list[Span](), 0
    for change in diff_lines(old, new):
        new_first = change.first + shift
        shift += len(change.new) - len(change.old)
        span = Span(change.first, change.end, new_first, change.end + shift).extended(old)
        while spans and spans[-1].end >= span.first:
            earlier = spans.pop()
            merged = Span(
                min(earlier.first, span.first), max(earlier.end, span.end),
                min(earlier.new_first, span.new_first), max(earlier.new_end, span.new_end),
            )  # fmt: skip
            span = merged.extended(old)
        spans.append(span)
    return spans


def _count(lines: Sequence[str], wanted: Sequence[str]) -> int:
    size = len(wanted)
    return sum(list(lines[place : place + size]) == list(wanted) for place in range(len(lines) - size + 1))


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def with_usage(name: str, _old: str, new: str) -> str:
    """The file, and how to run it, each in a block."""
    usage = f"pip install x\npython {name}"
    return f"Here is the file:\n\n{fenced(new)}\n\nRun it:\n\n{fenced(usage, 'sh')}"


def fenced_diff(name: str, old: str, new: str) -> str:
    """A unified diff amid talk."""
    diff = fenced(unified_diff(name, old, new), "diff")
    return f"The changes:\n\n{diff}\n\nApply them with `git apply`."


def without_a_statement(_name: str, old: str, new: str) -> str:
    """The new text without the last statement at the top level that the old one has, too."""
    known, lines = {each.words for each in statements(old, "python")}, new.split("\n")
    for each in reversed(statements(new, "python")):
        if each.owner < 0 and not each.is_import and each.words in known:
            end = each.line + each.text.count("\n")
            return "\n".join([*lines[: each.line - 1], *lines[end:]])
    return ""


# Each makes the answer from the name of the file, the old and the new text.
STYLES: Mapping[str, Callable[[str, str, str], str]] = {
    "bare": lambda _name, _old, new: new,
    "fenced": lambda _name, _old, new: fenced(new),
    "fence not closed": lambda _name, _old, new: fenced(new).rpartition("\n")[0],
    "talk before": lambda _name, _old, new: f"Sure! Here is the updated code:\n\n{fenced(new)}",
    "talk after": lambda _name, _old, new: f"{fenced(new)}\n\nI made the change that you asked for, and kept the rest.",
    "old and new block": lambda _name, old, new: f"Before:\n\n{fenced(old)}\n\nAfter:\n\n{fenced(new)}\n",
    "new block and usage": with_usage,
    "unified diff": unified_diff,
    "unified diff in a fence": fenced_diff,
    "search/replace": search_blocks,
    "a statement lost": without_a_statement,
}


@dataclass
class PerfectModel:
    """A conversation that gives one answer to every request."""

    answer: str
    requests: list[Request] = field(default_factory=list[Request])

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]:
        """The answer, in deltas of some characters."""
        self.requests.append(request)
        yield Routed("plain", 0, "scripted", 0)
        for start in range(0, len(self.answer), DELTA_CHARACTERS):
            if cancelled.is_set():
                break
            yield TextDelta(self.answer[start : start + DELTA_CHARACTERS])
        yield Finished("cancelled" if cancelled.is_set() else "stop", Totals(completion_tokens=len(self.answer) // 4))


@dataclass
class StyleCounts:
    """The results of one style; `problems` has the reason of each edit that was not taken."""

    taken: int = 0
    right: int = 0
    unreviewed: int = 0
    answers: int = 0
    problems: list[str] = field(default_factory=list[str])


def measure_style(style: str, cases: Sequence[EditCase]) -> StyleCounts:
    counts = StyleCounts()
    for case in cases:
        assert case.after is not None
        model = PerfectModel(STYLES[style](case.path, case.before, case.after))
        job = EditJob(make_source(case.before.encode(), case.path), case.instruction, WINDOW_TOKENS)
        try:
            result = result_of(run_edit(job, EditRun(model)))
            text = result.text
        except SpecchatError as error:
            counts.problems.append(f"{case.path}: {case.instruction.splitlines()[0]}: {error}")
        else:
            counts.taken += 1
            counts.unreviewed += result.warnings.worst_problem is None
            counts.right += text.rstrip("\n") == case.after.rstrip("\n")
        counts.answers += len(model.requests)
    return counts


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--prompts", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True, multiple=True)
@click.option("--problems", "shows_problems", is_flag=True, help="name each edit that was not taken, and why")
def main(prompts: Sequence[Path], shows_problems: bool) -> None:
    """Print a table with a row for each style."""
    cases = [case for path in prompts for case in read_edit_cases(path) if case.after not in (None, case.before)]
    rows = list[list[str]]()
    for style in STYLES:
        counts = measure_style(style, cases)
        total = len(cases)
        shares = [f"{count} of {total}" for count in (counts.taken, counts.right, counts.unreviewed)]
        rows.append([style, *shares, f"{counts.answers / total:.2f}"])
        for problem in counts.problems if shows_problems else ():
            click.echo(f"{style}: {problem}", err=True)
    click.echo(markdown_table(["style", "taken", "right", "written by -y", "answers per edit"], rows))


if __name__ == "__main__":
    main()
