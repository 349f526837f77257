"""Attention of an unrolled head: the flash kernel and the explicit matrix are the same, with gradients."""

import pytest
import torch

from specchat_train.unrolled_attention import explicit_attention, has_flash_kernel, unrolled_attention


def inputs(count: int, length: int, dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(count)
    shapes = [(2, 3, length, 16)] * 3 + [(count, 2, 3, length, 16)] * 2
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("count", [1, 3])
def test_joined_attention_has_the_values_and_gradients_of_the_explicit_one(count):
    fast, slow = inputs(count, 21, torch.float32), inputs(count, 21, torch.float32)
    results = unrolled_attention(*fast), explicit_attention(*slow)
    upstream = torch.randn_like(results[0])
    gradients = [
        torch.autograd.grad(result, each, upstream) for result, each in zip(results, (fast, slow), strict=True)
    ]

    assert has_flash_kernel("cpu", torch.float32)
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)


def test_a_text_shorter_than_the_steps_is_attended_explicitly():
    few = inputs(3, 3, torch.float32)

    assert torch.equal(unrolled_attention(*few), explicit_attention(*few))
