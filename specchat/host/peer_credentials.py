"""Who is at the other end of a unix socket."""

from __future__ import annotations

import os
import socket
import struct
import sys

DARWIN_LOCAL_PEERCRED = 1


def peer_uid(peer: socket.socket) -> int | None:
    """The user id of the process at the other end; None where the system does not tell."""
    if hasattr(socket, "SO_PEERCRED"):
        _process, user, _group = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return user
    if sys.platform == "darwin":
        _version, user = struct.unpack("II", peer.getsockopt(0, DARWIN_LOCAL_PEERCRED, 76)[:8])
        return user
    return None


def check_same_user(peer: socket.socket) -> None:
    """PermissionError unless the other end is ours."""
    user = peer_uid(peer)
    if user not in (None, os.getuid()):
        raise PermissionError(f"the process at the other end belongs to user {user}, not {os.getuid()}")
