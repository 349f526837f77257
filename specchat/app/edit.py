"""The verb `edit`: files and an instruction in, events out; all files are written, or none.

    order -> read -> each file: rewrite, check, propose -> decision -> write, with an undo

It is a generator: a front end renders the events and sends a `Decision` for each `Proposed`. An error ends it; before
that, a text that cannot be taken is an event of its own, so that no front end throws away what the model wrote.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import unified_diff
from functools import partial
from pathlib import Path

from specchat.app.consent import Answer, Decision, EditConsent
from specchat.app.edit_events import (
    AcceptedEdit,
    EditEvent,
    EditOrder,
    Proposed,
    Rejected,
    Rewriting,
    Talk,
    Unchanged,
    Writing,
    Written,
)
from specchat.app.edit_session import EditSession
from specchat.app.edit_task import (
    EditJob,
    EditResult,
    describe_way,
    multi_file_jobs,
    needs_model,
    possible_ways,
    refactorings,
    rewrite_region,
    run_edit,
    sketch_instruction,
)
from specchat.app.edited_files import EditedFile
from specchat.app.model_ability import ModelAbility
from specchat.chat.events import Event, Notice
from specchat.edit.check_commands import run_checks, verify_command
from specchat.edit.contract import find_warnings
from specchat.edit.edit_intent import is_question
from specchat.edit.edit_plan import FORMATS, EditPlan, Region
from specchat.edit.edit_turn import EditRun
from specchat.edit.hunks import diff_hunks
from specchat.edit.source_text import Source
from specchat.edit.syntax_check import check_syntax
from specchat.edit.undo_store import apply_edit, save_candidate, user_undo_store
from specchat.errors import (
    BrokenEditError,
    CancelledError,
    DeclinedError,
    EditError,
    NoChangeError,
    NoUsableEditError,
    SpecchatError,
)
from specchat.refactoring import Refactoring

MAX_REJECTED_LINES = 40
SKETCH_APPLIED = "apply a sketch"
EditEvents = Generator[Event | EditEvent, Decision | None]
Write = Callable[[str, Sequence[AcceptedEdit]], int]  # returns the number that undoes it


def drive(
    events: Generator[Event | EditEvent, Decision | None],
    on_event: Callable[[Event | EditEvent], None],
    decide: Callable[[Proposed], Decision] | None = None,
) -> None:
    """Run an edit to its end: every event is rendered, and a proposal decided; without a person there is none."""
    answer: Decision | None = None
    with suppress(StopIteration):
        while True:
            event, answer = events.send(answer), None
            if isinstance(event, Proposed):
                assert decide, "no person can be asked"
                answer = decide(event)
            else:
                on_event(event)


def describe_ways(order: EditOrder, session: EditSession) -> list[tuple[str, str]]:
    """The name of each file with a way to make the edit, in the order in which they are tried. Needs no model."""
    jobs = _make_jobs(order, [file.read() for file in order.files], session)
    return [(job.source.name, describe_way(job, way)) for job in jobs for way in possible_ways(job)]


def edit(order: EditOrder, session: EditSession, consent: EditConsent, write: Write | None = None) -> EditEvents:
    """Edit one file after the other. With `is_together`, and in renamings across files, the first proposal follows the
    last answer, and the commands of --check see all new texts at once.
    """
    for command in order.checks:
        verify_command(command)
    if order.writes:
        yield from map(Notice, user_undo_store().notices)  # a write that was cut off is completed before the reading
    sources = [file.read() for file in order.files]
    for file in order.files if order.writes else ():
        file.check_writable()
    jobs, accepted = _make_jobs(order, sources, session, opens=True), list[AcceptedEdit]()
    is_joint, unchanged = order.is_together or any(job.refactoring for job in jobs), list[NoChangeError]()
    waiting = list[Callable[[], Generator[Event | EditEvent, Decision | None, AcceptedEdit]]]()
    for file, planned in zip(order.files, jobs, strict=True):
        job = planned if is_joint else replace(planned, check=_project_check(order, file, planned, accepted, session))
        run = session.new_run(keeps_context=order.is_together)
        yield Rewriting(job.source, file.is_new)
        try:
            result = yield from _rewrite(order, job, run, session)
        except NoChangeError as error:
            unchanged.append(error)
            yield Unchanged(job.source.name, error)
            continue
        waiting.append(partial(_decide, order, file, job, result, run, consent))
        if not is_joint:
            accepted.append((yield from waiting.pop()()))
    for decided in waiting:
        accepted.append((yield from decided()))
    if not accepted:
        raise unchanged[0]
    _check_together(order, accepted if is_joint else (), session)
    if order.writes:
        yield from _write_all(order.instruction or SKETCH_APPLIED, accepted, session, write)


def rewrite_text(
    order: EditOrder,
    session: EditSession,
    consent: EditConsent,
    on_event: Callable[[Event | EditEvent], None],
    *,
    shows_rejected: bool = False,
) -> AcceptedEdit:
    """The edit of a text that the caller holds and takes back. What is rejected is shown by `on_event` or the error."""
    seen = list[AcceptedEdit | Rejected]()

    def on_edit_event(event: Event | EditEvent) -> None:
        if isinstance(event, AcceptedEdit | Rejected):
            seen.append(event)
        on_event(event)

    try:
        drive(edit(order, session, consent), on_edit_event)
    except EditError as error:
        diffs = [each.diff for each in seen if isinstance(each, Rejected) and not shows_rejected]
        error.args = ("\n".join([str(error), *diffs]),)
        raise
    [accepted] = (each for each in seen if isinstance(each, AcceptedEdit))
    return accepted


def propose_text(file: EditedFile, source: Source, text: str, instruction: str, session: EditSession) -> EditEvents:
    """A text that is there already, such as a code block of an answer, goes the way of an edit: review and write."""
    order, job = EditOrder(instruction, (file,)), EditJob(source, instruction, session.window_tokens)
    result = EditResult(text, EditPlan(), find_warnings(source, text))
    accepted = yield from _decide(order, file, job, result, session.new_run(), EditConsent())
    yield from _write_all(instruction, [accepted], session, None)


def write_files(instruction: str, edits: Sequence[AcceptedEdit]) -> int:
    """Write all files or none, and record how to undo it."""
    return apply_edit(user_undo_store(), instruction, [each.replacement for each in edits]).number


def display_path(path: Path) -> str:
    """The path, relative to this folder if possible."""
    with suppress(ValueError):
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    return str(path)


def _make_jobs(
    order: EditOrder, sources: Sequence[Source], session: EditSession, *, opens: bool = False
) -> list[EditJob]:
    """One job for each file. The engine process starts only if a model is needed, and `opens` asks for it."""
    if order.sketch:  # a model is asked, and the session opened, where a merge is not certain
        instruction = sketch_instruction(order.sketch, order.instruction)
        return [EditJob(source, instruction, session.window_tokens, sketch=order.sketch) for source in sources]
    is_asked = order.is_together or any(needs_model(source, order.instruction, order.region) for source in sources)
    renamings = refactorings(sources, order.instruction) if len(sources) > 1 else []
    if opens and not renamings and is_asked:
        session.open()
    if order.is_together and not renamings:
        return multi_file_jobs(sources, order.instruction, session.window_tokens)
    planned: Sequence[Refactoring | None] = renamings or [None] * len(sources)
    ability = session.ability if is_asked else ModelAbility()
    jobs = [EditJob(each, order.instruction, session.window_tokens, order.region, ability=ability) for each in sources]
    return [
        replace(file.job(job), refactoring=renaming)
        for file, job, renaming in zip(order.files, jobs, planned, strict=True)
    ]


def _rewrite(
    order: EditOrder, job: EditJob, run: EditRun, session: EditSession
) -> Generator[Event | EditEvent, Decision | None, EditResult]:
    """The new text. One that cannot be taken is shown and saved, and the error names what may help."""
    try:
        result = yield from run_edit(job, run)
    except NoChangeError as error:
        if run.answer_parts and not is_question(job.instruction):
            _add(error, order.next_steps)
        raise
    except (BrokenEditError, NoUsableEditError) as error:
        if isinstance(error, BrokenEditError) and run.candidate:
            saved_path = save_candidate(job.source.name, job.source.encode(run.candidate))
            _add(error, f"the text is saved in {saved_path}")
        yield from _reject(order, job, run.candidate, "".join(run.answer_parts), error)
    except CancelledError as error:
        error.exit_code = getattr(run.cancelled, "exit_code", error.exit_code)
        raise
    else:
        if run.talk:
            yield Talk(run.talk)
        if result.plan.format in FORMATS and job.source.text:  # a model wrote it by itself
            return replace(result, warnings=replace(result.warnings, unproven=session.ability.unproven))
        return result
    raise AssertionError


def _reject(order: EditOrder, job: EditJob, candidate: str, answer: str, error: SpecchatError) -> EditEvents:
    if candidate or answer.strip():
        yield Rejected(_rejected_diff(job.source, candidate, answer))
    _add(error, order.next_steps)
    raise error


def _add(error: SpecchatError, text: str) -> None:
    error.args = ("; ".join(filter(None, [str(error), text])),)


def _rejected_diff(source: Source, text: str, answer: str) -> str:
    """How the new text differs; for an answer that is no text of the file, the answer."""
    is_text = text and text != source.text
    old, new = (source.text if is_text else ""), (text if is_text else answer)
    lines = list(unified_diff(old.splitlines(), new.splitlines(), lineterm=""))[2:]
    more = [f"({len(lines) - MAX_REJECTED_LINES} more lines)"] if len(lines) > MAX_REJECTED_LINES else []
    title = f"{source.name}: the model wrote this, and nothing of it is taken"
    return "\n".join([title, *lines[:MAX_REJECTED_LINES], *more])


def _decide(
    order: EditOrder, file: EditedFile, job: EditJob, result: EditResult, run: EditRun, consent: EditConsent
) -> Generator[Event | EditEvent, Decision | None, AcceptedEdit]:
    """The accepted text, after the consent of a person where it is needed."""
    source, decision = job.source, None
    try:
        must_ask = consent.must_ask(source, result.warnings)
    except NoUsableEditError as error:
        yield from _reject(order, job, result.text, "", error)
        raise
    if must_ask:

        def check(text: str) -> None:
            check_syntax(source, text)
            job.check(text)

        rewrite = lambda first, end, comment: rewrite_region(job, Region(first + 1, end), comment, run)
        decision = yield Proposed(file, source, result, check, rewrite)
        assert decision
        if run.cancelled.is_set():
            raise CancelledError("stopped; nothing is written")
        if decision.answer in (Answer.NO, Answer.STOP):
            raise DeclinedError(f"{source.name} was {'not created' if file.is_new else 'left as it was'}")
        consent.note(decision.answer)
    accepted = _accepted(file, job, result, run, decision or Decision())
    run.is_taken = accepted.has_changes
    yield accepted
    return accepted


def _accepted(file: EditedFile, job: EditJob, result: EditResult, run: EditRun, decision: Decision) -> AcceptedEdit:
    if decision.text is not None:
        hunks, total = decision.accepted_hunks, decision.total_hunks
        return AcceptedEdit(file, job.source, result, run, decision.text, hunks, total)
    hunks = len(diff_hunks(job.source.text, result.text))
    return AcceptedEdit(file, job.source, result, run, result.text, hunks, hunks)


def _project_check(
    order: EditOrder, file: EditedFile, job: EditJob, accepted: Sequence[AcceptedEdit], session: EditSession
) -> Callable[[str], None]:
    """Run the commands of --check on a new text, beside the files that were accepted before it."""

    def check(text: str) -> None:
        job.check(text)
        if order.checks:
            earlier = {each.file.path.resolve(): each.new_bytes for each in accepted}
            target = file.path.resolve()
            run_checks(order.checks, target, {**earlier, target: job.source.encode(text)}, session.cancelled)

    return check


def _check_together(order: EditOrder, accepted: Sequence[AcceptedEdit], session: EditSession) -> None:
    texts = {each.file.path.resolve(): each.new_bytes for each in accepted}
    for path in texts:
        run_checks(order.checks, path, texts, session.cancelled)


def _write_all(
    instruction: str, accepted: Sequence[AcceptedEdit], session: EditSession, write: Write | None
) -> EditEvents:
    written = [each for each in accepted if each.has_changes]
    if not written:
        raise DeclinedError("no hunk was accepted; nothing is written")
    yield Writing(written)
    yield Written(written, (write or write_files)(instruction, written), session.summary)
