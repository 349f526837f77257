"""The user at the other end of a Unix socket."""

from __future__ import annotations

import os
import socket
import struct
import sys

DARWIN_LOCAL_PEERCRED = 1


def peer_uid(peer: socket.socket) -> int | None:
    """The user id of the peer process; None where the system has no such call."""
    if hasattr(socket, "SO_PEERCRED"):
        _pid, uid, _gid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return uid
    if sys.platform == "darwin":
        _version, uid = struct.unpack("II", peer.getsockopt(0, DARWIN_LOCAL_PEERCRED, 76)[:8])
        return uid
    return None


def check_same_user(peer: socket.socket) -> None:
    """PermissionError when the peer process belongs to another user."""
    uid = peer_uid(peer)
    if uid not in (None, os.getuid()):
        raise PermissionError(f"the process at the other end belongs to user {uid}, not {os.getuid()}")
