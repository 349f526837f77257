"""`specchat verify`: checks that drafting does not change the text, with this model on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from specchat.cli.bench import PROMPTS, parse_names
from specchat.cli.completion import complete_drafters, complete_models, complete_sessions
from specchat.cli.loaded_engine import load_engine_here
from specchat.cli.options import profile_options, resolve_profile
from specchat.cli.print_turn import TemporaryLine
from specchat.errors import InputError, NotLosslessError, UsageError
from specchat.history.history_reader import HistoryReader
from specchat.host.spawn import history_path
from specchat.profile import DRAFTERS

if TYPE_CHECKING:
    from specchat.bench.loop_check import LoopReport
    from specchat.bench.lossless_check import Difference, VerifyReport
    from specchat.chat.request import Request
    from specchat.loading.load_engine import Engine

Report = TypeVar("Report", "VerifyReport", "LoopReport")
MAX_LISTED_DIFFERENCES = 5  # of one variant


@click.command()
@click.argument("model", required=False, shell_complete=complete_models)
@click.option(
    "--session",
    "session_id",
    default="",
    help="Replay this conversation: its id or the beginning of it.",
    shell_complete=complete_sessions,
)
@click.option("--prompts", "prompts_path", type=PROMPTS, help="Prompts as JSON lines, as for 'specchat bench'.")
@click.option(
    "--variants",
    "names",
    default="all",
    show_default=True,
    help="Drafters, separated by commas.",
    shell_complete=complete_drafters,
)
@click.option("--count", default=6, show_default=True, help="Number of prompts, or of loops.")
@click.option("--limit", default=64, show_default=True, help="Most tokens of an answer.")
@click.option("--draws", default=1000, show_default=True, help="Samples for each acceptance test; 0 skips them.")
@click.option(
    "--loops", "is_loops", is_flag=True, help="Compare tool calls in agent loops instead of answers to prompts."
)
@click.option("--json", "is_json", is_flag=True, help="The whole report as one JSON object.")
@profile_options
def verify(
    model: str | None,
    session_id: str,
    prompts_path: Path | None,
    names: str,
    count: int,
    limit: int,
    draws: int,
    *,
    is_loops: bool,
    is_json: bool,
    **options: Any,
) -> None:
    """Decode prompts with and without drafts, and compare the texts.

    MODEL is a target as for --target. Exit code 0: decoding is lossless here; 10: it is not, and the report shows
    the differences.
    """
    if session_id and prompts_path:
        raise UsageError("--session and --prompts both say what is decoded; name one of them")
    if is_loops and (session_id or prompts_path):
        raise UsageError("--loops has conversations of its own; leave out --session and --prompts")
    options["target"] = model or options["target"]
    profile = resolve_profile(options)
    variants = parse_names("variant", names, [name for name in DRAFTERS if name != "plain"])
    from specchat.bench.lossless_check import VerifySettings, verify_lossless

    engine, progress_line = load_engine_here(profile), TemporaryLine()
    if is_loops:
        from specchat.bench.loop_check import verify_loops

        loops = verify_loops(engine, variants, count, progress_line.show)
        progress_line.erase()
        _print_report(loops, loops_as_text, "a tool call or a text of a loop", is_json=is_json)
        return
    prompts = (
        list(_stored_prompts(session_id, engine))
        if session_id
        else _tokenized_prompts(_requests(prompts_path), engine, count, limit)
    )
    report = verify_lossless(engine, VerifySettings(prompts[:count], variants, limit, draws), progress_line.show)
    progress_line.erase()
    _print_report(report, as_text, "the text", is_json=is_json)


def _print_report(report: Report, to_text: Callable[[Report], str], compared: str, *, is_json: bool) -> None:
    """Print it; NotLosslessError when drafting changed what was compared."""
    print(json.dumps(asdict(report) | {"lossless": report.is_lossless}) if is_json else to_text(report))
    if not report.is_lossless:
        raise NotLosslessError(f"decoding is not lossless here: drafting changed {compared}; please report this")


def _requests(prompts_path: Path | None) -> Iterator[Request]:
    """The prompts of a file or folder, or the built-in ones, one of each kind in turn."""
    from specchat.bench.builtin_prompts import BUILTIN_REQUESTS
    from specchat.bench.prompt_files import read_prompts

    if prompts_path:
        return read_prompts(prompts_path)
    by_turns = zip(*(requests[:3] for requests in BUILTIN_REQUESTS.values()), strict=True)
    return chain.from_iterable(by_turns)


def _tokenized_prompts(requests: Iterator[Request], engine: Engine, count: int, limit: int) -> list[list[int]]:
    from specchat.bench.peers import tokenize_prompts

    if prompts := tokenize_prompts(engine, requests, count, limit):
        return [prompt.token_ids for prompt in prompts]
    raise InputError("none of the prompts fits the context window of this model together with its answer")


def _stored_prompts(session_id: str, engine: Engine) -> Iterator[list[int]]:
    path = history_path()
    reader = HistoryReader(path) if path.is_file() else None
    thread = reader.thread(session_id) if reader else None
    if reader is None or thread is None:
        raise InputError(f"{session_id}: no such conversation, or several begin with it; see 'specchat sessions list'")
    with closing(reader):
        turns = [list(turn.answer.prompt_ids) for turn in reader.turns(thread.tip) if turn.answer.prompt_ids]
    target = engine.models.target
    fitting = [ids for ids in turns if max(ids) < target.vocab_size and len(ids) < target.context_window]
    if not fitting:
        raise InputError(f"{session_id}: none of its {len(turns)} turns can be replayed by this model; name its own")
    yield from fitting


def as_text(report: VerifyReport) -> str:
    exact = ", exact" if report.exact else ""
    lines = [f"{report.model} in {report.dtype}{exact}", "", f"{'variant':<12}{'T':>5}  identical"]
    for result in report.results:
        identical = result.skip_reason or f"{result.identical_answers} of {result.answers}"
        ties = f", {len(result.near_ties)} decided a near tie the other way" if result.near_ties else ""
        lines.append(f"{result.variant:<12}{result.temperature:>5g}  {identical}{ties}")
        lines += [f"{'':19}{_difference_text(difference)}" for difference in result.mismatches[:MAX_LISTED_DIFFERENCES]]
    share = f"{report.near_tie_tokens} of {report.sampled_tokens} sampled tokens of plain decoding were near ties"
    lines += ["", share]
    for fit in report.distribution_tests:
        outcome = "do not fit" if fit.is_failure else "fit"
        samples = f"{fit.rule}, {fit.token_position}: {fit.draws} samples {outcome}"
        lines.append(f"{samples} the probabilities of a plain pass (p = {fit.p_value:.2g})")
    last_line = "decoding is lossless here" if report.is_lossless else "decoding is not lossless here"
    return "\n".join([*lines, "", last_line])


def loops_as_text(report: LoopReport) -> str:
    """A Markdown table: how many turns and calls of each drafter are those of plain decoding."""
    exact = "" if report.is_exact else "; near ties may be decided differently here"
    lines = [f"{report.model}: tool calls and texts of agent loops beside plain decoding{exact}", ""]
    lines += [
        "| variant | T | loops equal | turns equal | tool calls equal | first difference |",
        "|---|---|---|---|---|---|",
    ]
    for result in report.results:
        cells = (
            [result.skip_reason, "", "", ""]
            if result.skip_reason
            else [
                f"{result.equal_loops} of {result.loops}", f"{result.equal_turns} of {result.turns}",
                f"{result.equal_calls} of {result.calls}", result.first_difference,
            ]
        )  # fmt: skip
        lines.append(f"| {result.variant} | {result.temperature:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _difference_text(difference: Difference) -> str:
    return (
        f"token {difference.position + 1}: {difference.drafted_token} instead of {difference.plain_token}, "
        f"which had a higher logit in plain decoding, by {difference.logit_margin:.3g}"
    )
