"""Reads a file of a folder that may be hostile: a regular one, and no more of it than a bound.

A pipe without a writer is waited for without an end, and a link to a device, or a file without blocks on the disk,
fills the memory. So a file is opened without waiting, and what was opened is checked, not its name. Knows no text.
"""

import os
import stat
from pathlib import Path

from specchat.errors import InputError

OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
NO_SUCH_FILE = "there is no such file or folder; correct the name"


def read_regular_file(path: Path, max_bytes: int, name: str = "") -> bytes:
    """The bytes of a regular file; InputError for anything else, and for more bytes."""
    name = name or str(path)
    try:
        descriptor = os.open(path, OPEN_FLAGS | getattr(os, "O_BINARY", 0))
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{name}: not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                if status.st_size > max_bytes or len(content := file.read(max_bytes + 1)) > max_bytes:
                    raise InputError(f"{name}: more than {max_bytes >> 20} MiB; cut out the part that matters")
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise InputError(f"{name}: {NO_SUCH_FILE}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return content
