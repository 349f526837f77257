"""`specchat host`: show, start and stop the engine process, which otherwise starts by itself."""

from contextlib import closing

import click

from specchat.cli.notes import print_rows
from specchat.host.client import HostConnection, connect
from specchat.host.host_lock import stop_host
from specchat.host.spawn import runtime_folder
from specchat.process_memory import resident_bytes


@click.group()
def host() -> None:
    """Show, start or stop the engine process: one for all front ends, started by the first of them."""


@host.command()
def start() -> None:
    """Start the engine process if it does not run."""
    connection = connect("specchat host")
    assert connection is not None
    with closing(connection):
        _print_status(connection)


@host.command()
def status() -> None:
    """Show whether the engine process runs, and what it does."""
    if connection := connect("specchat host", starts_host=False):
        with closing(connection):
            _print_status(connection)
    else:
        print_rows(f"no engine process; the first question starts one ({runtime_folder()})")


@host.command()
def stop() -> None:
    """Stop the engine process. Running answers stop, and their text so far is stored; one that hangs is killed."""
    stopped = stop_host()
    if stopped is None:
        print_rows("no engine process runs")
    elif stopped.was_killed:
        print_rows(f"killed (process {stopped.process_id}): it did not stop by itself")
    else:
        print_rows(f"stopped (process {stopped.process_id})")


def _print_status(connection: HostConnection) -> None:
    stats = connection.call("stats", {})
    memory = ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in stats["memory_bytes"].items())
    server, models = connection.host_info, memory or "no model loaded"
    print_rows(f"process {server['pid']}, version {server['version']}, {stats['state']}, {models}")
    if resident := resident_bytes(server["pid"]):
        parts = ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in stats["process_bytes"].items())
        print_rows(f"resident {resident / 2**20:.0f} MiB: the models{f', {parts}' * bool(parts)}")
    print_rows(f"{stats['sessions']} sessions, {stats['live_turns']} running answers, history {server['history_path']}")
    if stats["warning"]:
        print_rows(stats["warning"])
