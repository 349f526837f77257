"""From an instruction to a new text: the prompts, the checks of the answers, and the retries.

Each file or region is one turn and is rewritten completely; prompt lookup copies what stays the same. An unusable
answer goes back to the model with the reason, at most twice. With --together the first request attaches every file, and
each answer is one whole file that sees the answers before it, so that a change of a name reaches all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specchat.chat.events import Notice
from specchat.chat.request import Attachment, Request
from specchat.edit.answer_blocks import choose_text
from specchat.edit.answer_check import (
    RETRYABLE_PROBLEMS,
    AnswerProblem,
    EditWarnings,
    UnusableAnswerError,
    extract_new_text,
    find_warnings,
)
from specchat.edit.check_commands import FailedCheckError
from specchat.edit.edit_plan import (
    EditPlan,
    Region,
    make_plan,
    named_regions,
    needed_tokens,
    plan_regions,
    region_source,
    replace_region,
)
from specchat.edit.edit_turn import MIN_BYTES_PER_TOKEN, EditRun, run_turn
from specchat.edit.refactoring import find_refactoring
from specchat.edit.source_text import Source
from specchat.edit.syntax_check import check_syntax
from specchat.errors import BrokenEditError, ContextError, NoChangeError, UsageError

ANSWER_MARGIN_TOKENS = 512
MAX_REPAIRS = 2


@dataclass(frozen=True)
class EditJob:
    """What to change in which text.

    `check` raises BrokenEditError for a text that parses and is still wrong. `first_request` replaces the default
    prompt
    when the file is one of several or does not exist yet; it is then rewritten as a whole or not at all.
    """

    source: Source
    instruction: str
    window_tokens: int
    region: Region | None = None
    check: Callable[[str], None] = lambda _text: None
    first_request: Request | None = None


@dataclass(frozen=True)
class EditResult:
    text: str
    plan: EditPlan
    warnings: EditWarnings


def run_edit(job: EditJob, edit_run: EditRun) -> EditResult:
    """Ask for a new text and check it; an EditError says why there is none.

    An instruction that clearly is a refactoring is carried out by the syntax tree, and the model is not asked.
    When the whole file turns out too long after prefill, or the model cannot rewrite it as a whole, the regions that
    the
    instruction names are tried. Of two failures the first is raised.
    """
    if job.first_request:
        return _run_plan(job, EditPlan(), edit_run)
    if refactored := refactor(job, edit_run):
        return refactored
    plan = make_plan(job.source, job.instruction, job.window_tokens, job.region)
    try:
        return _run_plan(job, plan, edit_run)
    except (ContextError, UnusableAnswerError, BrokenEditError) as failed:
        regions = named_regions(job.source, job.instruction)
        if plan.regions or not regions or not _may_succeed_in_regions(failed):
            raise
        first_failure = failed
    try:
        return _run_plan(job, plan_regions(job.source, job.instruction, job.window_tokens, regions), edit_run)
    except (UnusableAnswerError, BrokenEditError):
        raise first_failure from None


def refactor(job: EditJob, edit_run: EditRun) -> EditResult | None:
    """The edit as a refactoring; None when the instruction is none, or when the tree leaves a doubt."""
    lines = (job.region.first, job.region.last) if job.region else None
    refactoring = find_refactoring(job.source, job.instruction, lines)
    if refactoring is None:
        return None
    text, summary = refactoring.apply(job.source.text), refactoring.describe()
    if text == job.source.text:
        raise NoChangeError(f"{job.source.name}: nothing to change ({summary})")
    edit_run.on_event(Notice(f"{job.source.name}: {summary} (by the syntax tree, without a model)"))
    edit_run.candidate = text
    job.check(text)
    return EditResult(text, EditPlan(refactoring=summary), EditWarnings())


def rewrite_region(job: EditJob, region: Region, comment: str, edit_run: EditRun) -> str:
    """New lines for one region, following the user's comment. Only the form of the answer is checked."""
    source = region_source(job.source, region)
    request = _edit_request(source, f"{job.instruction}\n\n{comment}")
    edit_run.start_new_context()
    return extract_new_text(source, run_turn(source.name, request, job.window_tokens, edit_run), request.text)


def _run_plan(job: EditJob, plan: EditPlan, edit_run: EditRun) -> EditResult:
    text = job.source.text
    if not plan.regions:
        text = _generate_checked_text(job, job.source, lambda new: new, edit_run)
    for region in sorted(plan.regions, key=lambda each: each.first, reverse=True):
        text = _rewrite_one_region(job, text, region, edit_run)
    if text == job.source.text:
        raise NoChangeError(f"{job.source.name}: the model changed nothing")
    return EditResult(text, plan, find_warnings(job.source, text))


def _rewrite_one_region(job: EditJob, text: str, region: Region, edit_run: EditRun) -> str:
    """The whole text with one more region rewritten; regions run bottom up, so line numbers above stay valid."""
    try:
        source = region_source(job.source, region)
        new = _generate_checked_text(job, source, lambda new: replace_region(text, region, new), edit_run)
        return replace_region(text, region, new)
    except NoChangeError:
        return text


def _generate_checked_text(
    job: EditJob, region_text: Source, to_whole_text: Callable[[str], str], edit_run: EditRun
) -> str:
    """A new text for this region that passes all checks within the whole text; a failure goes back to the model."""
    request, last_error = job.first_request or _edit_request(region_text, job.instruction), None
    edit_run.start_new_context()
    for repairs_left in reversed(range(MAX_REPAIRS + 1)):
        try:
            answer = run_turn(region_text.name, request, job.window_tokens, edit_run)
        except ContextError as error:
            raise last_error or error from None
        try:
            edit_run.talk = choose_text(region_text, answer).talk
            text = extract_new_text(region_text, answer, job.instruction)
            edit_run.candidate = to_whole_text(text)
            check_syntax(job.source, edit_run.candidate)
            job.check(edit_run.candidate)
        except (UnusableAnswerError, BrokenEditError) as error:
            if not repairs_left or not _is_retryable(error):
                raise
            request, last_error = _repair_request(region_text, job.instruction, error), error
        else:
            return text
    raise AssertionError("the last attempt returns or raises")


def _edit_request(region_text: Source, instruction: str) -> Request:
    file = Attachment(region_text.name, region_text.text)
    return Request(instruction, (file,), max_answer_tokens(region_text), task="edit", file_to_rewrite=region_text.name)


def _repair_request(region_text: Source, instruction: str, error: Exception) -> Request:
    """The same request with the error; the file and the last answer are in the conversation already."""
    why = error.diagnostics if isinstance(error, FailedCheckError) else str(error)
    text = f"{instruction}\n\nYour last answer cannot be taken: {why}\nWrite the whole text again and nothing else."
    return Request(text, max_tokens=max_answer_tokens(region_text), task="edit", file_to_rewrite=region_text.name)


def max_answer_tokens(region_text: Source) -> int:
    """Token limit of the answer: an upper bound for the old text plus a margin for additions."""
    return len(region_text.text.encode()) // MIN_BYTES_PER_TOKEN + ANSWER_MARGIN_TOKENS


def _may_succeed_in_regions(failed: Exception) -> bool:
    """Whether rewriting regions may help. A refusal or a failed --check would repeat."""
    return not isinstance(failed, FailedCheckError) and getattr(failed, "problem", None) != AnswerProblem.REFUSAL


def _is_retryable(error: Exception) -> bool:
    return not isinstance(error, UnusableAnswerError) or error.problem in RETRYABLE_PROBLEMS


def multi_file_jobs(sources: Sequence[Source], instruction: str, window_tokens: int) -> list[EditJob]:
    """One job for each file, to be run in this order in one conversation.

    ContextError, with the numbers, when the files and their new texts do not fit the window together.
    """
    if len(sources) < 2:
        raise UsageError("--together needs several files; name another one, or leave --together out")
    _check_window(sources, instruction, window_tokens)
    files = tuple(Attachment(source.name, source.text) for source in sources)
    jobs = list[EditJob]()
    for source in sources:
        text = f"Write the whole of `{source.name}` anew and nothing else; the other files come afterwards."
        if jobs:
            text, files = f"That was one of the files. {text}", ()
        tokens = max_answer_tokens(source)
        request = Request(f"{instruction}\n\n{text}", files, tokens, task="edit", file_to_rewrite=source.name)
        jobs.append(EditJob(source, instruction, window_tokens, first_request=request))
    return jobs


def _check_window(sources: Sequence[Source], instruction: str, window_tokens: int) -> None:
    needed = sum(needed_tokens(source.text, instruction) for source in sources)
    if needed > window_tokens:
        raise ContextError(
            f"reading and writing these {len(sources)} files together takes about {needed} tokens and the window holds "
            f"{window_tokens}; name fewer files, or leave out --together"
        )
