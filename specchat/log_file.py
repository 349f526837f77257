"""A log on standard error that does not grow without a limit: when its file is too large, it starts again at its end.

For processes whose standard error is a file opened for appending. Other writers of the descriptor (native libraries,
warnings) count, because the size of the file does.
"""

import logging
import os
import stat
import sys
from contextlib import suppress
from io import FileIO, TextIOWrapper

MAX_LOG_BYTES = 5 * 2**20
STDERR = 2


class BoundedStderrHandler(logging.StreamHandler):
    """Writes to standard error, and empties its file first when it has more than MAX_LOG_BYTES."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            status = os.fstat(STDERR)
            if stat.S_ISREG(status.st_mode) and status.st_size > MAX_LOG_BYTES:
                os.ftruncate(STDERR, 0)
                os.write(STDERR, b"the log was longer than 5 MiB and starts again here\n")
        super().emit(record)


class LossyText(TextIOWrapper):
    """What a full disk has no room for is lost, and no `print` of a library fails."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)


def log_to_stderr(level: int) -> None:
    """Log on standard error from now on, with time, level and source."""
    sys.stderr = LossyText(FileIO(STDERR, "ab", closefd=False), errors="replace", write_through=True)
    handlers = [BoundedStderrHandler()]
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", handlers=handlers)
