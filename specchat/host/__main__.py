"""`python -m specchat.host`: the engine process, as the first client starts it."""

import sys

from specchat.host.engine_loader import EngineLoader
from specchat.host.host_process import run_host

if __name__ == "__main__":
    sys.exit(run_host(sys.argv[1:], EngineLoader()))
