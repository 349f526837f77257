"""The metrics: what is counted, how it is written, and who may read it where."""

from __future__ import annotations

import http.client
import socket
from contextlib import closing

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from specchat.chat.events import CommittedToken, Failed, Finished, Routed, StepDone, TextDelta, Totals
from specchat.errors import HostError
from specchat.host.client import Conversation, connect
from specchat.host.metrics import CONTENT_TYPE, HostMetrics, metric_family, openmetrics_text
from specchat.host.metrics_server import MetricsServer
from tests.front import command

HELD = StepDone(
    (1, 2, 3), (0, 1, 2),
    (CommittedToken(1, b"a", "lookup"), CommittedToken(2, b"b", "draft"), CommittedToken(9, b"c", "target")),
    0.25, 0.5, draft_sources=("lookup", "draft", "draft"),
)  # fmt: skip
MISSED = StepDone((1, 2, 3), (0, 1, 2), (CommittedToken(9, b"c", "target"),), 0.25, 1.0, draft_sources=("lookup",) * 3)
ALONE = StepDone((), (), (CommittedToken(9, b"c", "target"),), 0.0, 0.125)
TOTALS = Totals(prompt_tokens=7, completion_tokens=5, verify_seconds=1.0, ttft_seconds=0.5, plain_step_seconds=0.4)


def read(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Samples by name and the values of their labels, as Prometheus' own parser reads them."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for each in text_string_to_metric_families(text):
        for sample in each.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def told(*events) -> dict[str, dict[tuple[str, ...], float]]:
    meters = HostMetrics()
    for event in events:
        meters.on_event(event)
    return read(openmetrics_text(meters.families()))


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def asked(port: int, path: str = "/metrics", host: str | None = None) -> http.client.HTTPResponse:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    line.request("GET", path, headers={"Host": host} if host else {})
    return line.getresponse()


def test_guesses_are_counted_under_the_names_of_vllm():
    found = told(HELD, MISSED, ALONE)

    assert found["vllm:spec_decode_num_drafts_total"] == {(): 2}
    assert found["vllm:spec_decode_num_draft_tokens_total"] == {(): 6}
    assert found["vllm:spec_decode_num_accepted_tokens_total"] == {(): 2}
    assert found["vllm:spec_decode_num_accepted_tokens_per_pos_total"] == {("0",): 1, ("1",): 1}


def test_passes_are_priced_by_their_width():
    found = told(HELD, MISSED, ALONE)

    assert found["specchat:verify_seconds_count"] == {("1",): 1, ("4",): 2}
    assert found["specchat:verify_seconds_sum"] == {("1",): 0.125, ("4",): 1.5}


def test_who_was_asked_and_who_was_right_stand_side_by_side():
    found = told(HELD, MISSED, ALONE)

    assert found["specchat:steps_total"] == {("lookup",): 2, ("draft",): 1, ("plain",): 1}
    assert found["specchat:draft_tokens_total"] == {("lookup",): 4, ("draft",): 2}
    assert found["specchat:accepted_tokens_total"] == {("lookup",): 1, ("draft",): 1}


def test_answers_are_counted_by_their_end_and_compared_with_plain_decoding():
    found = told(Finished("stop", TOTALS), Finished("cancelled", Totals()), Failed("no"))

    assert found["specchat:answers_total"] == {("stop",): 1, ("cancelled",): 1, ("failed",): 1}
    assert found["vllm:generation_tokens_total"] == {(): 5}
    assert found["vllm:prompt_tokens_total"] == {(): 7}
    assert found["specchat:ttft_seconds_sum"] == {(): 0.5}
    assert found["specchat:speedup"] == {(): 2.0}


def test_text_is_never_on_the_page():
    meters = HostMetrics()
    for event in (TextDelta("secret"), Routed("auto", 4, "secret", 1)):
        meters.on_event(event)

    assert "secret" not in openmetrics_text(meters.families())


def test_a_label_may_hold_any_character():
    text = openmetrics_text([metric_family("specchat:steps", "counter", "Passes.", {'a"b\\c\nd': 1}, "drafter")])

    assert read(text) == {"specchat:steps_total": {('a"b\\c\nd',): 1}}


def test_the_page_is_read_at_its_address_and_nowhere_else():
    port = free_port()
    door = MetricsServer(lambda: "# EOF\n")
    door.set_port(port)

    whole = asked(port)

    assert (whole.status, whole.getheader("Content-Type"), whole.read()) == (200, CONTENT_TYPE, b"# EOF\n")
    assert asked(port, "/").status == 404
    assert asked(port, host="evil.example").status == 403
    door.close()


def test_a_taken_port_is_refused_and_the_old_one_stays():
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        door, port = MetricsServer(lambda: "# EOF\n"), free_port()
        door.set_port(port)

        with pytest.raises(HostError, match="is not available"):
            door.set_port(taken.getsockname()[1])

        assert asked(port).status == 200
        door.close()


def test_who_dawdles_is_cut_off_and_the_next_is_served(monkeypatch):
    monkeypatch.setattr("specchat.host.metrics_server._RequestHandler.timeout", 0.05)
    door, port = MetricsServer(lambda: "# EOF\n"), free_port()
    door.set_port(port)

    with closing(socket.create_connection(("127.0.0.1", port))) as slow:
        slow.sendall(b"GET /met")
        assert asked(port).status == 200
    door.close()


def test_the_next_host_serves_where_the_last_one_did(tmp_path):
    (tmp_path / "port").write_text(f"{free_port()}\n")
    door = MetricsServer(lambda: "# EOF\n", tmp_path / "port")

    door.restore_port()

    assert asked(door.port).status == 200
    door.close()


@pytest.mark.parametrize("kept", ["taken", "no number\n", "99999999\n"])
def test_a_remembered_port_that_is_not_to_be_had_keeps_no_host_from_beginning(tmp_path, kept):
    first, second = (MetricsServer(lambda: "# EOF\n", tmp_path / "port") for _ in range(2))
    first.set_port(free_port())
    if kept != "taken":
        (tmp_path / "port").write_text(kept)

    second.restore_port()

    assert second.port == 0
    first.close()


def test_a_host_tells_what_it_did(runtime, monkeypatch):
    port = free_port()
    conversation = Conversation()
    list(conversation.ask("guess 5"))

    ran = command(monkeypatch, "host", "--metrics", str(port))

    assert ran.out == f"metrics: http://127.0.0.1:{port}/metrics\n".encode()
    found = read(asked(port).read().decode())
    assert found["vllm:spec_decode_num_drafts_total"] == {(): 5}
    assert found["vllm:spec_decode_num_accepted_tokens_per_pos_total"] == {("0",): 5}
    assert found["specchat:sessions"] == {(): 1}
    assert found["vllm:num_requests_running"] == {(): 0}
    assert found["specchat:memory_bytes"] == {("target",): 1000}
    assert f"127.0.0.1:{port}/metrics" in command(monkeypatch, "host", "status").out.decode()

    command(monkeypatch, "host", "--metrics", "0")

    line = connect("test", starts_host=False)
    assert line is not None and line.call("metrics_port", {}) == {"port": 0}
    conversation.close()


def test_without_a_host_meters_are_only_forgotten(runtime, monkeypatch):
    (runtime / "metrics.port").write_text("9\n")

    ran = command(monkeypatch, "host", "--metrics", "0")

    assert ran.code == 0 and not (runtime / "metrics.port").exists()
    assert connect("test", starts_host=False) is None
