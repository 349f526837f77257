"""`python -m tests.clients.cold`: the latency of the first response, for ten processes, without a running engine.

It needs the plugin specchat-editors, installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.clients.world import import_path

TIMES = 10
ACP, LSP = {"protocolVersion": 1}, {"processId": None, "rootUri": None, "capabilities": {}}


@dataclass(frozen=True)
class Waited:
    """Seconds from the start of a process to its first answer: wall-clock time and CPU time."""

    wall: float
    processor: float


def waited(command: str) -> Waited:
    """One process, from start to answer."""
    params = ACP if command == "acp" else LSP
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    line = f"{message}\n" if command == "acp" else f"Content-Length: {len(message)}\r\n\r\n{message}"
    with tempfile.TemporaryDirectory(prefix="cold-") as folder:
        environment = {"PATH": os.defpath, "PYTHONPATH": import_path(), "SPECCHAT_RUNTIME": folder}
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "specchat", command], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin and process.stdout
        with process.stdin, process.stdout:
            process.stdin.write(line.encode())
            process.stdin.flush()
            process.stdout.readline()
            seconds = time.monotonic() - begun
            used = _processor_seconds(process.pid)
            process.kill()
        process.wait()
    return Waited(seconds, used)


def _processor_seconds(process: int) -> float:
    """What a process has used so far, of all its threads; as Linux tells it."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    for name in ("acp", "lsp"):
        runs = [waited(name) for _ in range(TIMES)]
        walls = [run.wall for run in runs]
        print(
            f"specchat {name}: median {median(walls):.2f} s ({min(walls):.2f} to {max(walls):.2f}), "
            f"{median(run.processor for run in runs):.2f} s of a processor; load {os.getloadavg()[0]:.1f}"
        )
