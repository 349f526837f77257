"""`python -m specchat.host`: the engine process, as the first client starts it."""

import sys

from specchat.host.host_process import run_host
from specchat.host.wiring import default_components

if __name__ == "__main__":
    sys.exit(run_host(default_components(), sys.argv[1:]))
