"""A log that does not grow without a limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from specchat.log_file import MAX_LOG_BYTES

PROGRAM = """
import logging
from specchat.log_file import log_to_stderr
log_to_stderr(logging.INFO)
for number in range(2000):
    logging.info("%d %s", number, "x" * 8000)
"""


def test_a_log_starts_again_when_it_is_too_long(tmp_path: Path):
    with (tmp_path / "log").open("ab") as log:
        subprocess.run([sys.executable, "-c", PROGRAM], stderr=log, check=True)

    written = (tmp_path / "log").read_text()
    assert len(written) < MAX_LOG_BYTES + 10_000
    assert written.startswith("the log was longer than 5 MiB")
    assert "INFO root: 1999 x" in written
