"""The perplexity of a text does not depend on how it is cut into passes."""

import torch

from tests.tiny import target
from tools import perplexity


def test_the_loss_is_that_of_one_pass_over_the_whole_window(monkeypatch):
    model, tokens = target("dense-qwen3"), [(7 * number) % 60 for number in range(90)]
    cache = model.pool.open()
    with model.pool.acquire_slot(cache, 128):
        rows = [model.prefill([token], cache).logits[-1] for token in tokens[:-1]]
    expected = torch.nn.functional.cross_entropy(torch.stack(rows), torch.tensor(tokens[1:]))

    for passes in (1, 7, 32):
        monkeypatch.setattr(perplexity, "ROWS", passes)
        assert abs(perplexity.mean_loss(model, tokens) - expected.item()) < 1e-4


def test_windows_begin_anew():
    model, tokens = target("dense-qwen3"), [(5 * number) % 60 for number in range(41)]
    halves = [perplexity.mean_loss(model, tokens[first : first + 21]) for first in (0, 20)]

    assert abs(perplexity.mean_loss(model, tokens, 20) - sum(halves) / 2) < 1e-5
