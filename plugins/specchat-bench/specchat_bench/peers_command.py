"""`specchat bench peers`: our engine against transformers, llama.cpp and other servers on the same weights."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from specchat.cli.completion import complete_models
from specchat.cli.main import INTERRUPTED_EXIT_CODE
from specchat.cli.notes import print_note
from specchat.cli.options import CommandFunction, profile_options, resolve_profile
from specchat.errors import InputError, UsageError
from specchat_bench.command_options import PROMPTS
from specchat_bench.loaded_engine import load_engine_here

T = TypeVar("T")

# What --gguf decides: the parameter, and the flag that would decide it a second time.
DECIDED_BY_GGUF: Mapping[str, str] = {
    "target": "--target", "prompt_tokens": "--prompt-tokens",
    "name_filter": "--filter", "device": "--device", "dtype": "--dtype", "weights": "--weights",
    "variant": "--variant", "temperature": "--temperature", "thinks": "--think",
}  # fmt: skip
DEFAULT_OURS = "http://127.0.0.1:11535"  # where `specchat serve` listens


def gguf_as_target(command: CommandFunction) -> CommandFunction:
    """Let `--gguf` name the target, for `--dry-run` too; `--server` needs none, since its servers run.

    UsageError when another option says what one of both decides.
    """

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        if deciding := next((name for name in ("server", "gguf") if options[name]), None):
            decided = {"gguf": "--gguf", "threads": "--threads"} if deciding == "server" else {}
            for name, flag in {**DECIDED_BY_GGUF, **decided}.items():
                if options[name]:
                    raise UsageError(f"--{deciding} decides what is compared and how; leave {flag} out")
        options["target"] = options["gguf"] or options["target"]
        return command(*arguments, **options)

    return cast("CommandFunction", run)


@click.command()
@click.argument("prompts", type=PROMPTS, required=False)
@click.option(
    "--gguf",
    default="",
    metavar="FILE",
    help="Only beside llama.cpp, on this file, folder, starter or ollama:NAME, in one table.",
    shell_complete=complete_models,
)
@click.option(
    "--server",
    multiple=True,
    metavar="[NAME=]URL",
    help="Only beside this server, in each of its settings that runs, over HTTP; may be repeated.",
)
@click.option(
    "--ours",
    multiple=True,
    default=(DEFAULT_OURS,),
    show_default=True,
    metavar="[NAME=]URL",
    help="With --server, a running `specchat serve`; may be repeated.",
)
@click.option(
    "--count", default=20, show_default=True, help="Number of prompts; with --gguf or --server, of each kind."
)
@click.option("--limit", default=200, show_default=True, help="Most tokens of an answer.")
@click.option(
    "--prompt-tokens", default=0, help="Cut or repeat each prompt to this length; compare reading with --limit 1."
)
@click.option(
    "--threads",
    default=0,
    help="Threads of a pass, ours and theirs; 0 leaves it to torch, and with --gguf is all and then one.",
)
@click.option("--filter", "name_filter", default="", help="Only comparisons whose name contains this, as 'generate'.")
@gguf_as_target
@profile_options
def peers(
    prompts: Path | None, gguf: str, server: tuple[str, ...], ours: tuple[str, ...], count: int, limit: int,
    prompt_tokens: int, threads: int, name_filter: str, **options: Any,
) -> int:  # fmt: skip
    """Measure against transformers, llama.cpp and other servers on the same weights, side by side.

    PROMPTS is a file of JSON lines with `turns`, or with `instruction` and `before`, or a folder of such files. Each
    prompt runs ours, theirs, theirs, ours; the table shows ratios of seconds per token, prefill included; with
    --prompt-tokens and --limit 1 they are those of reading. llama.cpp takes part where its library is installed;
    SPECCHAT_LLAMA names its folder. It reads the target's GGUF file, or one that is written from our weights where
    there is none.

    With --gguf, plain decoding and auto run beside llama.cpp on the same file, with all threads and with one in turn: a
    row for chat, code and edit each, for the prefill of 512 and 4096 tokens, and for passes over 8 and 16 rows. PROMPTS
    is then a folder with chat.jsonl, code.jsonl and edit.jsonl; without it, built-in prompts are used. Ctrl-C ends it
    with the rows so far.

    With --server, running servers and `specchat serve` answer the same chats in turn, and the table has the time by the
    clock of a client: of whole answers, of the first text, and of decoding. Several servers may be one in several
    settings, such as its ways to draft; the fastest for each prompt has a row of its own.
    """
    if server:
        return _beside_servers(options, prompts, server, ours, count, limit)
    if gguf:
        return _beside_llama_cpp(options, prompts, count, limit, threads)
    if prompts is None:
        raise UsageError("give a file or folder of prompts, or --gguf, or --server")
    if prompt_tokens < 0:
        raise UsageError("--prompt-tokens is a length, 1 or more")
    from specchat_bench.compared_engines import PeerBench, as_table, cut_or_repeat
    from specchat_bench.llama_cpp import MISSING_MESSAGE, find_library_folder
    from specchat_bench.measure import set_thread_count
    from specchat_bench.prompt_files import read_prompts
    from specchat_bench.tokenized_prompts import tokenize_prompts

    engine = load_engine_here(resolve_profile(options))
    set_thread_count(threads)
    tokenized = tokenize_prompts(engine, read_prompts(prompts), count, limit)
    chosen, requests = tuple(each.token_ids for each in tokenized), tuple(each.request for each in tokenized)
    if prompt_tokens:
        fits = prompt_tokens + limit <= engine.models.target.context_window
        chosen, requests = tuple(cut_or_repeat(each, prompt_tokens) for each in chosen if fits), ()
    if not chosen:
        raise InputError(f"{prompts}: no prompt there leaves room for {limit} tokens in the context window")
    print_note(f"{len(chosen)} prompts, answers of at most {limit} tokens")
    if find_library_folder() is None:
        print_note(MISSING_MESSAGE)
    print(as_table(PeerBench(engine, chosen, limit, name_filter, requests=requests).rows(print_note)))
    return 0


def _beside_llama_cpp(options: Mapping[str, Any], prompts: Path | None, count: int, limit: int, threads: int) -> int:
    """The table of `--gguf`, whose file is the target of the options."""
    if min(count, limit) < 1 or threads < 0:
        raise UsageError("--count and --limit must be at least 1, and --threads 0 or more")
    from specchat_bench import gguf_peers
    from specchat_bench.gguf_peers_table import as_table, explanation
    from specchat_bench.llama_cpp import LlamaCppModel, required_library_folder

    library, profile = required_library_folder(), gguf_peers.comparable_profile(resolve_profile(options))
    file, requests = gguf_peers.gguf_file(profile), gguf_peers.comparable_requests(profile, prompts, count)
    engine = load_engine_here(profile)
    bench = gguf_peers.GgufBench(engine, gguf_peers.tokenize_requests(engine, requests, count, limit), limit)
    llama_cpp = LlamaCppModel(library, file, bench.llama_cpp_limits)
    compared, exit_code = _until_interrupt(bench.measure(llama_cpp, gguf_peers.thread_counts(threads), print_note))
    print(f"{as_table(compared)}\n\n{explanation(profile, limit, _own_command(), llama_cpp.release)}")
    return exit_code


def _beside_servers(
    options: Mapping[str, Any], prompts: Path | None, theirs: Sequence[str], ours: Sequence[str], count: int, limit: int
) -> int:
    """The table of `--server`."""
    if min(count, limit) < 1:
        raise UsageError("--count and --limit must be at least 1")
    from specchat_bench.gguf_peers import comparable_requests
    from specchat_bench.server_race import ChatServer, ServerRace
    from specchat_bench.server_race_table import as_table, explanation

    our_servers, their_servers = ([ChatServer.parse(each) for each in side] for side in (ours, theirs))
    race = ServerRace(our_servers, their_servers, limit)
    requests = comparable_requests(resolve_profile(options), prompts, count)
    raced, exit_code = _until_interrupt(race.run(requests, count, print_note))
    print(f"{as_table(raced)}\n\n{explanation(raced, limit, _own_command())}")
    return exit_code


def _own_command() -> str:
    return shlex.join(["specchat", *sys.argv[1:]])


def _until_interrupt(measured: Iterable[T]) -> tuple[list[T], int]:
    """What was measured, one by one, so that Ctrl-C keeps what was before it; and the exit code. Abort for nothing."""
    found, exit_code = list[T](), 0
    try:
        for each in measured:
            found.append(each)
    except KeyboardInterrupt:
        exit_code = INTERRUPTED_EXIT_CODE
    if not found:
        raise click.Abort
    if exit_code:
        print_note("interrupted; the table has what was measured so far")
    return found, exit_code
