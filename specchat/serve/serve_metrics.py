"""Counts what this server has answered, and renders the counts for Prometheus; no text, and no names of clients.

The names are those of the page of the host, which counts the answers of all front ends. Knows no network.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from specchat.errors import SpecchatError
from specchat.host.client import connect
from specchat.host.metrics import HostMetrics, MetricFamily, metric_family, openmetrics_text
from specchat.host.protocol import JsonObject

CLIENT_NAME = "serve"
NOT_RUNNING = "not running"


@dataclass
class ServeMetrics:
    """`answers` counts on the threads of the answers, `requests` on the event loop."""

    answers: HostMetrics = field(default_factory=HostMetrics)
    requests: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])  # by path and status

    def page(self, running: int, waiting: int, host_stats: JsonObject) -> str:
        """The page. Requests wait for a session of the server, or run."""
        return openmetrics_text([*self.answers.families(), *self._gauges(running, waiting, host_stats)])

    def _gauges(self, running: int, waiting: int, host_stats: JsonObject) -> Iterator[MetricFamily]:
        requests = {
            ("_total", (("path", path), ("status", str(status)))): count
            for (path, status), count in sorted(self.requests.items())
        }
        yield MetricFamily("specchat:http_requests", "counter", "Finished HTTP requests.", requests)
        yield metric_family("vllm:num_requests_running", "gauge", "Running requests.", running)
        yield metric_family("vllm:num_requests_waiting", "gauge", "Waiting requests.", waiting)
        loaded = int(host_stats.get("state") == "ready")
        yield metric_family("specchat:models_loaded", "gauge", "1 with loaded models.", loaded)
        memory = host_stats.get("memory_bytes", {})
        yield metric_family("specchat:memory_bytes", "gauge", "Memory use of the engine, by component.", memory, "kind")


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
