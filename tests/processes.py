"""Python in another process: its imports and its output."""

from __future__ import annotations

import subprocess
import sys


def modules_after(code: str) -> set[str]:
    """The modules that a new Python process has loaded after this code."""
    program = f"{code}\nimport sys; print('loaded:', *sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return set(run.stdout.rpartition("loaded:")[2].split())
