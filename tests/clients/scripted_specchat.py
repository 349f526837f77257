"""The command `specchat` with a scripted model: `python -m tests.clients.scripted_specchat SCRIPT ARGUMENT...`."""

from __future__ import annotations

import sys

from specchat.cli.main import main
from specchat.host import spawn

if __name__ == "__main__":
    spawn.HOST_COMMAND = (sys.executable, "-m", "tests.clients.scripted_host", sys.argv.pop(1))
    main()
