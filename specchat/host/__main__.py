"""`python -m specchat.host`: the engine process as it is started by the first client."""

from __future__ import annotations

import sys

from specchat.host.host_process import run_host
from specchat.host.wiring import shipped_parts

if __name__ == "__main__":
    sys.exit(run_host(shipped_parts(), sys.argv[1:]))
