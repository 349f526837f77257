"""Real edits by a scripted model that is always right: is its text taken, in every style in which models answer?

The new version of each file is the answer, once in each style: bare, in a fence, with talk before or after it, in one
of two blocks, as a unified diff, and as search/replace blocks; and once each by a lazy model, by one that loses a
statement or a call, and by one that changes a number, where nothing was to change. An edit is *taken* when `specchat
edit` would have a new text, and *right* when it is the new version; `-y` writes what needs no review.

    python -m tools.answer_styles --prompts commit_edits.jsonl --prompts editeval.jsonl
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Event as Flag

import click

from specchat.app.edit_task import EditJob, run_edit
from specchat.chat.events import Event, Finished, Routed, TextDelta, Totals
from specchat.chat.request import Request
from specchat.edit.edit_turn import EditRun, result_of
from specchat.edit.hunks import diff_lines, split_lines, unified_diff
from specchat.edit.source_text import make_source
from specchat.errors import SpecchatError
from specchat.syntax import language_of, syntax_diagnostics
from specchat.syntax.statements import Statement, statements
from specchat_bench.columns import markdown_table
from tools.replay_edits import EditCase, read_edit_cases

WINDOW_TOKENS = 10**6
DELTA_CHARACTERS = 40
COMMENT_SIGNS = {"python": "#", "toml": "#", "yaml": "#", "markdown": "<!--"}
NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


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


def kept_statements(name: str, old: str, new: str) -> list[Statement]:
    """The statements of a new text on lines that it shares with the old one, in an order that no text decides."""
    lines, changes = split_lines(new), diff_lines(split_lines(new), split_lines(old))
    touched = {line for change in changes for line in range(change.first, change.end + 2)}
    found = [
        each
        for each in statements(new, language_of(name))
        if each.text.strip() and touched.isdisjoint(range(each.line, each.last_line + 1)) and lines
    ]
    return sorted(found, key=lambda each: sha256(f"{new}{each.line}{each.kind}".encode()).digest())


def without_lines(text: str, statement: Statement) -> str:
    lines = text.split("\n")
    return "\n".join([*lines[: statement.line - 1], *lines[statement.last_line :]])


def without_first(name: str, text: str, found: Iterable[Statement]) -> str:
    """The text without the first of these statements without which it still parses; "" where none can go."""
    shorter = (without_lines(text, each) for each in found)
    return next((each for each in shorter if is_valid(name, each)), "")


def without_a_statement(name: str, old: str, new: str) -> str:
    """The new text without a statement at the top level, or of a class, that was not to change."""
    found = [each for each in kept_statements(name, old, new) if not (each.is_inner or each.is_import)]
    return without_first(name, new, found)


def without_a_call(name: str, old: str, new: str) -> str:
    """The new text without a call, alone in its line in a function, that was not to change."""
    found = [each for each in kept_statements(name, old, new) if each.is_inner and each.kind == "call"]
    return without_first(name, new, found)


def without_an_inner_statement(name: str, old: str, new: str) -> str:
    """The new text without a statement of a function that was not to change."""
    return without_first(name, new, [each for each in kept_statements(name, old, new) if each.is_inner])


def with_another_constant(name: str, old: str, new: str) -> str:
    """The new text with another number in a statement that was not to change."""
    for each in kept_statements(name, old, new):
        lines = new.split("\n")
        line = lines[each.line - 1]
        if each.line == each.last_line and (number := NUMBER.search(line)) and not each.is_import:
            lines[each.line - 1] = f"{line[: number.start()]}{int(number[0]) + 1}{line[number.end() :]}"
            return "\n".join(lines)
    return ""


def promise(name: str) -> str:
    """The comment that a lazy model writes in the place of the rest of a file."""
    sign = COMMENT_SIGNS.get(language_of(name), "//")
    return f"{sign} ... rest of the code unchanged ..."


def half(name: str, text: str) -> str:
    """The first half of a text, and a promise."""
    lines = text.split("\n")
    return "\n".join([*lines[: len(lines) // 2], promise(name)])


def lazy(name: str, old: str, new: str) -> str:
    """The new text up to its last change, and a promise."""
    changes, lines = diff_lines(split_lines(new), split_lines(old)), split_lines(new)
    end = changes[-1].end if changes else len(lines)
    return f"{''.join(lines[:end])}{promise(name)}\n" if end + 3 < len(lines) else ""


def is_same(text: str, wanted: str) -> bool:
    """Whether a text is the new version but for blanks in lines and blank lines, which stay those of the file."""
    sides = (text.split("\n"), wanted.split("\n"))
    lines, wanted_lines = ([bare for line in side if (bare := "".join(line.split()))] for side in sides)
    return lines == wanted_lines and (not is_python(wanted) or _tree(text) == _tree(wanted))


def _tree(text: str) -> str:
    return ast.dump(ast.parse(re.sub(r"[ \t]+$|^[ \t]*\n", "", text, flags=re.MULTILINE)))


def is_valid(name: str, text: str) -> bool:
    """Whether a text of a file of this name parses."""
    language = language_of(name)
    return is_python(text) if language == "python" else not syntax_diagnostics(text, language)


def is_python(text: str) -> bool:
    try:
        compile(text, "text", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


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
    "lazy": lazy,
    "a statement lost": without_a_statement,
    "a statement of a function lost": without_an_inner_statement,
    "a call lost": without_a_call,
    "a constant changed": with_another_constant,
    "nothing but a constant changed": lambda name, old, _new: with_another_constant(name, old, old),
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

    asked: int = 0
    taken: int = 0
    right: int = 0
    unreviewed: int = 0
    wrong: int = 0
    answers: int = 0
    problems: list[str] = field(default_factory=list[str])


def measure_style(style: str, cases: Sequence[EditCase]) -> StyleCounts:
    counts = StyleCounts()
    for case in cases:
        assert case.after is not None
        if not (answer := STYLES[style](case.path, case.before, case.after)):
            continue
        counts.asked += 1
        model = PerfectModel(answer)
        job = EditJob(make_source(case.before.encode(), case.path), case.instruction, WINDOW_TOKENS)
        try:
            result = result_of(run_edit(job, EditRun(model)))
            text = result.text
        except SpecchatError as error:
            counts.problems.append(f"{case.path}: {case.instruction.splitlines()[0]}: {error}")
        else:
            counts.taken += 1
            is_right, is_written = is_same(text, case.after), not result.warnings.worst_problem
            counts.right += is_right
            counts.unreviewed += is_written and is_right
            counts.wrong += is_written and not is_right
            if not (is_right and is_written):
                why = result.warnings.summary or ("put back" if result.warnings.put_back else "not seen")
                counts.problems.append(f"{case.path}: {case.instruction.splitlines()[0]}: {why}")
        counts.answers += len(model.requests)
    return counts


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--prompts", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True, multiple=True)
@click.option("--problems", "shows_problems", is_flag=True, help="name each edit that was not taken, and why")
@click.option("--style", "styles", type=click.Choice([*STYLES]), multiple=True, help="all by default")
def main(prompts: Sequence[Path], shows_problems: bool, styles: Sequence[str]) -> None:
    """Print a table with a row for each style."""
    cases = [case for path in prompts for case in read_edit_cases(path) if case.after not in (None, case.before)]
    rows = list[list[str]]()
    for style in styles or STYLES:
        counts = measure_style(style, cases)
        refused = counts.asked - counts.unreviewed - counts.wrong
        shares = [str(each) for each in (counts.asked, counts.taken, counts.right)]
        results = [str(each) for each in (counts.unreviewed, refused, counts.wrong)]
        rows.append([style, *shares, *results, f"{counts.answers / max(1, counts.asked):.2f}"])
        for problem in counts.problems if shows_problems else ():
            click.echo(f"{style}: {problem}", err=True)
    click.echo(
        markdown_table(["style", "asked", "taken", "right", "-y right", "-y refused", "-y wrong", "answers"], rows)
    )


if __name__ == "__main__":
    main()
