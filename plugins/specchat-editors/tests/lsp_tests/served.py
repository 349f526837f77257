"""`specchat lsp` with the fake host behind it: `python -m lsp_tests.served`."""

from __future__ import annotations

import sys

from specchat.cli.main import main
from specchat.host import host_connection, spawn
from tests.host.fork_server import forked_host

if __name__ == "__main__":
    spawn.HOST_COMMAND = forked_host("tests.host.completion_host")
    host_connection.configuration_hash = lambda: "fake"
    sys.argv[1:] = ["lsp", *sys.argv[1:]]
    main()
