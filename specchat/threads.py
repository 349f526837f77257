"""How many threads compute, and how they wait for each other. Imports nothing heavy.

Threads that spin while they wait turn a step of 2.5 ms into one of 55 ms on a machine that has other work to do, so
they sleep; that must be said before torch is imported. Threads that sleep take longer to wake than a small model
computes: two of them take 6.2 ms for a pass that one does in 3.0, so a small model is given one.
"""

from __future__ import annotations

import os

SMALL_BYTES = 256 * 2**20  # of weights; a layer of less is done before another thread is awake
COUNT = "OMP_NUM_THREADS"
POLICY = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "TOKENIZERS_PARALLELISM": "false"}


def wait_calmly() -> None:
    """Let waiting threads sleep, in this process, unless its user has said otherwise."""
    for name, value in POLICY.items():
        os.environ.setdefault(name, value)


def threads_for(weights_bytes: int, usual: int) -> int:
    """How many threads should compute with so many bytes of weights, unless the user of this process has said."""
    return usual if COUNT in os.environ or weights_bytes >= SMALL_BYTES else 1
