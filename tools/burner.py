"""A program that uses one core and the memory while a byte of a file is set: other load on the machine, on demand.

Its arguments are the file and the process id of its parent. Imports nothing of specchat.
"""

import mmap
import os
import sys
import time
from pathlib import Path

IDLE_SECONDS = 0.002  # between two looks at the byte
COPIED_BYTES = 2**25  # more than the caches of a CPU


def burn_while_set(path: Path, parent: int) -> None:
    """Compute and copy while the byte is set, sleep while it is not; until the parent process has ended."""
    numbers = bytearray(COPIED_BYTES)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ) as flag:
        while os.getppid() == parent:
            if flag[0]:
                bytes(numbers)
                sum(range(200_000))
            else:
                time.sleep(IDLE_SECONDS)


if __name__ == "__main__":
    burn_while_set(Path(sys.argv[1]), int(sys.argv[2]))
