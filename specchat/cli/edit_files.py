"""One run of `specchat edit` over some files: edited one after the other, written at the end, all or none."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from specchat.chat.sum_totals import sum_totals
from specchat.chat.turn_summary import summary_line
from specchat.cli.edit_conversation import (
    LateConversation,
    context_window,
    edit_run_for,
    open_conversation_for,
    open_edit_conversation,
    run_with_progress,
)
from specchat.edit.answer_check import check_unreviewed
from specchat.edit.atomic_write import Replacement, check_writable
from specchat.edit.check_commands import run_checks, split_check_command
from specchat.edit.edit_plan import Region, parse_line_range
from specchat.edit.edit_task import EditJob, EditResult, multi_file_jobs, rewrite_region, run_edit
from specchat.edit.edit_turn import EditRun
from specchat.edit.git_commit import check_repository, commit_files, has_other_changes
from specchat.edit.hunk_prompt import ReviewUI, review_edit
from specchat.edit.hunks import diff_hunks
from specchat.edit.json_report import failure_report, file_report
from specchat.edit.refactoring import Refactoring
from specchat.edit.refactoring.joint_rename import joint_refactorings
from specchat.edit.source_text import Source, read_source, source_diff
from specchat.edit.syntax_check import check_syntax
from specchat.edit.terminal_review import colour_hunk, edit_in_editor, prompt_user, wants_colours
from specchat.edit.undo_store import apply_edit, save_candidate, user_undo_store
from specchat.errors import BrokenEditError, DeclinedError, NoChangeError, SpecchatError, UsageError


@dataclass(frozen=True)
class AcceptedEdit:
    source: Source
    path: Path
    text: str
    accepted_hunks: int
    total_hunks: int
    result: EditResult
    run: EditRun

    @property
    def new_bytes(self) -> bytes:
        return self.source.encode(self.text)

    @property
    def replacement(self) -> Replacement:
        return Replacement(self.path, self.source.raw, self.new_bytes)


@dataclass
class EditFiles:
    instruction: str
    options: dict[str, Any]
    accepted: list[AcceptedEdit] = field(default_factory=list)
    unchanged: dict[str, NoChangeError] = field(default_factory=dict)

    @property
    def is_interactive(self) -> bool:
        options = self.options
        decides_itself = options["yes"] or options["is_diff"] or options["is_json"]
        return not decides_itself and sys.stdout.isatty() and sys.stdin.isatty()

    @property
    def is_writing(self) -> bool:
        return self.is_interactive or (self.options["yes"] and not self.options["is_diff"])

    def run(self, paths: Sequence[Path]) -> int:
        sources = self._read_sources(paths)
        renamings = joint_refactorings(sources, self.instruction)
        if renamings or self.options["is_together"]:
            self._edit_together(paths, sources, renamings)
        else:
            for path, source in zip(paths, sources, strict=True):
                self._edit_or_report(source, partial(self._edit, path, source))
        for name, no_change in self.unchanged.items():
            self._print_json(failure_report(name, no_change))
        if not self.accepted:
            raise next(iter(self.unchanged.values()))
        self._finish()
        return 0

    def _edit_or_report(self, source: Source, edit_file: Callable[[], None]) -> None:
        """Edit one file. A file without a change is recorded; any other error is reported and ends the run."""
        try:
            edit_file()
        except NoChangeError as no_change:
            self.unchanged[source.name] = no_change
        except SpecchatError as error:
            self._report(is_written=False)
            self._print_json(failure_report(source.name, error))
            raise

    def _finish(self) -> None:
        if self.is_writing:
            try:
                self._write()
            except SpecchatError as error:
                for each in self.accepted:
                    self._print_json(failure_report(each.source.name, error))
                raise
        self._report(is_written=self.is_writing)

    def _read_sources(self, paths: Sequence[Path]) -> list[Source]:
        """Read the files and check everything that needs no model."""
        if self.options["lines"] and len(paths) > 1:
            raise UsageError("-l FIRST-LAST is about one file; name one")
        if len({path.resolve() for path in paths}) < len(paths):
            raise UsageError("two of these names are the same file; name it once")
        for command in self.options["checks"]:
            split_check_command(command)
        for notice in user_undo_store().notices:  # before the files are read
            _print_note(notice)
        sources = [read_source(path) for path in paths]
        if self.is_writing:
            for path in paths:
                check_writable(path)
            if self.options["is_commit"]:
                check_repository(paths)
        return sources

    def _edit(self, path: Path, source: Source) -> None:
        target = path.resolve()

        def check(text: str) -> None:
            earlier = {each.path.resolve(): each.new_bytes for each in self.accepted}
            run_checks(self.options["checks"], target, {**earlier, target: source.encode(text)})

        lines = parse_line_range(self.options["lines"]) if self.options["lines"] else None
        with open_conversation_for(source, self.instruction, lines, self.options) as conversation:
            job = EditJob(source, self.instruction, context_window(self.options, conversation), lines, check)
            run = edit_run_for(self.options, conversation)
            self._decide(path, job, self._generate(job, run), run)

    def _edit_together(
        self, paths: Sequence[Path], sources: Sequence[Source], renamings: Sequence[Refactoring]
    ) -> None:
        """Edit all files in one conversation, or by the tree, then decide on all, then run the checks on all."""
        edits: list[tuple[Path, EditJob, EditResult, EditRun]] = []
        open_now = partial(open_edit_conversation, self.options)
        with LateConversation(open_now) if renamings else open_now() as conversation:

            def generate(path: Path, job: EditJob) -> None:
                run = EditRun(conversation, temperature=self.options["temperature"])
                edits.append((path, job, self._generate(job, run), run))

            window = context_window(self.options, conversation)
            jobs = [EditJob(each.source, self.instruction, window, refactoring=each) for each in renamings]
            jobs = jobs or multi_file_jobs(sources, self.instruction, window)
            for path, job in zip(paths, jobs, strict=True):
                self._edit_or_report(job.source, partial(generate, path, job))
            for path, job, result, run in edits:
                self._edit_or_report(job.source, partial(self._decide, path, job, result, run))
        new = {each.path.resolve(): each.new_bytes for each in self.accepted}
        for each in self.accepted:
            self._edit_or_report(each.source, partial(run_checks, self.options["checks"], each.path.resolve(), new))

    def _decide(self, path: Path, job: EditJob, result: EditResult, run: EditRun) -> None:
        decide = self._review if self.is_interactive else self._print_or_accept_all
        self.accepted.append(decide(path, job, result, run))

    def _generate(self, job: EditJob, run: EditRun) -> EditResult:
        """The new text. A text that fails a check is saved for the user to inspect."""
        try:
            return run_with_progress(job, run, self.options["timeout"], lambda: run_edit(job, run))
        except BrokenEditError as broken:
            if run.candidate:
                saved_path = save_candidate(job.source.name, job.source.encode(run.candidate))
                broken.args = (f"{broken}; it is saved in {saved_path}",)
            raise

    def _review(self, path: Path, job: EditJob, result: EditResult, run: EditRun) -> AcceptedEdit:
        def check(text: str) -> None:
            check_syntax(job.source, text)
            job.check(text)

        def rewrite(first: int, end: int, instruction: str) -> str | None:
            region, timeout = Region(first + 1, end), self.options["timeout"]
            return run_with_progress(job, run, timeout, lambda: rewrite_region(job, region, instruction, run))

        suffix = Path(job.source.name).suffix
        ui = ReviewUI(
            prompt_user, _print_hunk, _print_note, lambda text: edit_in_editor(text, suffix, _print_note), rewrite
        )
        reviewed = review_edit(job.source, result.text, result.warnings, check, ui)
        accepted_hunks, total_hunks = len(reviewed.accepted_hunks), len(reviewed.decisions)
        return AcceptedEdit(job.source, path, reviewed.text, accepted_hunks, total_hunks, result, run)

    def _print_or_accept_all(self, path: Path, job: EditJob, result: EditResult, run: EditRun) -> AcceptedEdit:
        """Without a review: print the diff, or accept all hunks."""
        source = job.source
        if self.is_writing:
            check_unreviewed(source, result.warnings, allows_shrink=self.options["allow_shrink"])
        if not self.is_writing and not self.options["is_json"]:
            _print_diff(source, result.text)
            if result.warnings.summary:
                print(f"specchat: {source.name}: {result.warnings.summary}", file=sys.stderr)
        hunks = len(diff_hunks(source.text, result.text))
        return AcceptedEdit(source, path, result.text, hunks, hunks, result, run)

    def _report(self, *, is_written: bool) -> None:
        checks = ["syntax", *self.options["checks"]]
        for each in self.accepted:
            self._print_json(file_report(each.source, each.result, each.run, checks=checks, is_applied=is_written))

    def _print_json(self, report: Mapping[str, Any]) -> None:
        if self.options["is_json"]:
            print(json.dumps(report, ensure_ascii=False), flush=True)

    def _write(self) -> None:
        written = [each for each in self.accepted if each.text != each.source.text]
        if not written:
            raise DeclinedError("no hunk was accepted; nothing is written")
        paths = [each.path for each in written]
        changed_before = [path for path in paths if self.options["is_commit"] and has_other_changes(path)]
        try:
            undo_entry = apply_edit(user_undo_store(), self.instruction, [each.replacement for each in written])
        except OSError as error:
            raise SpecchatError(f"{error.filename or paths[0]}: cannot be written: {error.strerror}") from error
        for path in changed_before:
            print(f"specchat: {path}: had uncommitted changes, which are committed with the edit", file=sys.stderr)
        accepted_count = sum(each.accepted_hunks for each in written)
        applied = f"applied {accepted_count}/{sum(each.total_hunks for each in written)} hunks"
        parts = [applied, self._summary(), f"undo: specchat undo {undo_entry.number}"]
        if self.options["is_commit"]:
            parts.append(f"commit {commit_files(paths, self.instruction)}")
        print(" · ".join(part for part in parts if part), file=sys.stderr)

    def _summary(self) -> str:
        routed = self.accepted[-1].run.route
        totals = sum_totals([finished for each in self.accepted for finished in each.run.finished_turns])
        return summary_line(routed, totals) if routed else ""


def _print_note(message: str) -> None:
    print(message, file=sys.stderr)


def _print_hunk(hunk: str) -> None:
    sys.stdout.write(colour_hunk(hunk) if wants_colours() else hunk)
    sys.stdout.flush()


def _print_diff(source: Source, text: str) -> None:
    """Print the bytes that `git apply` needs, or text on a terminal."""
    patch = source_diff(source, text)
    if sys.stdout.isatty():
        sys.stdout.write(patch)
    else:
        sys.stdout.buffer.write(patch.encode(source.codec.removesuffix("-sig")))
    sys.stdout.flush()
