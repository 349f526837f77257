"""Objects that stay to the end of a process: libraries and models, hundreds of thousands of them.

Python's garbage collector would look through all of them while they are made, and in the middle of an answer again,
for a tenth of a second. For processes of our own only: a library must not decide this for a program that imports it.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Generator
from contextlib import contextmanager

atexit.register(gc.unfreeze)  # libraries report what is alive after the last collection as leaked
_has_permanent = False  # `gc.get_freeze_count` would count all of them, one by one


@contextmanager
def permanent_objects() -> Generator[None]:
    """What is alive at the end of the block is never looked through; inside it, nothing is."""
    global _has_permanent
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        _has_permanent = True
        if was_enabled:
            gc.enable()


def collect_all() -> None:
    """Free what is unused now, of permanent objects, too: a model that is no longer needed is one."""
    gc.unfreeze()
    gc.collect()
    if _has_permanent:
        gc.freeze()
