"""Finds the engine process (the host) or starts it, and defines the paths of its files.

The runtime folder is SPECCHAT_RUNTIME, or in SPECCHAT_HOME, or that of the system. There its name depends on the
folders of configuration, cache, models and history: an engine that uses others is never met. It does not depend on
HOME, because editors start programs with an empty environment, and two sockets would mean two engines in memory.

The host holds `host.lock` while it runs, and only the host removes a stale socket. Clients hold `spawn.lock` while they
start a host, so that concurrent clients start only one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from hashlib import blake2b
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING

from specchat.errors import HostError
from specchat.file_lock import try_lock
from specchat.host.address import address_file, connect, fits_socket_path
from specchat.host.environment import host_environment
from specchat.paths import (
    RUNTIME_VARIABLE,
    XDG_RUNTIME_VARIABLE,
    belongs_to_user,
    configuration_folder,
    data_folder,
    folder_of_variable,
    isolated_home,
    state_folders,
    user_id,
    usual_state_folders,
)
from specchat.plugins.discovery import PLUGINS_VARIABLE, entry_point_files
from specchat.python_child import PACKAGE_FOLDER, python_command

if TYPE_CHECKING:
    from specchat.profile.project_file import TrustStore

HOST_COMMAND: tuple[str, ...] = python_command("specchat.host")
START_ATTEMPTS = 3
SOURCE_SUFFIXES = (".py", ".toml", ".json", ".sql")  # of code and of the tables that it reads
START_TIMEOUT_SECONDS = 60.0
CONNECT_TIMEOUT_SECONDS = 10.0  # over TCP the host answers, and it may be waiting for a slow disk
LOCK_TIMEOUT_SECONDS = 30.0
LOCK_POLL_SECONDS = 0.01
DARWIN_LOCAL_PEERCRED = 1


def runtime_folder() -> Path:
    """The private folder of the socket; created when missing. HostError when it is not private or not writable."""
    folder = folder_of_variable(RUNTIME_VARIABLE) or _default_folder()
    if not fits_socket_path(folder):
        raise HostError(f"{folder} is too long a path for a socket; set SPECCHAT_RUNTIME to a shorter one")
    try:
        if isolated_home():
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise HostError(f"{folder}: {error.strerror}; set SPECCHAT_RUNTIME to a writable folder") from None
    if not stat.S_ISDIR(status.st_mode) or not belongs_to_user(status):
        raise HostError(f"{folder} does not belong to this user; remove it, or set SPECCHAT_RUNTIME")
    if user_id() is not None and stat.S_IMODE(status.st_mode) & 0o077:
        raise HostError(f"{folder} is accessible to other users; run 'chmod 700 {folder}', or set SPECCHAT_RUNTIME")
    return folder


def _default_folder() -> Path:
    home = isolated_home()
    if home and fits_socket_path(home / "run"):
        return home / "run"
    name, user = f"specchat{_state_digest()}", user_id()
    if user is None:  # Windows: its folder of temporary files is the user's own
        return Path(tempfile.gettempdir(), name)
    for private in (Path(os.environ.get(XDG_RUNTIME_VARIABLE, "")), Path(f"/run/user/{user}")):
        if private.is_absolute() and private.is_dir() and belongs_to_user(private.stat()):
            return private / name
    return Path(f"/tmp/{name.replace('specchat', f'specchat-{user}')}")  # noqa: S108 (its owner is checked)


def _state_digest() -> str:
    """A short name for the folders of the state; "" for the usual ones."""
    folders = state_folders()
    if folders == usual_state_folders():
        return ""
    return f"-{blake2b(repr([*map(str, folders)]).encode(), digest_size=4).hexdigest()}"


def history_path() -> Path:
    """The path of the history database: in the data folder, or in the runtime folder when that is not writable."""
    if folder_of_variable(RUNTIME_VARIABLE):
        return fallback_history_path()
    folder = data_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder / "history.db"
    except OSError:
        return fallback_history_path()


def project_trust() -> TrustStore:
    """Which project files the user trusts; stored beside the history."""
    from specchat.profile.project_file import TrustStore

    return TrustStore(history_path().with_name("trusted.json"))


def history_place_warning(path: Path) -> str:
    """What to know about the place of the history; "" where it is the usual one, or one that the user chose."""
    if os.environ.get("SPECCHAT_RUNTIME") or path.parent == data_folder():
        return ""
    return (
        f"{data_folder()} cannot be written, so conversations are stored in {path}, which a restart of the machine may "
        "delete; make the folder writable, or set SPECCHAT_RUNTIME to another one"
    )


def fallback_history_path() -> Path:
    """The path of the database when the usual one is not usable: a read-only disk, or the file of a newer specchat."""
    return runtime_folder() / "history.db"


def configuration_hash() -> str:
    """A hash of the user's configuration, the plugins and the source code. Client and host must agree on it."""
    folder = configuration_folder().absolute()
    digest = blake2b(os.fsencode(folder), digest_size=8)
    sources = sorted(_times_of_sources(str(PACKAGE_FOLDER)))
    digest.update(repr(sources).encode())  # another checkout or changed code needs another host
    # The host does not inherit PYTHONPATH, so only plugins of this environment count.
    plugins = [(str(path), path.stat().st_mtime_ns) for path in entry_point_files() if path.is_relative_to(sys.prefix)]
    digest.update(repr((plugins, os.environ.get(PLUGINS_VARIABLE))).encode())
    for path in sorted(folder.rglob("*.toml")):
        digest.update(os.fsencode(path))
        with contextlib.suppress(OSError):  # an unreadable file has no effect on the host either
            digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def _times_of_sources(folder: str) -> Generator[tuple[str, int]]:
    """Each file of code or tables below a folder and when it changed.

    Without `Path`, which would double the time to connect.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SOURCE_SUFFIXES):
                yield entry.path, entry.stat().st_mtime_ns
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _times_of_sources(entry.path)


def find_host() -> socket.socket | None:
    """A connection to the running host; None when none runs.

    HostError when the host belongs to another user, or when it accepts nothing.
    """
    folder = runtime_folder()
    peer: socket.socket | None = None
    try:
        peer = connect(folder, CONNECT_TIMEOUT_SECONDS)
        if peer is not None:
            peer.settimeout(None)
            check_same_user(peer)
        return peer
    except OSError as error:
        if peer is not None:
            peer.close()
        if isinstance(error, BlockingIOError | TimeoutError):  # its queue of new connections is full
            message = "the engine process accepts no connection; 'specchat host stop' ends it"
            raise HostError(message) from None
        refused = "connection refused: " if isinstance(error, PermissionError) else ""
        raise HostError(f"{address_file(folder)}: {refused}{error.strerror or error}") from None


def _peer_ids(peer: socket.socket) -> tuple[int | None, int | None]:
    """The peer process and its user; None where the system does not tell it, or over TCP."""
    if peer.family != socket.AF_INET and hasattr(socket, "SO_PEERCRED"):
        process_id, uid, _gid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return process_id or None, uid
    if peer.family != socket.AF_INET and sys.platform == "darwin":
        return None, struct.unpack("II", peer.getsockopt(0, DARWIN_LOCAL_PEERCRED, 76)[:8])[1]
    return None, None


def listening_process() -> int | None:
    """The process that listens on the socket of the host, where the kernel tells it (Linux) and it is this user's."""
    with contextlib.suppress(HostError):
        if peer := find_host():
            with peer:
                return _peer_ids(peer)[0]
    return None


def check_same_user(peer: socket.socket) -> None:
    """PermissionError when the peer process belongs to another user."""
    _process_id, uid = _peer_ids(peer)
    if uid not in (None, user_id()):
        raise PermissionError(f"the process at the other end belongs to user {uid}, not {user_id()}")


def find_or_start_host() -> socket.socket:
    if peer := find_host():
        return peer
    with file_lock(runtime_folder() / "spawn.lock", START_TIMEOUT_SECONDS):
        if peer := find_host():
            return peer
        for _ in range(START_ATTEMPTS):  # a new host leaves for one that was killed and is not gone yet
            start_host(HOST_COMMAND)
            if peer := find_host():
                return peer
    raise HostError(f"the engine process ended right after its start; see {runtime_folder() / 'host.log'}")


@contextlib.contextmanager
def file_lock(path: Path, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> Generator[None]:
    """Hold the lock of this file; HostError when another process does not release it in this time."""
    deadline = time.monotonic() + timeout_seconds
    with path.open("a+b", buffering=0) as file:  # a buffer that a full disk refuses would be written again by `close`
        while not _try_lock_as_holder(file):
            if time.monotonic() > deadline:
                file.seek(0)
                process_id = file.read(20).decode(errors="replace").strip()
                holder = f"process {process_id}" if process_id else "another process"
                raise HostError(f"{path}: {holder} has held this lock for {timeout_seconds:.0f} s; end it or wait")
            time.sleep(LOCK_POLL_SECONDS)
        yield


def _try_lock_as_holder(file: IO[bytes]) -> bool:
    """Lock the file and write the id of this process into it; False when another process holds the lock."""
    if not try_lock(file):
        return False
    with contextlib.suppress(OSError):  # the lock holds on a full disk, too; only its holder is not named
        file.truncate(0)
        file.write(b"%d\n" % os.getpid())
    return True


def start_host(command: Sequence[str]) -> None:
    """Start a host that outlives this process, and wait until it listens. HostError with its message when it fails."""
    log = os.open(runtime_folder() / "host.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        # With fork, the process forks and exits: init becomes the parent of the host, and no zombie stays here.
        starter = subprocess.Popen(
            [*command, "--ready"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            cwd=PACKAGE_FOLDER.parent, env=host_environment(), start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )  # fmt: skip
    finally:
        os.close(log)
    try:
        message = _read_until_closed(starter, START_TIMEOUT_SECONDS)
    except TimeoutError:
        starter.kill()
        raise HostError(f"the engine process did not start within {START_TIMEOUT_SECONDS:.0f} s") from None
    finally:
        if hasattr(os, "fork"):
            starter.wait()
    if message != "ready":
        raise HostError(message or f"the engine process could not start; see {runtime_folder() / 'host.log'}")


def _read_until_closed(starter: subprocess.Popen[bytes], timeout_seconds: float) -> str:
    """What a host writes to its standard output before it closes that; TimeoutError after this time.

    A thread reads, because Windows can wait for sockets only.
    """
    pipe, received = starter.stdout, list[bytes]()
    assert pipe is not None
    reader = Thread(target=lambda: received.append(pipe.read()), name="host-start", daemon=True)
    reader.start()
    reader.join(timeout_seconds)
    if reader.is_alive():
        raise TimeoutError
    pipe.close()
    return received[0].decode(errors="replace").strip()
