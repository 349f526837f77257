"""From an instruction to a new text: the ways to ask, the prompts, the checks of the answers, and the retries.

First, a model that can do it names the operation that the instruction is (`named_operation.py`). A way that does not
work is followed by another one (`edit_plan.py`), at most three in all: the whole text, a smaller scope, search/replace
blocks. Each file or region is one turn and is rewritten completely; prompt lookup copies what stays the same. An
unusable answer goes back to the model with the reason, at most twice in an edit, unless it was already ended because it
could not become the file (`answer_watch.py`). With --together the first request attaches every file, and each answer is
one whole file that sees the answers before it, so that a change of a name reaches all of them.
"""

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from specchat.app.model_ability import ModelAbility
from specchat.app.named_operation import name_operation, refactoring_of
from specchat.chat.events import Event, Notice
from specchat.chat.request import BLOCKS_TASK, EDIT_TASK, Attachment, Request
from specchat.edit.answer_blocks import choose_text
from specchat.edit.answer_check import RETRYABLE_PROBLEMS, AnswerProblem, UnusableAnswerError, check_chosen_text
from specchat.edit.answer_watch import AnswerWatch
from specchat.edit.check_commands import FailedCheckError
from specchat.edit.contract import EditWarnings, describe, keep_contract
from specchat.edit.edit_intent import is_question
from specchat.edit.edit_plan import (
    FORMATS,
    EditPlan,
    Region,
    needed_tokens,
    possible_plans,
    region_source,
    replace_region,
)
from specchat.edit.edit_turn import MIN_BYTES_PER_TOKEN, EditRun, Watch, run_turn
from specchat.edit.sketch import UnclearSketchError, sketch_merger, without_fence
from specchat.edit.source_text import Source
from specchat.edit.syntax_check import check_names, check_syntax, check_uses
from specchat.errors import BrokenEditError, ContextError, DeclinedError, NoChangeError, SpecchatError, UsageError
from specchat.refactoring import Refactoring, RefusedError, find_missing_name, plan_refactorings, possible_operations

ANSWER_MARGIN_TOKENS = 512
MAX_WAYS = 3
WHOLE_TEXT, ANSWER, NAMED = EditPlan(), EditPlan(is_answer=True), EditPlan(refactoring="an operation", is_named=True)
MAX_REPAIRS = 2
SKETCH_PROMPT = (
    "Write the file with the changes that the sketch below shows. A marker such as `# ... existing code ...` stands "
    "for lines of the file that stay as they are: copy them, and never the marker."
)


@dataclass(frozen=True)
class EditJob:
    """What to change in which text.

    `check` raises BrokenEditError for a text that parses and is still wrong. `first_request` replaces the default
    prompt when the file is one of several or does not exist yet; it is then rewritten as a whole or not at all.
    `refactoring` is this text's part of one that is about several. `ability` is that of the model, None for a text that
    is rewritten whatever the model can. `sketch`: the lines to change, with gaps.
    """

    source: Source
    instruction: str
    window_tokens: int
    region: Region | None = None
    check: Callable[[str], None] = lambda _text: None
    first_request: Request | None = None
    refactoring: Refactoring | None = None
    ability: ModelAbility | None = None
    sketch: str = ""

    @property
    def lines(self) -> int:
        """How many may change."""
        return self.region.last - self.region.first + 1 if self.region else self.source.text.count("\n")


@dataclass(frozen=True)
class EditResult:
    """The new text, the way that led to it, and why the ways before it did not."""

    text: str
    plan: EditPlan
    warnings: EditWarnings
    failures: tuple[SpecchatError, ...] = ()


def run_edit(job: EditJob, edit_run: EditRun) -> Generator[Event, object, EditResult]:
    """The events of an edit, and its checked text; an EditError says why there is none: the first of several."""
    return _Edit(job, edit_run).run()


def possible_ways(job: EditJob) -> Iterator[Refactoring | EditPlan | ContextError | UnclearSketchError]:
    """The ways to make an edit, in the order in which they are tried; an error is one that does not fit.

    An instruction that clearly is a refactoring is carried out by the syntax tree, and the model is not asked. Where it
    is refused there, a model would be wrong: DeclinedError.
    NoChangeError for the renaming of something that the text does not have: a model would invent it.
    """
    if job.first_request:
        return iter([WHOLE_TEXT])
    if job.sketch:
        return _sketch_ways(job)
    if missing := find_missing_name(job.source, job.instruction):
        raise NoChangeError(f"{job.source.name}: nothing to rename: the file has no `{missing}`")
    if planned := [job.refactoring] if job.refactoring else refactorings([job.source], job.instruction, job.region):
        return iter(planned)
    if is_question(job.instruction):
        return iter([ANSWER])
    is_named = job.ability and job.ability.names_operations and possible_operations(job.source, job.instruction)
    order = job.ability.formats(job.lines, is_part=job.region is not None) if job.ability else FORMATS
    plans = possible_plans(job.source, job.instruction, job.window_tokens, job.region, order)
    return chain([NAMED] if is_named else [], plans[:MAX_WAYS])


def _sketch_ways(job: EditJob) -> Iterator[EditPlan | ContextError | UnclearSketchError]:
    """A merge by structure, where it is certain; else a model, with the whole file or blocks of it."""
    try:
        text = sketch_merger().merge(job.source, job.sketch)
    except UnclearSketchError as unclear:
        yield unclear
        plans = possible_plans(job.source, job.instruction, job.window_tokens)
        yield from (plan for plan in plans if isinstance(plan, ContextError) or not plan.regions)
        return
    if text == job.source.text:
        raise NoChangeError(f"{job.source.name}: nothing to change: the file has what the sketch shows")
    yield EditPlan(merged=text)


def sketch_instruction(sketch: str, instruction: str) -> str:
    """What a model is asked to do with a sketch."""
    lines = without_fence(sketch).strip("\n")
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", lines)), default=0))
    return f"{instruction}\n\n{SKETCH_PROMPT}\n{fence}\n{lines}\n{fence}".lstrip()


def needs_model(source: Source, instruction: str, region: Region | None = None) -> bool:
    """Whether an edit is made by a model, and not by the syntax tree, or refused without one."""
    try:
        return not find_missing_name(source, instruction) and not refactorings([source], instruction, region)
    except DeclinedError:
        return False


def refactorings(sources: Sequence[Source], instruction: str, region: Region | None = None) -> list[Refactoring]:
    """What the syntax tree does to each of these texts, if an instruction clearly is that, else nothing.

    DeclinedError says why it is not certain.
    """
    try:
        return plan_refactorings(sources, instruction, (region.first, region.last) if region else None)
    except RefusedError as refused:
        raise DeclinedError(f"{', '.join(each.name for each in sources)}: refused, as {refused}") from refused


def describe_way(job: EditJob, way: Refactoring | EditPlan | ContextError | UnclearSketchError) -> str:
    """A way in one line, with what has decided about its place; one that does not fit by its error."""
    match way:
        case EditPlan():
            reason = job.ability.reason(way.format, job.lines) if job.ability else ""
            return f"{way.description} ({reason})" if reason else way.description
        case ContextError() | UnclearSketchError():
            return str(way)
        case _:
            return EditPlan(refactoring=way.describe()).description


def rewrite_region(job: EditJob, region: Region, comment: str, edit_run: EditRun) -> Generator[Event, object, str]:
    """New lines for one region, following the user's comment. Only the form of the answer is checked."""
    source = region_source(job.source, region)
    request = _first_request(source, f"{job.instruction}\n\n{comment}")
    edit_run.start_new_context()
    watch = AnswerWatch(source, request.text)
    answer = yield from run_turn(source.name, request, job.window_tokens, edit_run, watch.feed)
    return check_chosen_text(source, choose_text(source, answer), request.text)


class _Edit:
    """One edit: the ways that failed, and how often an answer may still go back to the model."""

    def __init__(self, job: EditJob, edit_run: EditRun) -> None:
        self.job, self.edit_run = job, edit_run
        self.failures: list[SpecchatError] = []
        self.first_candidate = ""  # the complete text of the first failure
        self.repairs_left = MAX_REPAIRS
        self.checked_text = ""  # the last complete text that passed all checks

    def run(self) -> Generator[Event, object, EditResult]:
        job = self.job
        for way in possible_ways(job):
            match way:
                case ContextError() | UnclearSketchError():
                    self.failures.append(way)
                    continue
                case EditPlan(is_named=True):
                    operation = yield from name_operation(job.source, job.instruction, job.window_tokens, self.edit_run)
                    if operation is None:
                        continue
                    warnings = EditWarnings(understood=str(operation))
                    return (yield from self._refactor(refactoring_of(job.source, operation, job.region), warnings))
                case EditPlan(merged=str() as merged) if merged:
                    return (yield from self._take(way, merged, EditWarnings()))
                case EditPlan(is_answer=True):
                    yield from self._answer_question()
                case EditPlan():
                    yield from map(Notice, self._announcement(way))
                case _:
                    return (yield from self._refactor(way))
            try:
                return (yield from self._follow(way))
            except (ContextError, UnusableAnswerError, BrokenEditError) as failure:
                self.failures.append(failure)
                self.first_candidate = self.first_candidate or self.edit_run.candidate
                if isinstance(failure, FailedCheckError):
                    break  # the edit is possible, and wrong
        self.edit_run.candidate = self.first_candidate
        raise self.failures[0]

    def _announcement(self, way: EditPlan) -> Iterator[str]:
        """Why this way is tried, or, before the first one, that the model is too small for it."""
        if self.failures:
            yield f"{self.failures[-1]}; now trying {way.description}"
        elif self.job.ability:
            lines = sum(each.last - each.first + 1 for each in way.regions) or self.job.lines
            if warning := self.job.ability.warning_before(lines):
                yield f"{self.job.source.name}: {warning}"

    def _refactor(
        self, refactoring: Refactoring, warnings: EditWarnings | None = None
    ) -> Generator[Event, object, EditResult]:
        source, text = self.job.source, refactoring.text
        way = EditPlan(refactoring=refactoring.describe(), is_named=warnings is not None)
        if text == source.text:
            raise NoChangeError(f"{source.name}: nothing to change ({way.refactoring})")
        return (yield from self._take(way, text, warnings or EditWarnings()))

    def _take(self, way: EditPlan, text: str, warnings: EditWarnings) -> Generator[Event, object, EditResult]:
        """A text that no model wrote."""
        yield Notice(f"{self.job.source.name}: {way.description}")
        self.edit_run.candidate = text
        self._check_whole(text)
        return EditResult(text, way, warnings)

    def _answer_question(self) -> Generator[Event, object]:
        """Say what the model answers. NoChangeError, because the instruction asks for no change."""
        job, file = self.job, Attachment(self.job.source.name, self.job.source.text)
        ignore_talk: Watch = lambda _text: None
        answer = yield from run_turn(
            job.source.name, Request(job.instruction, (file,)), job.window_tokens, self.edit_run, ignore_talk
        )
        yield Notice(answer.strip())
        raise NoChangeError(f"{job.source.name}: the instruction is a question and asks for no change")

    def _follow(self, way: EditPlan) -> Generator[Event, object, EditResult]:
        job, text = self.job, self.job.source.text
        if job.ability:
            self.edit_run.tries.append(job.ability.format_key(way.format, job.lines))
            self.edit_run.is_repaired = False
        if not way.regions:
            text = yield from self._ask(way, job.source, lambda new: new, self._check_whole)
        regions = sorted(way.regions, key=lambda each: each.first, reverse=True)
        for region in regions:  # bottom up, so that line numbers above stay valid
            text = yield from self._rewrite_region(way, text, region, is_last=region == regions[-1])
        if text == job.source.text:
            raise NoChangeError(f"{job.source.name}: the model changed nothing")
        if text != self.checked_text:
            self._check_whole(text)
        if job.sketch:
            kept = sketch_merger().keep(job.source, text, job.sketch, self._passes)
        else:
            kept = keep_contract(job.source, text, job.instruction, self._passes)
        if kept.warnings.put_back:
            yield Notice(f"{job.source.name}: put back: {describe(kept.warnings.put_back)}")
        if kept.text == job.source.text:
            raise NoChangeError(f"{job.source.name}: the model changed blanks only, which nothing asks for")
        self.edit_run.candidate = kept.text
        check_uses(job.source, kept.text, ignored=self._chosen_text)
        return EditResult(kept.text, way, kept.warnings, tuple(self.failures))

    def _rewrite_region(
        self, way: EditPlan, text: str, region: Region, *, is_last: bool
    ) -> Generator[Event, object, str]:
        """The whole text with one more region rewritten. Before the last one, a name may have its old definition."""
        check = self._check_whole if is_last else lambda whole: check_syntax(self.job.source, whole)
        source = region_source(self.job.source, region)
        try:
            new = yield from self._ask(way, source, lambda new: replace_region(text, region, new), check)
            return replace_region(text, region, new)
        except NoChangeError:
            return text

    def _check_whole(self, text: str) -> None:
        job = self.job
        check_syntax(job.source, text)
        check_names(job.source, text, ignored=self._chosen_text)
        job.check(text)
        self.checked_text = text

    @property
    def _chosen_text(self) -> str:
        """The lines that the user chose: what they no longer define, the user may define elsewhere."""
        return region_source(self.job.source, self.job.region).text if self.job.region else ""

    def _passes(self, text: str) -> bool:
        try:
            self._check_whole(text)
        except BrokenEditError:
            return False
        return True

    def _ask(
        self, way: EditPlan, text: Source, to_whole_text: Callable[[str], str], check: Callable[[str], None]
    ) -> Generator[Event, object, str]:
        """A new version of this text that passes the check of the whole one; a failure goes back to the model."""
        job, last_error = self.job, None
        request = first = job.first_request or _first_request(text, job.instruction, way)
        self.edit_run.start_new_context()
        while True:
            watch = AnswerWatch(text, job.instruction)
            try:
                answer = yield from run_turn(text.name, request, job.window_tokens, self.edit_run, watch.feed)
            except ContextError as error:
                raise last_error or error from None
            try:
                new = self._text_in(text, answer, last_error)
                self.edit_run.candidate = to_whole_text(new)
                check(self.edit_run.candidate)
            except (UnusableAnswerError, BrokenEditError) as error:
                is_final = isinstance(error, UnusableAnswerError) and error.problem not in RETRYABLE_PROBLEMS
                if is_final or not self.repairs_left:
                    raise
                self.repairs_left -= 1
                self.edit_run.is_repaired = True
                request, last_error = _repair_request(first, text, job.instruction, error), error
            else:
                return new

    def _text_in(self, text: Source, answer: str, last_error: Exception | None) -> str:
        """The new version in an answer. An excerpt that the model repeats although it was told so is meant."""
        chosen = choose_text(text, answer)
        self.edit_run.talk = chosen.talk
        try:
            return check_chosen_text(text, chosen, self.job.instruction)
        except UnusableAnswerError as error:
            if error.problem != AnswerProblem.EXCERPT or str(error) != str(last_error):
                raise
        return check_chosen_text(text, chosen, self.job.instruction, is_excerpt_meant=True)


def _first_request(text: Source, instruction: str, way: EditPlan = WHOLE_TEXT) -> Request:
    file, task = Attachment(text.name, text.text), BLOCKS_TASK if way.is_in_blocks else EDIT_TASK
    return Request(instruction, (file,), max_answer_tokens(text), task=task, file_to_rewrite=text.name)


def _repair_request(first: Request, text: Source, instruction: str, error: Exception) -> Request:
    """The same request with the error; the file and the last answer are in the conversation already."""
    why = error.diagnostics if isinstance(error, FailedCheckError) else str(error)
    what = "all search/replace blocks" if first.task == BLOCKS_TASK else "the whole text"
    question = f"{instruction}\n\nYour last answer cannot be taken: {why}\nWrite {what} again and nothing else."
    return Request(question, max_tokens=max_answer_tokens(text), task=first.task, file_to_rewrite=text.name)


def max_answer_tokens(text: Source) -> int:
    """Token limit of the answer: an upper bound for the old text plus a margin for additions."""
    return len(text.text.encode()) // MIN_BYTES_PER_TOKEN + ANSWER_MARGIN_TOKENS


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
