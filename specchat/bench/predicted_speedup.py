"""What guessing should bring, by the formula of the papers, to stand beside what it brought.

Of a chain of K guesses each holds with the chance a if the one before it held. A pass over n rows costs c(n), and a
guess costs r, both in plain passes. Then

    tau(a, K) = 1 + a + a^2 + ... + a^K = (1 - a^(K+1)) / (1 - a)      tokens of a pass
    speed     = tau / (c(K+1) + K r)                                   times plain

(Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding", 2023, where c is 1.) Nobody
guessing is K = 0, whose speed is 1. Knows numbers only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


def tokens_of_pass(acceptance: float, guesses: int) -> float:
    """tau(a, K): between 1 and K + 1.

    >>> round(tokens_of_pass(0.8, 4), 2)
    3.36
    """
    if acceptance >= 1:
        return guesses + 1.0
    return (1 - acceptance ** (guesses + 1)) / (1 - acceptance)


def mean_tokens(acceptance: float, depths: Mapping[int, int]) -> float:
    """tau over passes whose trees were not all as deep: `depths` counts them by their depth."""
    passes = sum(depths.values())
    return sum(count * tokens_of_pass(acceptance, depth) for depth, count in depths.items()) / passes


def speed(tokens: float, pass_cost: float, drafting: float) -> float:
    """tau / (c + K r): tokens of a pass by what it and its guesses cost, in plain passes.

    >>> round(speed(tokens_of_pass(0.8, 4), 1.0, 4 * 0.05), 2)
    2.8
    """
    return tokens / (pass_cost + drafting)


def best_guesses(acceptance: float, guess_cost: float, pass_cost: Callable[[int], float], most: int) -> int:
    """The K of 0 to `most` that the formula likes best, the fewest of equals; `pass_cost` is c."""

    def worth(guesses: int) -> float:
        return speed(tokens_of_pass(acceptance, guesses), pass_cost(guesses + 1), guesses * guess_cost)

    return max(range(most + 1), key=worth)
