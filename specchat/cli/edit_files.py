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
from specchat.cli.edit_conversation import context_window, edit_run_for, open_edit_conversation, run_with_progress
from specchat.cli.edit_review import review_on_terminal
from specchat.edit.answer_check import UnusableAnswerError
from specchat.edit.atomic_write import Replacement, check_writable
from specchat.edit.check_commands import run_checks, split_check_command
from specchat.edit.edit_plan import parse_line_range
from specchat.edit.edit_regions import Region
from specchat.edit.edit_task import EditJob, EditResult, rewrite_region, run_edit
from specchat.edit.edit_turn import EditRun, sum_totals
from specchat.edit.git_commit import check_repository, commit_files, has_other_changes
from specchat.edit.hunks import diff_hunks
from specchat.edit.json_report import failure_report, file_report
from specchat.edit.multi_file import multi_file_jobs
from specchat.edit.patch import source_diff
from specchat.edit.source_text import Source, read_source
from specchat.edit.syntax_check import check_syntax
from specchat.edit.undo_edits import apply_edit
from specchat.edit.undo_store import save_candidate, user_undo_store
from specchat.errors import BrokenEditError, DeclinedError, NoChangeError, SpecchatError, UsageError


@dataclass(frozen=True)
class AcceptedEdit:
    """What of an edit is to be written, and how many of its hunks that are."""

    source: Source
    path: Path
    text: str
    accepted_hunks: int
    total_hunks: int
    result: EditResult
    run: EditRun

    @property
    def new_bytes(self) -> bytes:
        """What the file shall hold."""
        return self.source.encode(self.text)

    @property
    def replacement(self) -> Replacement:
        """The same beside what it holds."""
        return Replacement(self.path, self.source.raw, self.new_bytes)


@dataclass
class EditFiles:
    """What was asked, how, and what is taken so far."""

    instruction: str
    options: dict[str, Any]
    accepted: list[AcceptedEdit] = field(default_factory=list)
    unchanged: dict[str, NoChangeError] = field(default_factory=dict)

    @property
    def is_interactive(self) -> bool:
        """Whether a person decides."""
        options = self.options
        without = options["yes"] or options["is_diff"] or options["is_json"]
        return not without and sys.stdout.isatty() and sys.stdin.isatty()

    @property
    def is_writing(self) -> bool:
        """Whether files may be written in the end."""
        return self.is_interactive or (self.options["yes"] and not self.options["is_diff"])

    def run(self, paths: Sequence[Path]) -> int:
        """Edit one after the other, then write."""
        sources = self._read_sources(paths)
        if self.options["is_together"]:
            self._edit_together(paths, sources)
        else:
            for path, source in zip(paths, sources, strict=True):
                self._edit_or_report(source, partial(self._edit, path, source))
        for name, nothing in self.unchanged.items():
            self._print_json(failure_report(name, nothing))
        if not self.accepted:
            raise next(iter(self.unchanged.values()))
        self._finish()
        return 0

    def _edit_or_report(self, source: Source, edit_file: Callable[[], None]) -> None:
        """Edit one file; one that needs nothing is noted, and any other failure is told and ends it all."""
        try:
            edit_file()
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
                for each in self.accepted:
                    self._print_json(failure_report(each.source.name, error))
                raise
        self._report(is_written=self.is_writing)

    def _read_sources(self, paths: Sequence[Path]) -> list[Source]:
        """Everything that can be known before a model is asked."""
        if self.options["lines"] and len(paths) > 1:
            raise UsageError("-l FIRST-LAST is about one file; name one")
        if len({path.resolve() for path in paths}) < len(paths):
            raise UsageError("two of these names are the same file; name it once")
        for command in self.options["checks"]:
            split_check_command(command)
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
            earlier = {each.path.resolve(): each.new_bytes for each in self.accepted}
            run_checks(self.options["checks"], target, {**earlier, target: source.encode(text)})

        lines = parse_line_range(self.options["lines"]) if self.options["lines"] else None
        with open_edit_conversation(self.options) as conversation:
            job = EditJob(source, self.instruction, context_window(self.options, conversation), lines, check)
            talk = edit_run_for(conversation)
            self._decide(path, job, self._generate(job, talk), talk)

    def _edit_together(self, paths: Sequence[Path], sources: Sequence[Source]) -> None:
        """All files: each is asked for in the same conversation, then all are decided on, then checked as a whole."""
        made: list[tuple[Path, EditJob, EditResult, EditRun]] = []
        with open_edit_conversation(self.options) as conversation:

            def generate(path: Path, job: EditJob) -> None:
                talk = EditRun(conversation)
                made.append((path, job, self._generate(job, talk), talk))

            jobs = multi_file_jobs(sources, self.instruction, context_window(self.options, conversation))
            for path, job in zip(paths, jobs, strict=True):
                self._edit_or_report(job.source, partial(generate, path, job))
            for path, job, edited, talk in made:
                self._edit_or_report(job.source, partial(self._decide, path, job, edited, talk))
        new = {each.path.resolve(): each.new_bytes for each in self.accepted}
        for each in self.accepted:
            self._edit_or_report(each.source, partial(run_checks, self.options["checks"], each.path.resolve(), new))

    def _decide(self, path: Path, job: EditJob, result: EditResult, run: EditRun) -> None:
        if self.is_interactive:
            self.accepted.append(self._review(path, job, result, run))
        else:
            self._print_or_accept_all(path, job.source, result, run)

    def _generate(self, job: EditJob, run: EditRun) -> EditResult:
        """The new text. One that is no good is kept where a person can look at it."""
        try:
            return run_with_progress(job, run, self.options["timeout"], lambda: run_edit(job, run))
        except BrokenEditError as broken:
            if run.candidate:
                where = save_candidate(job.source.name, job.source.encode(run.candidate))
                broken.args = (f"{broken}; it is kept in {where}",)
            raise

    def _review(self, path: Path, job: EditJob, result: EditResult, run: EditRun) -> AcceptedEdit:
        def check(text: str) -> None:
            check_syntax(job.source, text)
            job.check(text)

        def rewrite(first: int, end: int, wish: str) -> str | None:
            place = Region(first + 1, end)
            return run_with_progress(job, run, self.options["timeout"], lambda: rewrite_region(job, place, wish, run))

        reviewed = review_on_terminal(job.source, result, check, rewrite)
        return AcceptedEdit(
            job.source, path, reviewed.text, len(reviewed.accepted_hunks), len(reviewed.decisions), result, run
        )

    def _print_or_accept_all(self, path: Path, source: Source, result: EditResult, run: EditRun) -> None:
        """Nobody is asked: print it, or take it all."""
        verdict = result.warnings.worst_problem
        if self.is_writing and verdict and not self.options["allow_shrink"]:
            raise UnusableAnswerError(
                verdict, f"{source.name}: {result.warnings.summary}; --allow-shrink takes it nevertheless"
            )
        if not self.is_writing and not self.options["is_json"]:
            _print_diff(source, result.text)
            if result.warnings.summary:
                print(f"specchat: {source.name}: {result.warnings.summary}", file=sys.stderr)
        hunks = len(diff_hunks(source.text, result.text))
        self.accepted.append(AcceptedEdit(source, path, result.text, hunks, hunks, result, run))

    def _report(self, *, is_written: bool) -> None:
        """What was taken as JSON, for those who read it."""
        checks = ["syntax", *self.options["checks"]]
        for each in self.accepted:
            self._print_json(file_report(each.source, each.result, each.run, checks=checks, is_applied=is_written))

    def _print_json(self, report: Mapping[str, Any]) -> None:
        if self.options["is_json"]:
            print(json.dumps(report, ensure_ascii=False), flush=True)

    def _write(self) -> None:
        written = [each for each in self.accepted if each.text != each.source.text]
        if not written:
            raise DeclinedError("no hunk was taken; nothing is written")
        paths = [each.path for each in written]
        mixed = [path for path in paths if self.options["is_commit"] and has_other_changes(path)]
        try:
            kept = apply_edit(user_undo_store(), self.instruction, [each.replacement for each in written])
        except OSError as error:
            raise SpecchatError(f"{error.filename or paths[0]}: cannot be written: {error.strerror}") from error
        for path in mixed:
            print(f"specchat: {path}: had changes before, which are committed with the edit", file=sys.stderr)
        hunks, offered = (
            sum(counts) for counts in zip(*((each.accepted_hunks, each.total_hunks) for each in written), strict=True)
        )
        parts = [f"applied {hunks}/{offered} hunks", self._summary(), f"undo: specchat undo {kept.number}"]
        if self.options["is_commit"]:
            parts.append(f"commit {commit_files(paths, self.instruction)}")
        print(" · ".join(part for part in parts if part), file=sys.stderr)

    def _summary(self) -> str:
        """What all turns together cost."""
        routed = self.accepted[-1].run.route
        totals = sum_totals([finished for each in self.accepted for finished in each.run.finished_turns])
        return summary_line(routed, totals) if routed else ""


def _print_diff(source: Source, text: str) -> None:
    """The bytes that `git apply` needs; on a terminal the letters that a person reads."""
    patch = source_diff(source, text)
    if sys.stdout.isatty():
        sys.stdout.write(patch)
    else:
        sys.stdout.buffer.write(patch.encode(source.codec.removesuffix("-sig")))
    sys.stdout.flush()
