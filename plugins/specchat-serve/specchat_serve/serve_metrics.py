"""The page of this server for Prometheus: what it has answered; no text, and no names of clients.

The names are those of the page of the host, which counts the answers of all front ends. Knows no network.
"""

from collections.abc import Mapping

from prometheus_client.core import CounterMetricFamily

from specchat.errors import SpecchatError
from specchat.host.client import connect
from specchat.host.metrics import AnswerCounts
from specchat.host.metrics_page import MetricsPage, answer_metrics, engine_gauges
from specchat.host.protocol import JsonObject
from specchat_serve.connection_pool import CLIENT_NAME

NOT_RUNNING = "not running"


def metrics_page(
    counts: AnswerCounts, requests: Mapping[tuple[str, str], int], running: int, waiting: int, host_stats: JsonObject
) -> bytes:
    """The page; finished requests are counted by path and status. Others wait for a connection, or run."""
    finished = CounterMetricFamily("specchat:http_requests", "Finished HTTP requests.", labels=("path", "status"))
    for path_and_status, count in sorted(requests.items()):
        finished.add_metric(path_and_status, count)
    gauges = engine_gauges(running, waiting, str(host_stats.get("state")), host_stats.get("memory_bytes", {}))
    return MetricsPage([*answer_metrics(counts), finished, *gauges]).render()


def read_host_stats() -> JsonObject:
    """The state and the memory of the engine process. Starts none."""
    try:
        connection = connect(CLIENT_NAME, starts_host=False)
        if connection is None:
            return {"state": NOT_RUNNING}
        try:
            return connection.call("stats", {})
        finally:
            connection.close()
    except (SpecchatError, OSError):
        return {"state": NOT_RUNNING}
