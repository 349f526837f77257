"""`python -m tools.real_servers [--packages FOLDER] [--tokens N] [NAME...]`: a table of specchat beside real servers.

Each server runs with the starter model, which must be here (`specchat demo`), and answers through specchat: `fleet`,
`ask`, scripts, the screen, `serve` and the agent. What a server needs is installed into FOLDER, in environments of
their own, where it is not there yet; `specchat`, too, has one, with the plugins of this clone, since its engine process
sees no other. Prints the section of docs/fleet.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from specchat_bench.columns import markdown_table
from tests.clients.chosen_names import add_names
from tests.clients.world import new_world
from tools.real_servers_checks import CHECKS, Failure, Trial
from tools.real_servers_faults import FAULT_CHECKS
from tools.real_servers_starts import SERVERS, RealServer, make_own_environment, running

HEAD = """\
### Beside real servers

Output of `python -m tools.real_servers` on {date}, with the starter model on a CPU: {versions}.

"""
PASSED, NOT_THERE = "yes", ""
TOKENS = 96  # so many that n-grams find something to copy


def run_checks(server: RealServer, packages: Path, tokens: int = TOKENS) -> Mapping[str, str]:
    """What each check saw: "yes" with a figure, "failed: …", or "" where the server cannot have it."""
    checks: Mapping[str, Callable[[Trial], str | None]] = FAULT_CHECKS if server.is_chaos else CHECKS
    cells = dict[str, str]()
    with new_world(packages) as world, running(server, packages, world.folder) as process:
        python = make_own_environment(packages / "specchat")
        (world.folder / "bin" / "specchat").write_text(f'#!/bin/sh\nexec "{python}" -m specchat "$@"\n')
        home = world.environment.pop("SPECCHAT_RUNTIME")  # that of the profile and the history, too
        world.environment["SPECCHAT_HOME"] = home
        trial = Trial(world, process, python, tokens)
        for name, check in checks.items():
            began = time.monotonic()
            try:
                seen = check(trial)
                cells[name] = NOT_THERE if seen is None else f"{PASSED}{seen and f', {seen}'}"
            except (Failure, AssertionError, LookupError, ValueError, OSError, subprocess.TimeoutExpired) as fault:
                cells[name] = f"failed: {' '.join(str(fault).split())[-300:].replace('|', '/')}"
            print(
                f"{server.name}: {name}: {cells[name]} ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True
            )
    return cells


def table(results: Mapping[str, Mapping[str, str]]) -> str:
    """A row for each check, a column for each server."""
    names = dict.fromkeys(name for cells in results.values() for name in cells)
    rows = [[name, *(cells.get(name, NOT_THERE) for cells in results.values())] for name in names]
    return markdown_table(["", *results], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, default=Path("dist/servers"), help="where the servers are installed")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="length of most answers, for a slow machine")
    add_names(parser, list(SERVERS))
    given = parser.parse_args(arguments)
    packages: Path = given.packages.absolute()
    servers = [SERVERS[name] for name in given.names]
    results = {server.name: run_checks(server, packages, given.tokens) for server in servers}
    versions = ", ".join(dict.fromkeys(server.version(packages) for server in servers))
    print(HEAD.format(date=time.strftime("%Y-%m-%d"), versions=versions), end="")
    for are_chaos in (False, True):
        if shown := {server.name: results[server.name] for server in servers if server.is_chaos is are_chaos}:
            print(table(shown), end="\n\n")
    return int(any(cell.startswith("failed") for cells in results.values() for cell in cells.values()))


if __name__ == "__main__":
    sys.exit(main())
