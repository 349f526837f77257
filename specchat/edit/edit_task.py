"""From an instruction to a new text: what is asked of the model, what its answer must be, and what it is told when not.

Each file or part is one turn, written anew as a whole; it is copied from the attachment at lookup speed. A text that
cannot be taken goes back with the reason, at most twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specchat.chat.request import Attachment, Request
from specchat.edit.answer_check import REPEATABLE, Flags, RejectedError, Verdict, flags, new_text
from specchat.edit.edit_plan import Plan, make_plan, needed_tokens, part, plan_of_parts, with_part
from specchat.edit.edit_turn import BYTES_PER_TOKEN, Talk, ask
from specchat.edit.project_copy import FailedCheckError
from specchat.edit.scope import Region, named_regions
from specchat.edit.source_text import Source
from specchat.edit.syntax_check import check_syntax
from specchat.errors import BrokenEditError, ContextError, NoChangeError

SPARE_TOKENS = 512
REPAIRS = 2


def nothing_more(_text: str) -> None:
    """The check of who has none."""


@dataclass(frozen=True)
class Job:
    """What is to be done to which text.

    `check` raises BrokenEditError for a text that parses and is still wrong. `opening` is asked in place of a request
    with this file alone, for a file that is one of several; it is then written as a whole or not at all.
    """

    source: Source
    instruction: str
    window: int
    lines: Region | None = None
    check: Callable[[str], None] = nothing_more
    opening: Request | None = None


@dataclass(frozen=True)
class Edited:
    """A new text, how it was planned, and what a person should look at."""

    text: str
    plan: Plan
    flags: Flags


def edit(job: Job, talk: Talk) -> Edited:
    """Ask for a new text and look at it closely; an EditError says why there is none.

    A file that turns out too long when the model has read it, or that the model cannot write anew as a whole, is tried
    again in parts, if the instruction names some. Of two failures the first is told.
    """
    if job.opening:
        return _edited(job, Plan(needed_tokens(job.source.text, job.instruction), job.window), talk)
    plan = make_plan(job.source, job.instruction, job.window, job.lines)
    try:
        return _edited(job, plan, talk)
    except (ContextError, RejectedError, BrokenEditError) as failed:
        regions = named_regions(job.source, job.instruction)
        if plan.regions or not regions or not _was_too_much(failed):
            raise
        too_much = failed
    try:
        return _edited(job, plan_of_parts(job.source, job.instruction, job.window, regions), talk)
    except (RejectedError, BrokenEditError):
        raise too_much from None


def rewrite_part(job: Job, region: Region, wish: str, talk: Talk) -> str:
    """Other lines for a place in the old text, as somebody wishes them; nothing is checked but that they are lines."""
    place = part(job.source, region)
    request = _request(place, f"{job.instruction}\n\n{wish}")
    talk.begin()
    return new_text(place, ask(place.name, request, job.window, talk))


def _edited(job: Job, plan: Plan, talk: Talk) -> Edited:
    text = job.source.text
    if not plan.regions:
        text = _written(job, job.source, lambda new: new, talk)
    for region in sorted(plan.regions, key=lambda each: each.first, reverse=True):
        text = _written_part(job, text, region, talk)
    if text == job.source.text:
        raise NoChangeError(f"{job.source.name}: the model sees nothing to change")
    return Edited(text, plan, flags(job.source, text))


def _written_part(job: Job, text: str, region: Region, talk: Talk) -> str:
    """The whole text with one more part written anew; lines above it stay where they are."""
    try:
        place = part(job.source, region)
        return with_part(text, region, _written(job, place, lambda new: with_part(text, region, new), talk))
    except NoChangeError:
        return text


def _written(job: Job, place: Source, whole: Callable[[str], str], talk: Talk) -> str:
    """A new text for this place that makes a whole text which passes; one that does not goes back to the model."""
    request, wrong = job.opening or _request(place, job.instruction), None
    talk.begin()
    for repairs_left in reversed(range(REPAIRS + 1)):
        try:
            answer = ask(place.name, request, job.window, talk)
        except ContextError as error:
            raise wrong or error from None
        try:
            text = new_text(place, answer)
            talk.candidate = whole(text)
            check_syntax(job.source, talk.candidate)
            job.check(talk.candidate)
        except (RejectedError, BrokenEditError) as error:
            if not repairs_left or not _may_be_repeated(error):
                raise
            request, wrong = _repair(place, job.instruction, error), error
        else:
            return text
    raise AssertionError("the last try returns or raises")


def _request(place: Source, instruction: str) -> Request:
    file = Attachment(place.name, place.text)
    return Request(instruction, (file,), most_tokens(place), task="edit", rewrites=place.name)


def _repair(place: Source, instruction: str, error: Exception) -> Request:
    """The same again, with what was wrong; the file and the last answer stand in the conversation already."""
    why = error.diagnostics if isinstance(error, FailedCheckError) else str(error)
    text = f"{instruction}\n\nYour last answer cannot be taken: {why}\nWrite the whole text again and nothing else."
    return Request(text, max_tokens=most_tokens(place), task="edit", rewrites=place.name)


def most_tokens(place: Source) -> int:
    """What an answer may have: no tokenizer that is known needs more for a text, and some for what is added."""
    return len(place.text.encode()) // BYTES_PER_TOKEN + SPARE_TOKENS


def _was_too_much(failed: Exception) -> bool:
    """Whether the model may manage a part of it; who refuses, or fails a check of the user, would do so again."""
    return not isinstance(failed, FailedCheckError) and getattr(failed, "verdict", None) != Verdict.REFUSAL


def _may_be_repeated(error: Exception) -> bool:
    return not isinstance(error, RejectedError) or error.verdict in REPEATABLE
