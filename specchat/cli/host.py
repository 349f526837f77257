"""`specchat host`: the engine process by hand. It starts by itself; this is for looking and for ending it."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import closing

import click

from specchat.chat.history import HistoryReader
from specchat.errors import HostError
from specchat.host.client import HostConnection, connect
from specchat.host.spawn import history_path, host_lock, metrics_port_path, runtime_folder, try_lock

STOP_SECONDS = 10.0


@click.group(invoke_without_command=True)
@click.option(
    "--metrics", "port", type=click.IntRange(0, 65535), metavar="PORT",
    help="Serve its meters for Prometheus on this port of this machine; 0: no longer.",
)  # fmt: skip
@click.pass_context
def host(context: click.Context, port: int | None) -> None:
    """The engine process: one for all front ends, started by the first of them."""
    if port is not None:
        _serve_metrics(port)
    elif context.invoked_subcommand is None:
        raise click.exceptions.NoArgsIsHelpError(context)


@host.command()
def start() -> None:
    """Start it, if it does not run."""
    line = connect("specchat host")
    assert line is not None
    _print_status(line)


@host.command()
def status() -> int:
    """Say whether it runs, and what it does."""
    line = connect("specchat host", starts_host=False)
    if line is None:
        print(f"no engine process; the first question starts one ({runtime_folder()})")
        return 0
    _print_status(line)
    return 0


@host.command()
def stop() -> None:
    """End it. Answers that are being written stop and keep what they have."""
    line = connect("specchat host", starts_host=False)
    if line is None:
        print("no engine process runs")
        return
    pid = line.host_info["pid"]
    line.call("shutdown", {})
    until = time.monotonic() + STOP_SECONDS
    with host_lock() as lock:
        while not try_lock(lock):
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                raise HostError(f"the engine process {pid} did not end by itself and was killed")
            time.sleep(0.02)
    print(f"ended (process {pid})")


@host.command()
def stdio() -> None:
    """Serve one client on standard input and output, with an engine of its own."""
    if sys.stdin.isatty():
        raise HostError("this speaks JSON-RPC with a program; for people there is 'specchat chat'")
    from specchat.host.host_process import run_host
    from specchat.host.wiring import default_components

    sys.exit(run_host(default_components(), ["--stdio"]))


@host.command()
@click.argument("words", nargs=-1)
@click.option("--deleted", is_flag=True, help="Those that were deleted.")
def sessions(words: tuple[str, ...], deleted: bool) -> None:
    """List conversations, or search them; needs no engine process."""
    path = history_path()
    if not path.exists():
        print("nothing was said yet")
        return
    with closing(HistoryReader(path)) as history:
        found = history.search(" ".join(words)) or [
            (thread, "") for thread in history.threads(deleted=deleted) if not words
        ]
    for thread, where in found:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(thread.updated))
        print(f"{thread.id}  {day}  {thread.name}" + (f"  ({where})" if where else ""))


def _serve_metrics(port: int) -> None:
    """Tell the engine process where its meters are to be read; it is started for a port, not to close one."""
    if line := connect("specchat host", starts_host=port > 0):
        line.call("metrics", {"port": port})
    else:
        metrics_port_path().unlink(missing_ok=True)
    print(f"meters: {_metrics_url(port)}" if port else "meters are served no longer")


def _metrics_url(port: int) -> str:
    return f"http://127.0.0.1:{port}/metrics"


def _print_status(connection: HostConnection) -> None:
    stats = connection.call("stats", {})
    memory = ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in stats["memory"].items())
    print(
        f"process {connection.host_info['pid']}, version {connection.host_info['version']}, {stats['state']}, {memory or 'no model loaded'}"
    )
    print(
        f"{stats['sessions']} sessions, {stats['turns']} answers on their way, history {connection.host_info['history']}"
    )
    if port := stats.get("meters"):
        print(f"meters: {_metrics_url(port)}")
    if stats["trouble"]:
        print(stats["trouble"])
