"""The chunked cross-entropy is that of the whole matrix of logits, with its gradients."""

import torch

from specchat_train.chunked_cross_entropy import CHUNK_ROWS, chunked_cross_entropy, probabilities


def test_loss_and_gradients_are_those_of_the_whole_matrix():
    rows, size, vocabulary = CHUNK_ROWS + 40, 16, 50
    hidden = torch.randn(rows, size, requires_grad=True)
    weight = torch.randn(vocabulary, size, requires_grad=True)
    target = probabilities(torch.randn(rows, size), torch.randn(vocabulary, size), torch.float32)

    loss = chunked_cross_entropy(hidden, weight, target)
    gradients = torch.autograd.grad(3.0 * loss, (hidden, weight))
    whole = -(target * (hidden @ weight.T).log_softmax(-1)).sum(-1).mean()
    expected = torch.autograd.grad(3.0 * whole, (hidden, weight))

    assert torch.allclose(whole, loss, atol=1e-5)
    assert all(torch.allclose(e, g, atol=1e-6) for e, g in zip(expected, gradients, strict=True))


def test_no_rows_have_no_loss():
    loss = chunked_cross_entropy(torch.randn(0, 4, requires_grad=True), torch.randn(9, 4), torch.randn(0, 9))
    loss.backward()

    assert float(loss.detach()) == 0.0
