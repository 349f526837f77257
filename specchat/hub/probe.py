"""Runs one of the probes of `package_probes.py` in a process of its own and reads its result.

A broken installation may hang, print, or end the process that imports it. Imports no torch and none of the probes.
"""

import json
import subprocess
from typing import Any

from specchat.errors import last_output_line
from specchat.python_child import PACKAGE_FOLDER, python_command

PROBE_TIMEOUT_SECONDS = 60.0


def probe(package: str) -> dict[str, Any]:
    """Run a probe by its name; returns {"error": ...} when it fails."""
    try:
        process = subprocess.run(
            python_command("specchat.hub.package_probes", package), cwd=PACKAGE_FOLDER,
            capture_output=True, text=True, timeout=PROBE_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        if process.returncode:
            return {"error": last_output_line(process.stderr, "the subprocess ended without a message")}
        return json.loads(process.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": f"no result after {PROBE_TIMEOUT_SECONDS:.0f} seconds"}
    except (OSError, ValueError, IndexError) as error:
        return {"error": f"its output is not readable ({type(error).__name__})"}
