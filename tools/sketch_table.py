"""Sketches of real edits: how many are merged, and whether the result is the new version of the file.

A sketch is made from each commit by dropping what did not change, once in each style: with some lines around each
change, with the headers around it, as whole functions, as one function without its class, and with nothing around the
change; also with a gap marker left out, and as a diff or search/replace block of a file that has changed meanwhile. A
sketch that is not merged with certainty goes to a scripted model, once to one that always writes the new version, and
once to one that loses a statement. *Wrong* is a text that is written without a review and is another one than the
commit made. With --target, the answers are replayed: the tokens per step of drafters. With --repository, the commits
are those of a clone: of each one file that it changes by at most 60 lines, in a language of GRAMMARS.

    python -m tools.sketch_table --prompts commit_edits.jsonl --target embedded
    python -m tools.sketch_table --repository . --count 100
"""

from __future__ import annotations

import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import median

import click

from specchat.app.edit_task import EditJob, run_edit, sketch_instruction
from specchat.edit.edit_turn import EditRun, result_of
from specchat.edit.hunks import diff_lines, split_lines, unified_diff
from specchat.edit.source_text import make_source
from specchat.errors import SpecchatError
from specchat.hub.find_models import find_model
from specchat.syntax import definitions
from specchat.text.tokenizer import Tokenizer
from specchat_apply.merge import merge_sketch
from specchat_bench.columns import markdown_table
from tools.answer_styles import WINDOW_TOKENS, PerfectModel, fenced, is_same, without_a_statement
from tools.replay_edits import (
    DRAFTER_BY_NAME,
    SKIPPED_TOKENS,
    EditCase,
    TokenizedEdit,
    read_edit_cases,
    replay,
    tokenize_edits,
)

MAX_CHANGED_LINES, MIN_LINES, MAX_BYTES = 60, 20, 30_000
GRAMMARS = (".py", ".js", ".ts", ".go", ".rs", ".c", ".h", ".java")
REPLAYED = ("tokens_per_step", "draft_tokens_per_step")
MARKER = "# ... existing code ..."
LEFT_OUT = "a marker left out"


def git(repository: Path, *arguments: str) -> str:
    ran = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, check=True)
    return ran.stdout.decode("utf-8")


def commits_of(repository: Path, seed: int = 11) -> Iterator[EditCase]:
    """Commits of a clone in a random order."""
    commits = git(repository, "log", "--no-merges", "--format=%H", "--max-count=4000").split()
    source = random.Random(seed)
    source.shuffle(commits)
    for commit in commits:
        named = git(repository, "show", "--format=", "--name-status", "--no-renames", commit).splitlines()
        files = [line[2:] for line in named if line.startswith("M\t") and line.endswith(GRAMMARS)]
        if not files:
            continue
        path = source.choice(files)
        try:
            before, after = (git(repository, "show", f"{each}:{path}") for each in (f"{commit}^", commit))
        except (UnicodeDecodeError, subprocess.CalledProcessError):
            continue
        changes = diff_lines(split_lines(before), split_lines(after))
        size = sum(len(each.old) + len(each.new) for each in changes)
        if 0 < size <= MAX_CHANGED_LINES and before.count("\n") >= MIN_LINES and len(before) <= MAX_BYTES:
            yield EditCase(git(repository, "show", "-s", "--format=%s", commit).strip(), path, before, after)


def changed_lines(old: str, new: str) -> tuple[set[int], set[int]]:
    """The new lines that differ, from 0; and the places between two lines where old ones went."""
    changed, cuts, shift = set[int](), set[int](), 0
    for change in diff_lines(split_lines(old), split_lines(new)):
        first = change.first + shift
        changed.update(range(first, first + len(change.new)))
        cuts |= set() if any(line.strip() for line in change.new) else {first}
        shift += len(change.new) - len(change.old)
    return changed, cuts


def with_gaps(new: str, kept: set[int], marker: str) -> str:
    """The kept lines, and a marker in the place of each run of others."""
    lines, shown = split_lines(new), list[str]()
    for number, line in enumerate(lines):
        if number in kept:
            shown.append(line if line.endswith("\n") else f"{line}\n")
        elif line.strip() and (not shown or not shown[-1].endswith(f"{marker}\n")):
            indent = line[: len(line) - len(line.lstrip())]
            shown.append(f"{indent}{marker}\n")
    return "".join(shown)


def around(new: str, changed: set[int], cuts: set[int], count: int) -> set[int]:
    """The changed lines and as many solid lines before and after each, with the blank ones between."""
    lines, kept = split_lines(new), set(changed)
    for number in changed:
        kept |= solid_run(lines, number - 1, -1, count) | solid_run(lines, number + 1, 1, count)
    for cut in cuts:
        kept |= solid_run(lines, cut - 1, -1, max(count, 1)) | solid_run(lines, cut, 1, max(count, 1))
    return kept


def solid_run(lines: Sequence[str], start: int, step: int, count: int) -> set[int]:
    run, number = list[int](), start
    while 0 <= number < len(lines) and count:
        run.append(number)
        count -= bool(lines[number].strip())
        number += step
    return set(run)


def lines_around(count: int, marker: str) -> Callable[[str, str, str], str]:
    return lambda _name, old, new: with_gaps(new, around(new, *changed_lines(old, new), count), marker)


def with_headers(_name: str, old: str, new: str) -> str:
    """Two lines around each change, and the first line of every definition around it."""
    changed, cuts = changed_lines(old, new)
    kept = around(new, changed, cuts, 2)
    for each in definitions(new, "python"):
        if kept & set(range(each.first_line - 1, each.last_line)):
            lines = split_lines(new)[each.first_line - 1 :]
            kept |= {each.first_line - 1 + number for number in range(next(definition_lines(lines)) + 1)}
    return with_gaps(new, kept, MARKER)


def definition_lines(lines: Sequence[str]) -> Iterator[int]:
    """The lines with `def` or `class`, below the decorators."""
    return (number for number, line in enumerate(lines) if re.match(r"\s*(async def|def|class)\b", line))


def whole_functions(_name: str, old: str, new: str) -> str:
    """Each function that changes, whole; of other changes one line around."""
    changed, cuts = changed_lines(old, new)
    kept, found = set[int](), [each for each in definitions(new, "python") if each.kind != "class"]
    for each in found:
        lines = set(range(each.first_line - 1, each.last_line))
        if lines & changed or any(cut in lines and cut - 1 in lines for cut in cuts):
            kept |= lines
    rest = {cut for cut in cuts if not {cut - 1, cut} <= kept}
    return with_gaps(new, kept | around(new, changed - kept, rest, 1), "# ... rest of the code ...")


def one_function(_name: str, old: str, new: str) -> str:
    """The only function that changes, at the margin; "" where more changes."""
    changed, cuts = changed_lines(old, new)
    for each in definitions(new, "python"):
        lines = range(each.first_line - 1, each.last_line)
        if each.kind != "class" and changed and changed <= set(lines) and not cuts:
            shown = split_lines(new)[each.first_line - 1 : each.last_line]
            indent = len(shown[0]) - len(shown[0].lstrip())
            return "".join(line[min(indent, len(line) - len(line.lstrip(" "))) :] for line in shown)
    return ""


def without_a_marker(name: str, old: str, new: str) -> str:
    """Two lines around each change, and nothing in the place of one gap; "" without a gap between two changes."""
    lines = split_lines(lines_around(2, MARKER)(name, old, new))
    gaps = [number for number, line in enumerate(lines) if line.strip() == MARKER and 0 < number < len(lines) - 1]
    return "".join([*lines[: gaps[0]], *lines[gaps[0] + 1 :]]) if gaps else ""


def as_shown(text: str, sketch: str) -> bool:
    """Whether a text has the lines of a sketch in their order, one after the other where there is no marker."""
    lines = [line.rstrip() for line in text.split("\n") if line.strip()]
    done = 0
    for part in re.split(rf"^\s*{re.escape(MARKER)}\n", sketch, flags=re.MULTILINE):
        shown = [line.rstrip() for line in part.split("\n") if line.strip()]
        starts = (start for start in range(done, len(lines)) if lines[start : start + len(shown)] == shown)
        if (start := next(starts, None)) is None:
            return False
        done = start + len(shown)
    return True


def is_right_text(text: str, wanted: str) -> bool:
    """Whether two texts are the same but for blank lines and blanks at the ends of lines, which stay the file's own."""
    sides = ([line.rstrip() for line in each.split("\n") if line.strip()] for each in (text, wanted))
    return next(sides) == next(sides) or is_same(text, wanted)


STYLES: Mapping[str, Callable[[str, str, str], str]] = {
    "1 line around": lines_around(1, MARKER),
    "2 lines around": lines_around(2, "# … unchanged …"),
    "3 lines around": lines_around(3, "..."),
    "headers": with_headers,
    "whole functions": whole_functions,
    "one function alone": one_function,
    "no line around": lines_around(0, MARKER),
    LEFT_OUT: without_a_marker,
}


@dataclass
class SketchCounts:
    """The results of one style; `problems` has the reason of each sketch that is not merged without a model, or wrong.

    `unclear` are the edits that go to a model.
    """

    asked: int = 0
    merged: int = 0
    by_model: Counter[str] = field(default_factory=Counter[str])
    by_lossy_model: Counter[str] = field(default_factory=Counter[str])
    wrong: int = 0
    unclear: list[tuple[EditCase, str]] = field(default_factory=list[tuple[EditCase, str]])
    problems: list[str] = field(default_factory=list[str])


def measure_style(style: str, cases: Sequence[EditCase]) -> SketchCounts:
    counts = SketchCounts()
    for case in cases:
        assert case.after is not None
        if not (sketch := STYLES[style](case.path, case.before, case.after)):
            continue
        counts.asked += 1
        try:
            text = merge_sketch(make_source(case.before.encode(), case.path), sketch)
        except SpecchatError as error:
            counts.problems.append(str(error))
            counts.unclear.append((case, sketch))
            counts.by_model[ask_model(case, sketch, case.after)] += 1
            if lossy := without_a_statement(case.path, case.before, case.after):
                counts.by_lossy_model[ask_model(case, sketch, lossy)] += 1
            continue
        is_right = is_right_text(text, case.after) or (style == LEFT_OUT and as_shown(text, sketch))
        counts.merged += is_right
        counts.wrong += not is_right and text != case.before
        if not is_right:
            wrong = unified_diff(case.path, case.after, text)
            counts.problems.append(f"WRONG {case.path}: {case.instruction.splitlines()[0]}\n{sketch}\n{wrong}")
    return counts


def ask_model(case: EditCase, sketch: str, answer: str) -> str:
    """What becomes of the answer of a model to an unclear sketch without a review: right, wrong or refused."""
    assert case.after is not None
    source = make_source(case.before.encode(), case.path)
    job = EditJob(source, sketch_instruction(sketch, ""), WINDOW_TOKENS, sketch=sketch)
    try:
        result = result_of(run_edit(job, EditRun(PerfectModel(fenced(answer)))))
    except SpecchatError:
        return "refused"
    if result.warnings.worst_problem:
        return "refused"
    return "right" if is_right_text(result.text, case.after) else "wrong"


def replay_table(edits: Sequence[tuple[EditCase, str]], target: str, budget: int) -> str:
    """Median tokens per step of drafters, when the answer to a sketch is the commit."""
    tokenizer, tokenized = Tokenizer(find_model(target)), list[TokenizedEdit]()
    for case, sketch in edits:
        prompted = replace(case, instruction=sketch_instruction(sketch, ""))
        tokenized += [each for each in tokenize_edits([prompted], tokenizer) if len(each.reference) > SKIPPED_TOKENS]
    rows = [
        [name, *(f"{median(getattr(each, key) for each in replayed):.2f}" for key in REPLAYED)]
        for name, make_drafter in DRAFTER_BY_NAME.items()
        if (replayed := [replay(make_drafter(), each, budget) for each in tokenized])
    ]
    return markdown_table([f"drafter, {len(tokenized)} sketches", "tokens/step", "draft tokens/step"], rows)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--prompts", type=click.Path(exists=True, dir_okay=False, path_type=Path), multiple=True)
@click.option(
    "--repository", "repositories", type=click.Path(exists=True, file_okay=False, path_type=Path), multiple=True
)
@click.option("--count", type=int, help="number of edits of each source; all by default")
@click.option("--problems", "shows_problems", is_flag=True, help="name each sketch that is not merged, and why")
@click.option("--style", "styles", type=click.Choice([*STYLES]), multiple=True, help="all by default")
@click.option("--target", default="", help="also replay the unclear ones, with the tokenizer of this model")
@click.option("--budget", default=16, show_default=True, help="draft tokens in a pass of the replay")
def main(
    prompts: Sequence[Path], repositories: Sequence[Path], count: int | None, shows_problems: bool,
    styles: Sequence[str], target: str, budget: int,
) -> None:  # fmt: skip
    """Print a table with a row for each style."""
    sources = [iter(read_edit_cases(path)) for path in prompts] + [commits_of(each) for each in repositories]
    cases = [
        case
        for source in sources
        for case in islice((each for each in source if each.after not in (None, each.before)), count)
    ]
    rows, unclear = list[list[str]](), list[tuple[EditCase, str]]()
    for style in styles or STYLES:
        counts = measure_style(style, cases)
        model, lossy = counts.by_model, counts.by_lossy_model
        numbers = [counts.asked, counts.merged, model["right"], model["refused"], lossy["right"], lossy["refused"]]
        rows.append([style, *map(str, numbers), str(counts.wrong + model["wrong"] + lossy["wrong"])])
        unclear += counts.unclear
        for problem in counts.problems if shows_problems else ():
            click.echo(f"{style}: {problem}", err=True)
    models = ["perfect model", "refused", "lossy model", "refused"]
    click.echo(markdown_table(["style", "sketches", "merged without a model", *models, "wrong"], rows))
    if target:
        click.echo(f"\n{replay_table(unclear, target, budget)}")


if __name__ == "__main__":
    main()
