"""`specchat host`: show, start and stop the engine process, which otherwise starts by itself."""

from contextlib import closing

import click

from specchat.host.client import HostConnection, connect
from specchat.host.host_lock import stop_host
from specchat.host.spawn import metrics_port_path, runtime_folder

METRICS_LINE = "metrics: http://127.0.0.1:{}/metrics"


@click.group(invoke_without_command=True)
@click.option(
    "--metrics", "port", type=click.IntRange(0, 65535), metavar="PORT",
    help="Serve metrics for Prometheus on this port of this machine; 0: stop serving them.",
)  # fmt: skip
@click.pass_context
def host(context: click.Context, port: int | None) -> None:
    """Show, start or stop the engine process: one for all front ends, started by the first of them."""
    if port is not None:
        _serve_metrics(port)
    elif context.invoked_subcommand is None:
        raise click.exceptions.NoArgsIsHelpError(context)


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
        print(f"no engine process; the first question starts one ({runtime_folder()})")


@host.command()
def stop() -> None:
    """Stop the engine process. Running answers stop, and their text so far is stored; one that hangs is killed."""
    stopped = stop_host()
    if stopped is None:
        print("no engine process runs")
    elif stopped.was_killed:
        print(f"killed (process {stopped.process_id}): it did not stop by itself")
    else:
        print(f"stopped (process {stopped.process_id})")


def _serve_metrics(port: int) -> None:
    """Set the metrics port of the engine process, which is started for a port, but not to close one."""
    if connection := connect("specchat host", starts_host=port > 0):
        with closing(connection):
            connection.call("metrics_port", {"port": port})
    else:
        metrics_port_path().unlink(missing_ok=True)
    print(METRICS_LINE.format(port) if port else "metrics are no longer served")


def _print_status(connection: HostConnection) -> None:
    stats = connection.call("stats", {})
    memory = ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in stats["memory_bytes"].items())
    host_info, models = connection.host_info, memory or "no model loaded"
    print(f"process {host_info['pid']}, version {host_info['version']}, {stats['state']}, {models}")
    if resident_bytes := stats.get("resident_bytes"):
        print(f"resident {resident_bytes / 2**20:.0f} MiB, with Python and torch")
    print(f"{stats['sessions']} sessions, {stats['live_turns']} running answers, history {host_info['history_path']}")
    if port := stats.get("metrics_port"):
        print(METRICS_LINE.format(port))
    if stats["warning"]:
        print(stats["warning"])
