"""The speedup that the formula of the papers predicts, to stand beside the measured one.

In a chain of K draft tokens each is accepted with probability a if the one before it was. A pass over n rows costs
c(n), and a draft token costs r, both in plain passes. Then

    tau(a, K) = 1 + a + a^2 + ... + a^K = (1 - a^(K+1)) / (1 - a)      tokens per step
    speed     = tau / (c(K+1) + K r)                                   times plain

(Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding", 2023, where c is 1.) Plain
decoding is K = 0 with speed 1. Knows numbers only.
"""

from collections.abc import Mapping


def expected_tokens_per_step(acceptance: float, draft_tokens: int) -> float:
    """tau(a, K): between 1 and K + 1.

    >>> round(expected_tokens_per_step(0.8, 4), 2)
    3.36
    """
    if acceptance >= 1:
        return draft_tokens + 1.0
    return (1 - acceptance ** (draft_tokens + 1)) / (1 - acceptance)


def mean_expected_tokens(acceptance: float, depths: Mapping[int, int]) -> float:
    """tau over passes with trees of different depths: `depths` counts passes by depth."""
    passes = sum(depths.values())
    return sum(count * expected_tokens_per_step(acceptance, depth) for depth, count in depths.items()) / passes


def predicted_speedup(tokens_per_step: float, pass_cost: float, draft_cost: float) -> float:
    """tau / (c + K r): tokens of a step by its cost in plain passes.

    >>> round(predicted_speedup(expected_tokens_per_step(0.8, 4), 1.0, 4 * 0.05), 2)
    2.8
    """
    return tokens_per_step / (pass_cost + draft_cost)
