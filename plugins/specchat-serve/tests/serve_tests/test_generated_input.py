"""Generated requests, some of them slow or cut: the same server answers the next question."""

from __future__ import annotations

from tests.faults import generated


def test_generated_requests_end_no_server(runtime):
    with generated.http_server() as port:
        assert generated.feed_http(port, 40, seed=20).answered
        assert generated.is_answering(port)
