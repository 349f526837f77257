"""What becomes of edits in each format of an answer: the whole file, the region that is named, search/replace blocks.

The same edits of texts of several lengths are asked for in one format after the other, and each only in this format.
*right*: `specchat edit -y` takes the new text, and it has what was asked for; *wrong*: it takes one without that;
*refused*: anything else. The last lines say which format an edit then asks for first. Scripted models write one format
well, or all. With --keep, the edits count for the next ones of this model, as those of a user do.

    python -m tools.edit_formats --model blocks --model whole --model perfect
    python -m tools.edit_formats --model starter --lines 20
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from threading import Event as Flag

import click

from specchat.app.edit_session import EditSession, edit_request
from specchat.app.edit_task import EditJob, run_edit
from specchat.chat.events import Event
from specchat.chat.request import BLOCKS_TASK, Request
from specchat.edit.contract import check_unreviewed
from specchat.edit.edit_plan import FORMATS, Format
from specchat.edit.edit_turn import Conversation, EditRun, result_of
from specchat.edit.source_text import make_source
from specchat.errors import EditError, NoUsableEditError
from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from specchat_bench.columns import markdown_table
from tools.answer_styles import PerfectModel, fenced, search_blocks
from tools.measure_rewrites import EDITS, text_around

LINES = (12, 24, 120, 160)
NAME = "a.py"
LOOP = "    found = []\n    for word in text.split():\n        found.append(word.lower())\n    return found\n"
CHANGES = {  # what a perfect model does
    "total": ("def total(items):\n", 'def total(items):\n    """Add up the prices."""\n'),
    "check": ('"empty"', '"no text"'),
    "load": ("open(path)", 'open(path, encoding="utf-8")'),
    "words": (f"def words(text):\n{LOOP}", "def words(text):\n    return [word.lower() for word in text.split()]\n"),
}
OUTCOMES = ("right", "wrong", "refused")


@dataclass(frozen=True)
class ScriptedModel:
    """A model that is right in some formats; in others it leaves out the rest, or searches lines that are not there."""

    formats: Sequence[Format]

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]:
        return PerfectModel(self._answer(request)).ask(request, cancelled)

    def _answer(self, request: Request) -> str:
        if not request.files:  # it is told of its error, and repeats it
            return "# ... rest of the code ...\n"
        [file] = request.files
        name = next(name for name, (instruction, _is_right) in EDITS.items() if request.text.startswith(instruction))
        new, is_part = _changed(name, file.text), file.name != NAME
        if request.task == BLOCKS_TASK:
            blocks = search_blocks(NAME, file.text, new)
            return blocks if "blocks" in self.formats else blocks.replace("    ", "    not_in_the_file.")
        if ("region" if is_part else "whole") in self.formats:
            return fenced(new)
        return fenced(new[: len(new) // 2].rpartition("\n")[0] + "\n# ... rest of the code ...\n")


def _changed(name: str, text: str) -> str:
    """The text with the change: of the function of this name, as others are like it."""
    start, (old, new) = text.index(f"def {name}("), CHANGES[name]
    return text[:start] + text[start:].replace(old, new, 1)


SCRIPTED = {
    "perfect": ScriptedModel(FORMATS),
    "blocks": ScriptedModel(("blocks",)),
    "whole": ScriptedModel(("whole",)),
    "region": ScriptedModel(("region",)),
}


@dataclass(frozen=True)
class OneFormat:
    """A conversation that ends when a run asks for a second format."""

    session: EditSession
    run: EditRun

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event]:
        if len(self.run.tries) > 1:
            self.run.tries.pop()
            raise NoUsableEditError("the format did not work")
        yield from self.session.ask(request, cancelled)


def measure_edit(name: str, lines: int, format_: Format, session: EditSession) -> str:
    """What becomes of an edit; the run of the session counts it."""
    instruction, is_right = EDITS[name]
    source, run = make_source(text_around(name, lines).encode(), NAME), session.new_run()
    ability = replace(session.ability, names_operations=False, counts={}, chosen_format=format_)
    run.conversation = OneFormat(session, run)
    try:
        result = result_of(run_edit(EditJob(source, instruction, session.window_tokens, ability=ability), run))
        check_unreviewed(source, result.warnings)
    except EditError as error:
        click.echo(f"{format_}, {lines} lines, {instruction}: {error}", err=True)
        return "refused"
    run.is_taken = True
    return "right" if is_right(source.text, result.text) else "wrong"


def measure_format(format_: Format, lines: Sequence[int], session: EditSession) -> list[str]:
    """The row of a format."""
    before = len(session.runs)
    outcomes = [measure_edit(name, each, format_, session) for each in lines for name in EDITS]
    runs = session.runs[before:]
    taken = Counter(key.rpartition(", ")[2] for run in runs for key in run.counts.elements())
    tokens = sum(turn.totals.completion_tokens for run in runs for turn in run.finished_turns)
    counts = [taken["at once"], taken["repaired"], *map(outcomes.count, OUTCOMES), round(tokens / len(outcomes))]
    return [format_, *map(str, [len(outcomes), *counts])]


def measure_model(model: str, lines: Sequence[int], *, keeps: bool) -> tuple[list[list[str]], dict[int, list[Format]]]:
    """The rows of a model, and for texts of so many lines the order in which its edits then ask for the formats."""
    target = {} if model in SCRIPTED else {"models.target": model}
    request = replace(edit_request(SessionRequest(settings=read_settings(options=target))), is_stored=keeps)
    scripted: Conversation | None = SCRIPTED.get(model)
    with EditSession(request, Flag(), open_conversation=scripted and (lambda: nullcontext(scripted))) as session:
        rows = [[model, *measure_format(each, lines, session)] for each in FORMATS]
        counts = sum((run.counts for run in session.runs), Counter[str]())
        after = replace(session.ability, counts=counts)
    return rows, {each: after.formats(each) for each in lines}


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--model", "models", multiple=True, required=True, help=f"a target, or one of {', '.join(SCRIPTED)}")
@click.option("--lines", type=int, multiple=True, default=LINES, show_default=True)
@click.option("--keep", "keeps", is_flag=True, help="let these edits decide about the next ones")
def main(models: Sequence[str], lines: Sequence[int], *, keeps: bool) -> None:
    """Print a table with a row for each model and format."""
    rows, orders = list[list[str]](), list[str]()
    for model in models:
        measured, order = measure_model(model, lines, keeps=keeps and model not in SCRIPTED)
        rows += measured
        orders += [f"{model}, {each} lines: {', '.join(formats)}" for each, formats in order.items()]
    columns = ["model", "format", "edits", "at once", "repaired", *OUTCOMES, "tokens/edit"]
    click.echo("\n".join([markdown_table(columns, rows), "", *orders]))


if __name__ == "__main__":
    main()
