"""One run of `specchat edit` over some files: asked one after the other, written in the end, all or nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from specchat.chat.turn_summary import summary_line
from specchat.cli.edit_asking import asked, opened, talk_with, window
from specchat.cli.edit_review import review
from specchat.edit.answer_check import RejectedError
from specchat.edit.atomic_write import Replacement, check_writable
from specchat.edit.edit_plan import parse_lines
from specchat.edit.edit_task import Edited, Job, edit, rewrite_part
from specchat.edit.edit_turn import Talk, sum_of
from specchat.edit.git_commit import check_repository, commit, has_other_changes
from specchat.edit.hunks import hunks_between
from specchat.edit.json_report import failure_report, file_report
from specchat.edit.multi_file import together
from specchat.edit.patch import diff
from specchat.edit.project_copy import run_checks, split_command
from specchat.edit.scope import Region
from specchat.edit.source_text import Source, read_source
from specchat.edit.syntax_check import check_syntax
from specchat.edit.undo_edits import apply
from specchat.edit.undo_store import keep_candidate, kept_edits
from specchat.errors import BrokenEditError, NoChangeError, NotTakenError, SpecchatError, UsageError


@dataclass(frozen=True)
class Taken:
    """What of an edit is to be written, and how many of its hunks that are."""

    source: Source
    path: Path
    text: str
    hunks: int
    offered: int
    edited: Edited
    talk: Talk

    @property
    def new(self) -> bytes:
        """What the file shall hold."""
        return self.source.encode(self.text)

    @property
    def replacement(self) -> Replacement:
        """The same beside what it holds."""
        return Replacement(self.path, self.source.raw, self.new)


@dataclass
class EditFiles:
    """What was asked, how, and what is taken so far."""

    instruction: str
    options: dict[str, Any]
    taken: list[Taken] = field(default_factory=list)
    unchanged: dict[str, NoChangeError] = field(default_factory=dict)

    @property
    def is_asking(self) -> bool:
        """Whether a person decides."""
        options = self.options
        without = options["yes"] or options["is_diff"] or options["is_json"]
        return not without and sys.stdout.isatty() and sys.stdin.isatty()

    @property
    def is_writing(self) -> bool:
        """Whether files may be written in the end."""
        return self.is_asking or (self.options["yes"] and not self.options["is_diff"])

    def run(self, paths: Sequence[Path]) -> int:
        """Edit one after the other, then write."""
        sources = self._prepared(paths)
        if self.options["is_together"]:
            self._edit_together(paths, sources)
        else:
            for path, source in zip(paths, sources, strict=True):
                self._edited_or_told(source, partial(self._edit, path, source))
        for name, nothing in self.unchanged.items():
            self._print_json(failure_report(name, nothing))
        if not self.taken:
            raise next(iter(self.unchanged.values()))
        self._finish()
        return 0

    def _edited_or_told(self, source: Source, edit: Callable[[], None]) -> None:
        """Edit one file; one that needs nothing is noted, and any other failure is told and ends it all."""
        try:
            edit()
        except NoChangeError as nothing:
            self.unchanged[source.name] = nothing
        except SpecchatError as error:
            self._report(is_written=False)
            self._print_json(failure_report(source.name, error))
            raise

    def _finish(self) -> None:
        """Write, if that is wanted, and only then say that it was."""
        if self.is_writing:
            try:
                self._write()
            except SpecchatError as error:
                for each in self.taken:
                    self._print_json(failure_report(each.source.name, error))
                raise
        self._report(is_written=self.is_writing)

    def _prepared(self, paths: Sequence[Path]) -> list[Source]:
        """Everything that can be known before a model is asked."""
        if self.options["lines"] and len(paths) > 1:
            raise UsageError("-l FIRST-LAST is about one file; name one")
        if len({path.resolve() for path in paths}) < len(paths):
            raise UsageError("two of these names are the same file; name it once")
        for command in self.options["checks"]:
            split_command(command)
        sources = [read_source(path) for path in paths]
        if self.is_writing:
            for path in paths:
                check_writable(path)
            if self.options["is_commit"]:
                check_repository(paths)
        return sources

    def _edit(self, path: Path, source: Source) -> None:
        """One file: ask, look, decide."""
        target = path.resolve()

        def check(text: str) -> None:
            earlier = {each.path.resolve(): each.new for each in self.taken}
            run_checks(self.options["checks"], target, {**earlier, target: source.encode(text)})

        lines = parse_lines(self.options["lines"]) if self.options["lines"] else None
        with opened(self.options) as conversation:
            job = Job(source, self.instruction, window(self.options, conversation), lines, check)
            talk = talk_with(conversation)
            self._decide(path, job, self._generated(job, talk), talk)

    def _edit_together(self, paths: Sequence[Path], sources: Sequence[Source]) -> None:
        """All files: each is asked for in the same conversation, then all are decided on, then checked as a whole."""
        made: list[tuple[Path, Job, Edited, Talk]] = []
        with opened(self.options) as conversation:

            def generate(path: Path, job: Job) -> None:
                talk = Talk(conversation)
                made.append((path, job, self._generated(job, talk), talk))

            jobs = together(sources, self.instruction, window(self.options, conversation))
            for path, job in zip(paths, jobs, strict=True):
                self._edited_or_told(job.source, partial(generate, path, job))
            for path, job, edited, talk in made:
                self._edited_or_told(job.source, partial(self._decide, path, job, edited, talk))
        new = {each.path.resolve(): each.new for each in self.taken}
        for each in self.taken:
            self._edited_or_told(each.source, partial(run_checks, self.options["checks"], each.path.resolve(), new))

    def _decide(self, path: Path, job: Job, edited: Edited, talk: Talk) -> None:
        if self.is_asking:
            self.taken.append(self._reviewed(path, job, edited, talk))
        else:
            self._offered(path, job.source, edited, talk)

    def _generated(self, job: Job, talk: Talk) -> Edited:
        """The new text. One that is no good is kept where a person can look at it."""
        try:
            return asked(job, talk, self.options["timeout"], lambda: edit(job, talk))
        except BrokenEditError as broken:
            if talk.candidate:
                where = keep_candidate(job.source.name, job.source.encode(talk.candidate))
                broken.args = (f"{broken}; it is kept in {where}",)
            raise

    def _reviewed(self, path: Path, job: Job, edited: Edited, talk: Talk) -> Taken:
        def check(text: str) -> None:
            check_syntax(job.source, text)
            job.check(text)

        def rewrite(first: int, end: int, wish: str) -> str | None:
            place = Region(first + 1, end)
            return asked(job, talk, self.options["timeout"], lambda: rewrite_part(job, place, wish, talk))

        reviewed = review(job.source, edited, check, rewrite)
        return Taken(job.source, path, reviewed.text, len(reviewed.taken), len(reviewed.items), edited, talk)

    def _offered(self, path: Path, source: Source, edited: Edited, talk: Talk) -> None:
        """Nobody is asked: print it, or take it all."""
        verdict = edited.flags.verdict
        if self.is_writing and verdict and not self.options["allow_shrink"]:
            raise RejectedError(verdict, f"{source.name}: {edited.flags.words}; --allow-shrink takes it nevertheless")
        if not self.is_writing and not self.options["is_json"]:
            _print_diff(source, edited.text)
            if edited.flags.words:
                print(f"specchat: {source.name}: {edited.flags.words}", file=sys.stderr)
        hunks = len(hunks_between(source.text, edited.text))
        self.taken.append(Taken(source, path, edited.text, hunks, hunks, edited, talk))

    def _report(self, *, is_written: bool) -> None:
        """What was taken as JSON, for those who read it."""
        checks = ["syntax", *self.options["checks"]]
        for each in self.taken:
            self._print_json(file_report(each.source, each.edited, each.talk, checks=checks, is_taken=is_written))

    def _print_json(self, report: Mapping[str, Any]) -> None:
        if self.options["is_json"]:
            print(json.dumps(report, ensure_ascii=False), flush=True)

    def _write(self) -> None:
        written = [each for each in self.taken if each.text != each.source.text]
        if not written:
            raise NotTakenError("no hunk was taken; nothing is written")
        paths = [each.path for each in written]
        mixed = [path for path in paths if self.options["is_commit"] and has_other_changes(path)]
        try:
            kept = apply(kept_edits(), self.instruction, [each.replacement for each in written])
        except OSError as error:
            raise SpecchatError(f"{error.filename or paths[0]}: cannot be written: {error.strerror}") from error
        for path in mixed:
            print(f"specchat: {path}: had changes before, which are committed with the edit", file=sys.stderr)
        hunks, offered = (sum(counts) for counts in zip(*((each.hunks, each.offered) for each in written), strict=True))
        parts = [f"applied {hunks}/{offered} hunks", self._summary(), f"undo: specchat undo {kept.number}"]
        if self.options["is_commit"]:
            parts.append(f"commit {commit(paths, self.instruction)}")
        print(" · ".join(part for part in parts if part), file=sys.stderr)

    def _summary(self) -> str:
        """What all turns together cost."""
        routed = self.taken[-1].talk.routed
        totals = sum_of([finished for each in self.taken for finished in each.talk.finished])
        return summary_line(routed, totals) if routed else ""


def _print_diff(source: Source, text: str) -> None:
    """The bytes that `git apply` needs; on a terminal the letters that a person reads."""
    patch = diff(source, text)
    if sys.stdout.isatty():
        sys.stdout.write(patch)
    else:
        sys.stdout.buffer.write(patch.encode(source.codec.removesuffix("-sig")))
    sys.stdout.flush()
