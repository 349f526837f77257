"""Python in another process: what it imports, what it prints."""

from __future__ import annotations

import subprocess
import sys


def modules_after(code: str) -> set[str]:
    """The modules that are loaded in a fresh Python after it ran this code."""
    program = f"{code}\nimport sys; print('loaded:', *sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return set(run.stdout.rpartition("loaded:")[2].split())
