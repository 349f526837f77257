"""`python -m specchat.host`: the engine process as it is started by the first client."""

from __future__ import annotations

import sys

from specchat.host.parts import shipped_parts
from specchat.host.process import run_host

if __name__ == "__main__":
    sys.exit(run_host(shipped_parts(), sys.argv[1:]))
