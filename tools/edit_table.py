"""What becomes of edits without a review (`-y`), by the starter model and by scripted ones that fail typically.

The edits (`tools/edit_cases.py`) are mechanical ones of real files, those of EditEval, the traps of refactorings, and
sketches of commits. Each goes through the verb `edit` in a folder of its own. The scripted models know the right text:
*perfect* writes it; *lazy* ends with "… rest of the code unchanged"; *lossy* leaves a statement out that was to stay;
*talkative* talks, and changes a number that was to stay. *model alone*: no operation of the syntax tree is tried first.

*taken*: a new text would be written; *right*: byte for byte the expected one, or, for EditEval, one that passes the
tests; *refused*: nothing is written, and the reason is given. With --save a run goes on where it ended.

    python -m tools.edit_table --prompts FOLDER --save results.jsonl
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event as Flag
from threading import Timer

import click

from specchat.app.consent import EditConsent
from specchat.app.edit import drive, edit
from specchat.app.edit_events import AcceptedEdit, EditOrder
from specchat.app.edit_session import EditSession, edit_request
from specchat.app.edit_task import EditJob
from specchat.app.edited_files import DiskFile
from specchat.chat.request import EDIT_TASK, Attachment, Request
from specchat.errors import ModelError, SpecchatError
from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from specchat.syntax import language_of
from specchat_bench.columns import markdown_table
from tools.answer_styles import (
    PerfectModel,
    fenced,
    half,
    kept_statements,
    lazy,
    with_another_constant,
    without_first,
)
from tools.edit_cases import TableCase, eval_cases, mechanical_cases, sketch_cases, trap_cases

ALONE, STARTER = "mechanical, model alone", "starter"
GROUPS = ("mechanical", "editeval", "traps", "sketches")
COLUMNS = ("taken", "right", "refused", "wrong written")
EDIT_SECONDS = 600


def perfect(case: TableCase) -> str:
    return fenced(case.wanted, language_of(case.name))


def lazy_answer(case: TableCase) -> str:
    """The new text up to its last change, or half of it, and a promise."""
    text = lazy(case.name, case.text, case.wanted) or half(case.name, case.wanted)
    return fenced(text, language_of(case.name))


def lossy(case: TableCase) -> str:
    """The new text without one statement that was to stay; "" where none can go."""
    found = kept_statements(case.name, case.text, case.wanted)
    text = without_first(case.name, case.wanted, (each for each in found if not each.is_import))
    return fenced(text, language_of(case.name)) if text else ""


def talkative(case: TableCase) -> str:
    text = with_another_constant(case.name, case.text, case.wanted) or case.wanted
    return f"Sure! Here is it:\n\n{fenced(text, language_of(case.name))}\n\nI also made it a little better. More?"


MODELS: Mapping[str, Callable[[TableCase], str]] = {
    "perfect": perfect, "lazy": lazy_answer, "lossy": lossy, "talkative": talkative,
}  # fmt: skip


@dataclass(frozen=True)
class ScriptedFile(DiskFile):
    """A file for a model that can rewrite it as a whole; `is_alone`: no operation is tried first."""

    is_alone: bool = False

    def job(self, job: EditJob) -> EditJob:
        file = Attachment(job.source.name, job.source.text)
        request = Request(job.instruction, (file,), task=EDIT_TASK, file_to_rewrite=job.source.name)
        return replace(job, ability=None, first_request=request if self.is_alone else None)


@dataclass(frozen=True)
class Row:
    """What became of one edit by one model."""

    model: str
    group: str
    key: str
    outcome: str  # "right", "refused" or "wrong written"
    why: str


def scripted_session(answer: str) -> EditSession:
    settings = read_settings(options={"limits.context": 10**6, "models.target": "scripted/model"})
    request = edit_request(SessionRequest(settings=settings))
    return EditSession(request, Flag(), open_conversation=lambda: nullcontext(PerfectModel(answer)))


def starter_session() -> EditSession:
    settings = read_settings(options={"models.target": STARTER, "speculation.recall": False})
    return EditSession(edit_request(SessionRequest(settings=settings, is_stored=False)), Flag())


def run_case(case: TableCase, model: str) -> tuple[str, str]:
    """The outcome of an edit, and why; "" if the model has no such answer."""
    if model == STARTER:
        session, file_type = starter_session(), DiskFile
    elif answer := MODELS[model](case):
        session = scripted_session(answer)
        file_type = lambda path: ScriptedFile(path, is_alone=case.group == ALONE)
    else:
        return "", ""
    timer = Timer(EDIT_SECONDS, session.cancelled.set)
    timer.start()
    with TemporaryDirectory() as folder, chdir(folder), session:
        try:
            texts = _edited(case, [file_type(Path(name)) for name in case.files], session)
        except SpecchatError as error:
            if error.exit_code == ModelError.exit_code:
                raise  # the engine fails, not the edit
            return "refused", str(error)
        finally:
            timer.cancel()
    return ("right", "") if case.is_right(texts) else ("wrong written", json.dumps(texts))


def _edited(case: TableCase, files: Sequence[DiskFile], session: EditSession) -> dict[str, str]:
    """The texts after the edit. SpecchatError for one that is not taken."""
    if case.beside or len(case.files) > 1:
        Path("pyproject.toml").touch()
    for name, text in {**case.files, **case.beside}.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(text.encode())
    order, texts = EditOrder(case.instruction, tuple(files), writes=False, sketch=case.sketch), dict(case.files)

    def keep(event: object) -> None:
        if isinstance(event, AcceptedEdit):
            texts[event.file.path.as_posix()] = event.text

    drive(edit(order, session, EditConsent(asks=False, can_ask=False)), keep)
    return texts


def all_cases(groups: Sequence[str], prompts: Path | None) -> Iterator[TableCase]:
    if "mechanical" in groups:
        yield from mechanical_cases()
    if "editeval" in groups and prompts:
        yield from eval_cases(prompts / "editeval.jsonl")
    if "traps" in groups:
        yield from trap_cases()
    if "sketches" in groups and prompts:
        yield from sketch_cases(prompts / "commit_edits.jsonl")


def all_rows(cases: Sequence[TableCase], models: Sequence[str], known: Sequence[Row]) -> Iterator[Row]:
    """The rows that are not known yet."""
    done = {(row.model, row.group, row.key) for row in known}
    for model in models:
        alone = [replace(each, group=ALONE) for each in cases if each.group == "mechanical" and model != STARTER]
        for case in (*cases, *alone):
            if (model, case.group, case.key) not in done:
                outcome, why = run_case(case, model)
                yield Row(model, case.group, case.key, outcome, why)


def as_table(rows: Sequence[Row]) -> str:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        if row.outcome:
            counts.setdefault((row.model, row.group), Counter())[row.outcome] += 1
    for each in counts.values():
        each["taken"] = each["right"] + each["wrong written"]
    lines = [
        [*names, str(each["taken"] + each["refused"]), *(str(each[column]) for column in COLUMNS)]
        for names, each in counts.items()
    ]
    return markdown_table(["model", "edits", "asked", *COLUMNS], lines)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--model", "models", type=click.Choice([STARTER, *MODELS]), multiple=True, help="all by default")
@click.option("--only", "groups", type=click.Choice(GROUPS), multiple=True, help="all by default")
@click.option(
    "--prompts",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="a folder with editeval.jsonl and commit_edits.jsonl; without it these two groups are left out",
)
@click.option("--save", "saved", type=click.Path(dir_okay=False, path_type=Path), help="a file for the results")
def main(models: Sequence[str], groups: Sequence[str], prompts: Path | None, saved: Path | None) -> None:
    """Print each edit that is not right on stderr, then the table."""
    known = [Row(**json.loads(line)) for line in saved.read_text().splitlines()] if saved and saved.exists() else []
    cases, rows = list(all_cases(groups or GROUPS, prompts)), list(known)
    for row in all_rows(cases, models or [*MODELS, STARTER], known):
        rows.append(row)
        click.echo(f"{row.model}, {row.group}, {row.key}: {row.outcome or 'not asked'} {row.why[:300]}", err=True)
        if saved:
            with saved.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(vars(row))}\n")
    click.echo(as_table(rows))


if __name__ == "__main__":
    main()
