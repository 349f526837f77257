"""A folder as a few files of limited size, for places that return only small files, and back.

python -m recipes.file_parts --join PARTS --out FOLDER
"""

from __future__ import annotations

import argparse
import io
import shutil
import tarfile
from pathlib import Path

PART_BYTES, ARCHIVE = 15 * 2**20, "heads.tar"


def split_folder(folder: Path, parts: Path, part_bytes: int = PART_BYTES) -> int:
    """Write a folder as `heads.tar.0`, `heads.tar.1`, ...; earlier parts stay until all are written."""
    unfinished, old = parts.with_name(f"{parts.name}.new"), parts.with_name(f"{parts.name}.old")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(folder, arcname=".")
    content = archive.getvalue()
    count = -(-len(content) // part_bytes)
    for number in range(count):
        (unfinished / f"{ARCHIVE}.{number}").write_bytes(content[number * part_bytes : (number + 1) * part_bytes])
    shutil.rmtree(old, ignore_errors=True)
    if parts.exists():
        parts.rename(old)
    unfinished.rename(parts)
    return count


def join_parts(parts: Path, folder: Path) -> None:
    """The folder again."""
    files = sorted(parts.glob(f"{ARCHIVE}.*"), key=lambda path: int(path.suffix[1:]))
    content = b"".join(path.read_bytes() for path in files)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        tar.extractall(folder, filter="data")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--join", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    join_parts(arguments.join, arguments.out)


if __name__ == "__main__":
    main()
