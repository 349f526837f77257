"""The long form of tests/faults, as a table: `python -m tools.fault_runs [--seed N] [--into FILE] [RUN=COUNT ...]`.

Runs: cancels, memory, weights, turns, kills (of hosts with the fake engine), model_kills, lines for host, acp, lsp and
http, load, for so many seconds, and behind: short questions behind four long answers. Models are those of the default
profile: the starter where it is on this disk. Each run prints its row when it has ended: its count is that of what met
the fault, not of what was asked for. The exit code is 1 when a fault was found. The same seed makes the same input;
moments of kills depend on the machine. acp and lsp need the plugin specchat-editors, http specchat-serve.

With `--into`, cancels, memory, weights and kills run in pieces with a seed each. The file gets a line of JSON for each
piece that has ended, and the same command goes on after them.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from specchat.chat.events import Finished
from specchat.chat.request import Request
from specchat.host import spawn
from specchat.host.client import Conversation
from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Profile
from specchat.profile.profile_files import DEFAULT_PROFILE, load_profile
from tests.faults import cancels, generated, memory, weights
from tests.faults.load import CLIENTS, LONG_ANSWERS, LONGEST_SILENCE_SECONDS, run_behind, run_load
from tests.host.conftest import world
from tests.host.test_kills import LONG_ANSWER, kill_after
from tests.host.test_wire import generated_line

COUNTS = {
    "cancels": 500, "memory": 120, "weights": 600, "turns": 2000, "kills": 200, "model_kills": 20,
    "host": 10_000, "acp": 10_000, "lsp": 10_000, "http": 1000, "load": 600,
    "behind": 20,
}  # fmt: skip
PIECES = {"cancels": 25, "memory": 20, "weights": 80, "kills": 20, "model_kills": 10}  # counts
NUMBER = re.compile(r"\d+")
SETTLED_TURNS = 100
MAX_GROWTH = 0.02
HOST_LINES_AT_ONCE = 100
STORY, STORY_TOKENS = "Write a long story about a river.", 90  # too few to repeat itself, and for repeats to be removed


@dataclass(frozen=True)
class Row:
    fault: str
    count: int
    result: str
    is_good: bool
    seconds: float = 0.0


@dataclass(frozen=True)
class Piece:
    """A part of a run that has a seed of its own."""

    run: str
    count: int
    seed: int


def pieces_of(run: str, count: int, seed: int) -> list[Piece]:
    size = PIECES.get(run, count)
    return [Piece(run, min(size, count - size * number), seed + number) for number in range(math.ceil(count / size))]


def added(rows: list[Row]) -> Row:
    """One row of all pieces of a run: the words are those of each, the numbers in them are added up."""
    words = {NUMBER.sub("{}", row.result) for row in rows}
    assert 1 == len(words) == len({row.fault for row in rows}), f"not of one run: {rows}"
    sums = [sum(map(int, column)) for column in zip(*(NUMBER.findall(row.result) for row in rows), strict=True)]
    return Row(
        rows[0].fault, sum(row.count for row in rows), words.pop().format(*sums), all(row.is_good for row in rows),
        sum(row.seconds for row in rows),
    )  # fmt: skip


def run_piece(piece: Piece) -> Row:
    started_at = time.monotonic()
    row = RUNS[piece.run](piece.count, piece.seed)
    return Row(row.fault, row.count, row.result, row.is_good, round(time.monotonic() - started_at, 1))


def run_in_pieces(run: str, count: int, seed: int, path: Path) -> Row:
    """Run the pieces that the file does not have, and add all of them up."""
    known = dict[Piece, Row]()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        stored = json.loads(line)
        known[Piece(**stored["piece"])] = Row(**stored["row"])
    pieces = pieces_of(run, count, seed)
    for piece in pieces:
        if piece not in known:
            known[piece] = run_piece(piece)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"piece": asdict(piece), "row": asdict(known[piece])}) + "\n")
    return added([known[piece] for piece in pieces]) if len(pieces) > 1 else known[pieces[0]]


@contextmanager
def runtime_folder(host_command: tuple[str, ...] | None = None) -> Generator[None]:
    """A runtime folder with its own host, whose engine is fake unless a command of another one is given."""
    with pytest.MonkeyPatch.context() as patch:
        for _folder in world(patch):
            if host_command:
                patch.setattr(spawn, "HOST_COMMAND", host_command)
            yield


def default_profile() -> Profile:
    """That of a user who has set nothing: with the starter model where it is on this disk, else the embedded model."""
    return load_profile(DEFAULT_PROFILE)


def run_cancels(count: int, seed: int) -> Row:
    profile = default_profile()
    found = cancels.cancel_at_random(load_engine(profile), count, seed)
    result = (
        f"{found.different_texts} next answers differ from a fresh session's, {found.failures} failures, "
        f"{found.threads} threads and {found.descriptors} descriptors left"
    )
    fault = f"answers cancelled at a random event, all drafters of {profile.models.target}"
    return Row(fault, found.tries, result, found.is_clean())


def run_memory(count: int, seed: int) -> Row:
    profile = default_profile()
    found = memory.fail_at_random(load_engine(profile), count, seed)
    result = f"{found.failures} without a sentence, {found.different_texts} next answers differ from a fresh session's"
    fault = f"a pass of {profile.models.target} without memory, all drafters"
    return Row(fault, found.tries, result, found.is_clean())


def run_weights(count: int, seed: int) -> Row:
    found = weights.Loads()
    for number, kind in enumerate(weights.KINDS):
        share = len(range(number, count, len(weights.KINDS)))
        with tempfile.TemporaryDirectory() as folder:
            found.add(weights.load_hostile(kind, Path(folder), share, seed))
    for fault in found.faults:
        print(fault, file=sys.stderr)
    result = f"{found.refused} refused in a line, {len(found.faults)} faults; the others load and compute a pass"
    return Row(f"hostile safetensors: {', '.join(weights.KINDS)}", found.tries, result, not found.faults)


def run_turns(count: int, _seed: int) -> Row:
    profile = default_profile()
    settled = min(SETTLED_TURNS, count // 2)
    growth = cancels.growth_over_turns(load_engine(profile), count, settled)
    result = f"resident memory {growth:+.1%} after the first {settled}"
    return Row(
        f"turns of one conversation with {profile.models.target}, each taken back", count, result, growth < MAX_GROWTH
    )


def run_kills(count: int, seed: int) -> Row:
    kills = _kill_at_random(count, seed, 450, LONG_ANSWER)
    return kills.row("SIGKILL of host, client or both during an answer of the fake engine")


def run_model_kills(count: int, seed: int) -> Row:
    """With the default profile, in an engine process of its own, which each kill of a host starts anew."""
    kills = _kill_at_random(count, seed, 40, STORY, STORY_TOKENS, spawn.HOST_COMMAND)
    return kills.row(f"SIGKILL of host, client or both during an answer of {default_profile().models.target}")


@dataclass
class Kills:
    """Kills that ended a process, and how many lost more than the last 1.2 seconds of text, or a host that answers."""

    tries: int = 0
    lost: int = 0

    def row(self, fault: str) -> Row:
        result = f"{self.lost} times lost text, a damaged history, or a host that did not answer again"
        return Row(fault, self.tries, result, not self.lost)


def _kill_at_random(
    count: int, seed: int, most_words: int, question: str, max_tokens: int = 0, host: tuple[str, ...] | None = None
) -> Kills:
    kills = Kills()
    for number in range(count):
        generator = random.Random(seed * 1000 + number)
        with runtime_folder(host):
            kill = None
            try:
                victims = generator.choice(["host", "client", "both"])
                words = generator.choice([0, generator.randrange(1, most_words)])
                kill = kill_after(words, victims, generator.random(), question, max_tokens)
                assert kill.stored.startswith(kill.kept), f"{kill.kept!r} was shown and {kill.stored!r} stored"
            except AssertionError as error:
                print(f"kill {number}: {error}", file=sys.stderr)
                kills.lost += 1
            kills.tries += kill is None or bool(kill.processes)
    return kills


def run_host_lines(count: int, seed: int) -> Row:
    generator = random.Random(seed)
    with runtime_folder():
        talk = Conversation()
        process_id = talk.call("hello")["pid"]
        with spawn.find_or_start_host() as peer:
            peer.settimeout(60)
            for sent in range(0, count, HOST_LINES_AT_ONCE):
                some = range(sent, min(sent + HOST_LINES_AT_ONCE, count))
                lines = [generated_line(generator, [talk.session_id, "unknown"]) for _ in some]
                mark = b'{"jsonrpc":"2.0","id":"mark%d","method":"hello"}' % sent
                peer.sendall(b"\n".join([*lines, mark, b""]))
                _read_until(peer, b'"mark%d"' % sent)
        after = Conversation()
        is_good = after.call("hello")["pid"] == process_id and isinstance(
            [*after.ask(Request("count 2"))][-1], Finished
        )
    return Row("generated lines on the socket of the host", count, _alive(is_good), is_good)


def _read_until(peer: socket.socket, mark: bytes) -> None:
    received = b""
    while mark not in received:
        received = received[-64:] + peer.recv(2**20)


def _alive(is_good: bool) -> str:
    return "the same process answers the next question" if is_good else "the next question was not answered"


def run_process_lines(protocol: str) -> Callable[[int, int], Row]:
    def run(count: int, seed: int) -> Row:
        with runtime_folder():
            survived = generated.feed(protocol, count, seed)
        return Row(f"generated messages to `{protocol}`", survived.sent, _alive(survived.is_alive), survived.is_alive)

    return run


def run_http(count: int, seed: int) -> Row:
    with runtime_folder(), generated.http_server() as port:
        requests = generated.feed_http(port, count, seed)
        is_good = generated.is_answering(port)
    result = f"{requests.answered} were answered; {_alive(is_good)}"
    return Row("generated requests to `serve`", requests.sent, result, is_good)


def run_load_of_clients(seconds: int, seed: int) -> Row:
    """With the default profile, in an engine process of its own."""
    with runtime_folder(spawn.HOST_COMMAND):
        result = run_load(seconds, seed, {})
        for failure in result.failures:
            print(failure, file=sys.stderr)
    counts = ", ".join(f"{result.count(kind)} {kind}s of {clients} clients" for kind, clients in CLIENTS.items())
    silence = max(each.longest_silence for each in result.clients)
    text = (
        f"{counts}; {len(result.failures)} failures; {len(result.starved)} clients waited for more than "
        f"{LONGEST_SILENCE_SECONDS:.0f} s, the longest wait for a step {silence:.1f} s; a completion took "
        f"{result.quantile('completion', 0.5):.2f} s (median) and {result.quantile('completion', 0.95):.2f} s (p95); "
        f"the engine process had {result.processors:.2f} processors"
    )
    name = f"{len(result.clients)} clients at once for {seconds} seconds: chats, edits and completions"
    return Row(name, sum(map(result.count, CLIENTS)), text, not result.failures and not result.starved)


def run_behind_long_answers(count: int, _seed: int) -> Row:
    """With the default profile, in an engine process of its own."""
    with runtime_folder(spawn.HOST_COMMAND):
        result = run_behind(count, {})
    middle, late = result.quantile(0.5), result.quantile(0.95)
    text = (
        f"first text after {middle.seconds:.2f} s (median) and {late.seconds:.2f} s (p95), behind {middle.other_steps} "
        f"and {late.other_steps} steps of the others, each of {1000 * result.step_seconds:.0f} ms; "
        f"{len(result.failures)} failures"
    )
    return Row(f"a short question behind {LONG_ANSWERS} long answers", count, text, not result.failures)


RUNS: dict[str, Callable[[int, int], Row]] = {
    "cancels": run_cancels, "memory": run_memory, "weights": run_weights, "turns": run_turns, "kills": run_kills,
    "model_kills": run_model_kills, "host": run_host_lines,
    **{protocol: run_process_lines(protocol) for protocol in ("acp", "lsp")}, "http": run_http,
    "load": run_load_of_clients, "behind": run_behind_long_answers,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Look for faults in a long run, and print a table.")
    parser.add_argument("runs", nargs="*", metavar="RUN[=COUNT]", help=f"default: all; {json.dumps(COUNTS)}")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--into", type=Path, metavar="FILE", help="run in pieces, and go on after those in this file")
    options = parser.parse_args()
    print("| fault | count | result | seconds |\n|---|---|---|---|", flush=True)
    are_good = True
    for chosen in options.runs or COUNTS:
        name, _, text = chosen.partition("=")
        count = int(text or COUNTS[name])
        if options.into:
            row = run_in_pieces(name, count, options.seed, options.into)
        else:
            row = run_piece(Piece(name, count, options.seed))
        are_good = are_good and row.is_good
        print(f"| {row.fault} | {row.count} | {row.result} | {row.seconds:.0f} |", flush=True)
    return 0 if are_good else 1


if __name__ == "__main__":
    sys.exit(main())
