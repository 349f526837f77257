"""The first bytes of a stream: a sign of life is no text, in the form of each API."""

from __future__ import annotations

from tests.each_row import each_row
from tools.first_bytes import Received, has_text


@each_row(
    "line, expected",
    [
        (b": reading 900 of 3,000 tokens\n", False),
        (b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n', False),
        (b'data: {"choices": [{"delta": {"content": "a"}}]}\n', True),
        (b'data: {"choices": [{"text": "a"}]}\n', True),
        (b'data: {"type": "response.output_text.delta", "delta": "a"}\n', True),
        (b'data: {"type": "response.created", "response": {"output": []}}\n', False),
        (b'data: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}\n', True),
        (b"event: ping\n", False),
        (b'{"message": {"role": "assistant", "content": ""}}\n', False),
        (b'{"response": "a"}\n', True),
        (b"data: [DONE]\n", False),
    ],
)
def test_a_sign_of_life_is_no_text(line, expected):
    assert has_text(line) is expected


def test_silence_is_counted_until_the_first_text():
    received = Received(0.1, (0.1, 4.0, 5.0, 90.0), 5.0)

    assert 2 == received.signs
    assert 3.9 == received.longest_silence
    assert ["`/a`", "100", "100", "2", "3.9", "5.0"] == received.row("/a")
