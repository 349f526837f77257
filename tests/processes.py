"""Other processes: the imports of a new Python, and whether one has ended."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path


def modules_after(code: str) -> set[str]:
    """The modules that a new Python process has loaded after this code."""
    program = f"{code}\nimport sys; print('loaded:', *sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return set(run.stdout.rpartition("loaded:")[2].split())


def is_gone(id_file: Path) -> bool:
    """Whether the process that wrote its id there has ended, or ends within a second."""
    stat = Path(f"/proc/{id_file.read_text().strip()}/stat")
    for _ in range(100):
        try:
            if stat.read_text().split()[2] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False
