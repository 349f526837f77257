"""Runs a module as a host by a fork of the fork server of a test run; where there is none, as a process of its own.

    python -I -S start_forked.py ADDRESS MODULE ARGUMENTS

Imports next to nothing, not even `json` and `socket`: its start is most of what is left of the start of a host.
"""

import _socket as socket
import marshal
import os
import sys


def run(address: str, module: str, arguments: list[str]) -> int:
    """Run the module until it leaves the foreground; its exit code."""
    order = {"module": module, "arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109 (imports less)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.connect(address)
    streams = b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in (0, 1, 2))
    server.sendmsg([marshal.dumps(order)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    return int(server.recv(20))


if __name__ == "__main__":
    address, module, *arguments = sys.argv[1:]
    # A host that stays in the foreground gets the signals itself.
    if "--ready" in arguments and os.path.exists(address):  # noqa: PTH110 (imports less)
        sys.exit(run(address, module, arguments))
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])
