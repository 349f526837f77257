"""`/v1/apply`: a text and a sketch to the new text, or the reason why not."""

from __future__ import annotations

import json
from threading import Event

import pytest

from serve_tests.conftest import raw
from specchat.host.client import SessionRequest
from specchat_serve.api_errors import RequestError
from specchat_serve.apply_sketch import apply_sketch
from tests.plugins.conftest import rediscover

TEXT = "import os\r\n\r\n\r\ndef name(path):\r\n    return os.path.basename(path)\r\n"
GAP = "# ... existing code ...\n"
SKETCH = f"{GAP}def name(path):\n    return path.rpartition(os.sep)[2]\n"


def applied(**fields):
    return apply_sketch({"path": "a.py", "text": TEXT, **fields}, ("ours",), SessionRequest(), Event())


def test_a_certain_merge_needs_no_model_and_keeps_the_line_ends():
    merged = applied(sketch=SKETCH)

    assert TEXT.replace("os.path.basename(path)", "path.rpartition(os.sep)[2]") == merged["text"]
    assert ("merge", 0) == (merged["way"], merged["usage"]["completion_tokens"])
    assert (TEXT, "unchanged") == ((same := applied(sketch=TEXT))["text"], same["way"])


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"sketch": ""}, 400),
        ({"sketch": 1}, 400),
        ({"sketch": SKETCH, "text": ""}, 400),
        ({"sketch": SKETCH, "model": "x"}, 404),
    ],
)
def test_a_wrong_request_is_named(fields, status):
    with pytest.raises(RequestError) as caught:
        applied(**fields)

    assert status == caught.value.api_error.status


def test_what_is_not_certain_and_not_merged_by_the_model_either_has_status_422_and_the_reason(served):
    body = json.dumps({"path": "a.py", "text": TEXT, "sketch": f"{GAP}x = 1\n{GAP}"})

    status, answer = raw(served, "POST", "/v1/apply", body)

    assert 422 == status
    assert "nothing says where it belongs" in answer["error"]["message"]


def test_without_the_plugin_of_sketches_the_line_that_installs_it_is_the_answer(served, monkeypatch):
    monkeypatch.setenv("SPECCHAT_LOAD_PLUGINS", "")
    rediscover()
    try:
        status, answer = raw(served, "POST", "/v1/apply", json.dumps({"path": "a.py", "text": TEXT, "sketch": SKETCH}))
    finally:
        monkeypatch.undo()
        rediscover()

    assert 400 == status
    assert "/specchat-apply' installs it" in answer["error"]["message"]
