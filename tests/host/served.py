"""`specchat …` with the fake host: `python -m tests.host.served serve`. With NOISY set it prints to stdout."""

from __future__ import annotations

import os
import sys

from specchat.cli.main import main
from specchat.host import spawn
from tests.host.conftest import FAKE_HOST

if __name__ == "__main__":
    spawn.HOST_COMMAND = FAKE_HOST
    if os.environ.get("NOISY"):
        connect = spawn.find_or_start_host

        def noisy(*arguments):
            print("noise from Python")
            os.write(1, b"noise from C\n")
            os.write(2, b"noise on stderr\n")
            os.system("echo noise of a child")
            return connect(*arguments)

        from specchat.host import host_connection

        host_connection.find_or_start_host = noisy
    main()
    sys.exit(0)
