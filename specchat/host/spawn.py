"""Where the host lives, and how a client finds it or starts it.

The folder follows from the user and the platform, never from HOME or XDG variables: editors start programs with an
empty environment, and two sockets would mean two models in memory. SPECCHAT_RUNTIME names a world of its own instead:
socket, lock, log and history together.

The host holds a lock for as long as it lives and alone removes a stale socket; clients hold another one while they
start it, so that eight of them start one host.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import select
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import IO

from specchat.errors import HostError
from specchat.host.peer_credentials import check_same_user
from specchat.plugins.discovery import PLUGINS_VARIABLE, entry_point_files

INHERITED_VARIABLES = ("SPECCHAT_RUNTIME", "SPECCHAT_CONFIG", "SPECCHAT_CACHE", "TMPDIR")
HOST_COMMAND: tuple[str, ...] = (sys.executable, "-m", "specchat.host")
START_TIMEOUT_SECONDS = 60.0
MAX_SOCKET_PATH_BYTES = 100  # the shortest limit among our platforms is 104


def runtime_folder() -> Path:
    """The folder of the socket: made when it is missing, private, ours; HostError when it is not."""
    chosen = os.environ.get("SPECCHAT_RUNTIME")
    folder = Path(chosen).absolute() if chosen else _default_folder()
    if len(os.fsencode(folder / "host.sock")) > MAX_SOCKET_PATH_BYTES:
        raise HostError(f"{folder} is too long a name for a socket; set SPECCHAT_RUNTIME to a shorter one")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise HostError(f"{folder}: {error.strerror}; set SPECCHAT_RUNTIME to a folder that can be written") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise HostError(f"{folder} is not a folder of this user; remove it, or set SPECCHAT_RUNTIME")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise HostError(f"{folder} is open to others; 'chmod 700 {folder}', or set SPECCHAT_RUNTIME")
    return folder


def _default_folder() -> Path:
    private = Path(f"/run/user/{os.getuid()}")
    if private.is_dir() and private.stat().st_uid == os.getuid():
        return private / "specchat"
    return Path(f"/tmp/specchat-{os.getuid()}")  # noqa: S108 (its owner and mode are checked)


def home_folder() -> Path:
    """The home that the user database names, whatever the environment says."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # a user without a name, as in containers
        return Path("/")


def history_path() -> Path:
    """Where the conversations are kept; a home that cannot be written gives way to the runtime folder."""
    if os.environ.get("SPECCHAT_RUNTIME"):
        return fallback_history_path()
    data = "Library/Application Support" if sys.platform == "darwin" else ".local/share"
    folder = home_folder() / data / "specchat"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder / "history.db"
    except OSError:
        return fallback_history_path()


def fallback_history_path() -> Path:
    """Where conversations are kept when their place is taken: by a disk that is read-only, or by a newer specchat."""
    return runtime_folder() / "history.db"


def metrics_port_path() -> Path:
    """Which port the meters were last served on, for the next host; lasts as long as the runtime folder."""
    return runtime_folder() / "meters.port"


def configuration_hash() -> str:
    """A word that changes with the user's configuration and with our code, the same for every client of both."""
    chosen = os.environ.get("SPECCHAT_CONFIG")
    place = "Library/Application Support" if sys.platform == "darwin" else ".config"
    folder = Path(chosen).absolute() if chosen else home_folder() / place / "specchat"
    digest = blake2b(os.fsencode(folder), digest_size=8)
    sources = sorted((str(path), path.stat().st_mtime_ns) for path in Path(__file__).parents[1].rglob("*.py"))
    digest.update(repr(sources).encode())  # a host of another checkout, or of yesterday's code, is another host
    added = [(str(path), path.stat().st_mtime_ns) for path in entry_point_files() if path.is_relative_to(sys.prefix)]
    digest.update(
        repr((added, os.environ.get(PLUGINS_VARIABLE))).encode()
    )  # PYTHONPATH is not among what a host inherits
    for path in sorted(folder.rglob("*.toml")):
        digest.update(os.fsencode(path))
        with contextlib.suppress(OSError):  # what nobody may read configures nobody
            digest.update(path.read_bytes())
    return digest.hexdigest()


def find_host() -> socket.socket | None:
    """A connection to the host of this user, None when none runs. HostError when the socket is somebody else's."""
    path = runtime_folder() / "host.sock"
    peer = socket.socket(socket.AF_UNIX)
    try:
        peer.connect(str(path))
        check_same_user(peer)
    except (FileNotFoundError, ConnectionRefusedError):
        peer.close()
        return None
    except PermissionError as error:
        peer.close()
        raise HostError(f"{path} is refused: {error.strerror or error}") from None
    except OSError as error:
        peer.close()
        raise HostError(f"{path}: {error.strerror}") from None
    return peer


def find_or_start_host(command: Sequence[str] | None = None) -> socket.socket:
    """A connection to the host; it is started when it does not run."""
    if peer := find_host():
        return peer
    with file_lock(runtime_folder() / "spawn.lock"):
        if peer := find_host():
            return peer
        start_host(command or HOST_COMMAND)
        if peer := find_host():
            return peer
    raise HostError(f"the engine process ended as soon as it began; see {runtime_folder() / 'host.log'}")


@contextlib.contextmanager
def file_lock(path: Path) -> Generator[None]:
    """Alone among all processes that lock this file."""
    with path.open("a", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def host_lock() -> IO[bytes]:
    """The file that a host locks for as long as it lives."""
    return (runtime_folder() / "host.lock").open("ab")


def try_lock(file: IO[bytes]) -> bool:
    """Lock it, unless somebody else has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def start_host(command: Sequence[str]) -> None:
    """Start a host that outlives us, and wait until it listens; HostError with its own words when it does not."""
    receiving, sending = os.pipe()
    log = os.open(runtime_folder() / "host.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        # It forks once more and ends: the host belongs to the system, and nobody keeps a zombie.
        starter = subprocess.Popen(
            [*command, "--ready", str(sending)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(sending,),
            cwd=Path(__file__).parents[2], env=_host_environment(), start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(sending)
        os.close(log)
    try:
        said = _read_until_closed(receiving, START_TIMEOUT_SECONDS)
    except TimeoutError:
        starter.kill()
        raise HostError(f"the engine process did not start within {START_TIMEOUT_SECONDS:.0f} s") from None
    finally:
        os.close(receiving)
        starter.wait()
    if said != "ready":
        raise HostError(said or f"the engine process could not start; see {runtime_folder() / 'host.log'}")


def _host_environment() -> dict[str, str]:
    """What the host inherits: nothing that differs between the terminals and editors that may start it."""
    kept = {name: str(Path(os.environ[name]).absolute()) for name in INHERITED_VARIABLES if os.environ.get(name)}
    kept |= {PLUGINS_VARIABLE: os.environ[PLUGINS_VARIABLE]} if PLUGINS_VARIABLE in os.environ else {}
    path = os.environ.get("PATH") or os.defpath
    return {"HOME": str(home_folder()), "PATH": path, "LANG": "C.UTF-8", **kept}


def _read_until_closed(descriptor: int, timeout_seconds: float) -> str:
    said, until = b"", time.monotonic() + timeout_seconds
    while True:
        readable, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
        if not readable:
            raise TimeoutError
        if not (more := os.read(descriptor, 4096)):
            return said.decode(errors="replace").strip()
        said += more
