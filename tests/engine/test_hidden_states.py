"""The stored hidden states of a text."""

from __future__ import annotations

import torch

from specchat.engine.hidden_states import HiddenStateBuffer


def test_hidden_states_grow_at_the_end_and_are_dropped_at_both_ends():
    def rows(start: int, end: int) -> torch.Tensor:
        return torch.arange(start, end)[:, None].float()

    features = HiddenStateBuffer(max_tokens=6)
    for start in range(0, 12, 3):
        features.add(start, rows(start, start + 3))
    assert (features.start, features.end) == (6, 12)
    assert features.slice_from(8).flatten().tolist() == [8, 9, 10, 11]

    features.truncate(10)
    features.add(10, rows(50, 52))
    assert features.slice_from(9).flatten().tolist() == [9, 50, 51]

    features.add(20, rows(20, 22))  # a gap: what stands before it is of no use
    assert (features.start, features.end) == (20, 22)
    features.truncate(3)
    assert features.start == features.end


def test_a_long_text_is_read_in_chunks():
    states = HiddenStateBuffer()
    states.add(0, torch.arange(300)[:, None].float())

    chunks = states.chunks_from(10)

    assert [len(chunk) for chunk in chunks] == [128, 128, 34]
    assert torch.equal(torch.cat(list(chunks)), states.slice_from(10))
