"""The metrics: counters, page format, and the server of the page."""

from __future__ import annotations

import http.client
import socket
from contextlib import closing, suppress
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from specchat.chat.events import CommittedToken, Failed, Finished, Routed, StepDone, TextDelta, Totals
from specchat.errors import HostError
from specchat.host import metrics_server
from specchat.host.client import Conversation, connect
from specchat.host.metrics import AnswerCounts
from specchat.host.metrics_page import CONTENT_TYPE, MetricsPage, answer_metrics
from specchat.host.metrics_server import MetricsServer
from tests.each_row import each_row
from tests.front import command

ACCEPTED = StepDone(
    (1, 2, 3), (0, 1, 2),
    (CommittedToken(1, b"a", "lookup"), CommittedToken(2, b"b", "draft"), CommittedToken(9, b"c", "target")),
    0.25, 0.5, draft_sources=("lookup", "draft", "draft"),
)  # fmt: skip
REJECTED = StepDone(
    (1, 2, 3), (0, 1, 2), (CommittedToken(9, b"c", "target"),), 0.25, 1.0, draft_sources=("lookup",) * 3
)
PLAIN = StepDone((), (), (CommittedToken(9, b"c", "target"),), 0.0, 0.125)
TOTALS = Totals(
    prompt_tokens=7, completion_tokens=5, draft_tokens=6, verify_seconds=1.0, ttft_seconds=0.5,
    plain_decode_seconds=2.0, plain_decode_error=0.25,
)  # fmt: skip


def read(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Samples by name and the values of their labels, as Prometheus' own parser reads them."""
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for each in text_string_to_metric_families(text):
        for sample in each.samples:
            samples.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return samples


def samples_after(*events) -> dict[str, dict[tuple[str, ...], float]]:
    metrics = AnswerCounts()
    for event in events:
        metrics.on_event(event)
    return read(MetricsPage(answer_metrics(metrics)).render().decode())


def free_port() -> int:
    with closing(socket.socket()) as samples:
        samples.bind(("127.0.0.1", 0))
        return samples.getsockname()[1]


def get_page(port: int, path: str = "/metrics", host: str | None = None) -> http.client.HTTPResponse:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    line.request("GET", path, headers={"Host": host} if host else {})
    return line.getresponse()


def test_draft_tokens_are_counted_under_the_names_of_vllm():
    samples = samples_after(ACCEPTED, REJECTED, PLAIN)

    assert samples["vllm:spec_decode_num_drafts_total"] == {(): 2}
    assert samples["vllm:spec_decode_num_draft_tokens_total"] == {(): 6}
    assert samples["vllm:spec_decode_num_accepted_tokens_total"] == {(): 2}
    assert samples["vllm:spec_decode_num_accepted_tokens_per_pos_total"] == {("0",): 1, ("1",): 1}


def test_verify_seconds_are_summed_by_rows():
    samples = samples_after(ACCEPTED, REJECTED, PLAIN)

    assert samples["specchat:verify_seconds_count"] == {("1",): 1, ("4",): 2}
    assert samples["specchat:verify_seconds_sum"] == {("1",): 0.125, ("4",): 1.5}


def test_steps_draft_tokens_and_accepted_tokens_are_counted_by_drafter():
    samples = samples_after(ACCEPTED, REJECTED, PLAIN)

    assert samples["specchat:steps_total"] == {("lookup",): 2, ("draft",): 1, ("plain",): 1}
    assert samples["specchat:draft_tokens_total"] == {("lookup",): 4, ("draft",): 2}
    assert samples["specchat:accepted_tokens_total"] == {("lookup",): 1, ("draft",): 1}


def test_answers_are_counted_by_finish_reason_and_compared_with_plain_decoding():
    samples = samples_after(Finished("stop", TOTALS), Finished("cancelled", Totals()), Failed("no"))

    assert samples["specchat:answers_total"] == {("stop",): 1, ("cancelled",): 1, ("failed",): 1}
    assert samples["vllm:generation_tokens_total"] == {(): 5}
    assert samples["vllm:prompt_tokens_total"] == {(): 7}
    assert samples["specchat:ttft_seconds_sum"] == {(): 0.5}
    assert samples["specchat:plain_decode_seconds_total"] == {(): 2.0}


def test_the_speedup_has_an_interval_and_needs_draft_tokens():
    samples = samples_after(ACCEPTED, Finished("stop", TOTALS))

    assert samples["specchat:speedup"] == {(): 2.0}
    assert samples["specchat:speedup_interval"] == {("low",): 1.6, ("high",): 2.5}
    assert "specchat:speedup" not in samples_after(PLAIN, Finished("stop", replace(TOTALS, draft_tokens=0)))


def test_text_is_never_on_the_page():
    metrics = AnswerCounts()
    for event in (TextDelta("secret"), Routed("auto", 4, "secret", 1)):
        metrics.on_event(event)

    assert "secret" not in MetricsPage(answer_metrics(metrics)).render().decode()


def test_a_label_may_hold_any_character():
    samples = samples_after(replace(ACCEPTED, draft_sources=('a"b\\c\nd',)))

    assert samples["specchat:steps_total"] == {('a"b\\c\nd',): 1}


def test_the_page_has_one_path_and_one_host_name():
    port = free_port()
    server = MetricsServer(lambda: b"# EOF\n")
    server.set_port(port)

    whole = get_page(port)

    assert (whole.status, whole.getheader("Content-Type"), whole.read()) == (200, CONTENT_TYPE, b"# EOF\n")
    assert get_page(port, "/").status == 404
    assert get_page(port, host="evil.example").status == 403
    server.close()


def test_a_taken_port_is_an_error_and_the_old_port_stays_open():
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server, port = MetricsServer(lambda: b"# EOF\n"), free_port()
        server.set_port(port)

        with pytest.raises(HostError, match="is not available"):
            server.set_port(taken.getsockname()[1])

        assert get_page(port).status == 200
        server.close()


def test_a_slow_reader_is_disconnected_and_the_next_one_is_served(monkeypatch):
    monkeypatch.setattr("specchat.host.metrics_server._RequestHandler.timeout", 0.05)
    server, port = MetricsServer(lambda: b"# EOF\n"), free_port()
    server.set_port(port)

    with closing(socket.create_connection(("127.0.0.1", port))) as slow:
        slow.sendall(b"GET /met")
        assert get_page(port).status == 200
    server.close()


def test_a_client_that_sends_a_byte_at_a_time_is_cut(monkeypatch):
    monkeypatch.setattr(metrics_server, "REQUEST_SECONDS", 0.2)
    server = MetricsServer(lambda: b"# EOF\n")
    server.set_port(port := free_port())
    with closing(socket.create_connection(("127.0.0.1", port))) as slow:
        slow.settimeout(0.02)
        with suppress(TimeoutError, ConnectionError):
            while True:
                slow.sendall(b"G")
                with suppress(TimeoutError):
                    if not slow.recv(1):
                        break
        assert get_page(port).status == 200
    server.close()


def test_the_next_host_serves_on_the_same_port(tmp_path):
    (tmp_path / "port").write_text(f"{free_port()}\n")
    server = MetricsServer(lambda: b"# EOF\n", tmp_path / "port")

    server.restore_port()

    assert get_page(server.port).status == 200
    server.close()


@each_row("kept", ["taken", "no number\n", "99999999\n"])
def test_a_stored_port_that_is_not_available_does_not_stop_the_host(tmp_path, kept):
    first, second = (MetricsServer(lambda: b"# EOF\n", tmp_path / "port") for _ in range(2))
    first.set_port(free_port())
    if kept != "taken":
        (tmp_path / "port").write_text(kept)

    second.restore_port()

    assert second.port == 0
    first.close()


def test_the_page_has_the_counts_of_the_host(runtime, monkeypatch):
    port = free_port()
    conversation = Conversation()
    list(conversation.ask("guess 5"))

    result = command(monkeypatch, "host", "--metrics", str(port))

    assert result.out == f"metrics: http://127.0.0.1:{port}/metrics\n".encode()
    samples = read(get_page(port).read().decode())
    assert samples["vllm:spec_decode_num_drafts_total"] == {(): 5}
    assert samples["vllm:spec_decode_num_accepted_tokens_per_pos_total"] == {("0",): 5}
    assert samples["specchat:sessions"] == {(): 1}
    assert samples["vllm:num_requests_running"] == {(): 0}
    assert samples["specchat:memory_bytes"][("target",)] == 1000
    assert f"127.0.0.1:{port}/metrics" in command(monkeypatch, "host", "status").out.decode()

    command(monkeypatch, "host", "--metrics", "0")

    line = connect("test", starts_host=False)
    assert line is not None and line.call("metrics_port", {}) == {"port": 0}
    conversation.close()


def test_without_a_host_the_command_only_removes_the_stored_port(runtime, monkeypatch):
    (runtime / "metrics.port").write_text("9\n")

    result = command(monkeypatch, "host", "--metrics", "0")

    assert result.code == 0 and not (runtime / "metrics.port").exists()
    assert connect("test", starts_host=False) is None
