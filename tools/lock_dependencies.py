"""Write `.ci/requirements.lock`: the version and hash of each package that the checks of a change install.

python -m tools.lock_dependencies [FILE]

It asks pip what `pip install '.[dev]'` would bring to this machine (Linux x86-64, Python 3.11), without installing it.
torch and what comes with it are left out, because which build is right depends on the GPU of a machine, and pip.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK = ROOT / ".ci" / "requirements.lock"
LEFT_OUT = re.compile(r"torch|triton|nvidia-.+|cuda-.+|pip")
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-")


def lock_lines(report: Mapping[str, Any]) -> list[str]:
    """One line a package, by name, from a report of pip; what is no file of an index (this project) has no hash."""
    lines = list[str]()
    for each in report["install"]:
        name, version = each["metadata"]["name"].lower().replace("_", "-"), each["metadata"]["version"]
        hashes = each["download_info"].get("archive_info", {}).get("hashes", {})
        if "sha256" in hashes and not LEFT_OUT.fullmatch(name):
            lines.append(f"{name}=={version} --hash=sha256:{hashes['sha256']}")
    return sorted(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the versions and hashes of what the checks install.")
    parser.add_argument("file", nargs="?", type=Path, default=LOCK)
    path = parser.parse_args(arguments).file
    done = subprocess.run([*PIP, f"{ROOT}[dev]"], stdout=subprocess.PIPE, check=True)
    path.write_text("\n".join([*lock_lines(json.loads(done.stdout)), ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
