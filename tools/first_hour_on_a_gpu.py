"""Packs what a bare machine with torch for CUDA and no package index needs, to try everything on its GPU.

python -m tools.first_hour_on_a_gpu FOLDER --python 3.12 --cuda 130

FOLDER then holds the tree, the packages that such a machine lacks, and `run.sh`, whose output and `report/` are to be
sent back. Copy it there and start `bash FOLDER/run.sh`; it uses no network.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import click

from specchat.cli.notes import print_note
from specchat.errors import InputError
from tools.instrument import run_instrument

ROOT = Path(__file__).parents[1]
MOST_BYTES = 64 * 2**20
TREE = (
    "specchat",
    "tools",
    "tests",
    "profiles",
    "plugins/specchat-heads",
    "plugins/specchat-fleet",
    "conftest.py",
    "pyproject.toml",
)
LEFT_OUT = (
    "specchat/starter_heads",
    "specchat/embedded/curves",
    "tests/chooser/traces",
)  # large, and used by none of it
# What images with torch for CUDA lack; torch, triton, transformers, tokenizers, jinja2, regex and pytest are there
PACKAGES = (
    "bitsandbytes>=0.50,<0.51", "gguf>=0.19", "llguidance>=1.9,<2", "bm25s>=0.3", "platformdirs>=4.2",
    "jsonschema>=4.20", "jsonschema-specifications", "referencing", "rpds-py", "tree-sitter>=0.25",
    "tree-sitter-python>=0.25", "pytest-timeout>=2.4",
)  # fmt: skip
PLATFORMS = ("2_39", "2_35", "2_34", "2_31", "2_28", "2_27", "2_24", "2_17", "2_12", "2_5")
SCRIPT = """#!/bin/bash
# Tries specchat on this machine's GPU. Sections run in processes of their own: one that crashes stops no other.
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/tree" && mkdir -p "$here/report"
export PYTHONPATH=$here/tree:$here/packages SPECCHAT_HOME=$(mktemp -d) HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
for each in device,floors,kernels,products,sampler blocks passes,eagle experts,mixtures,tiles verify catalog,hybrids; do
  python3 -m specchat bench gpu --sections $each --report "$here/report/$each.json" \\
    2>&1 | tee "$here/report/$each.txt"
done
python3 -m tools.passes --model-shape 0.5b --dtypes bfloat16 --contexts 128,4096 2>&1 | tee "$here/report/passes.txt"
python3 -m pytest -n 4 -q -m "gpu or full" tests/gpu/test_cuda.py 2>&1 | tee "$here/report/gpu.txt"
python3 -m pytest -n 4 -q tests/forward/test_triton_rows.py tests/forward/test_triton_attention.py \\
  tests/forward/test_triton_linear.py tests/forward/test_triton_blocks.py -m "full or not full" 2>&1 \\
  | tee "$here/report/kernels.txt"
"""


@click.command("first_hour_on_a_gpu")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--python", "python_version", default="3.12", show_default=True, help="Of the machine with the GPU.")
@click.option("--cuda", default="130", show_default=True, help="Of torch there: 130 for 13.0, 128 for 12.8.")
def first_hour(folder: Path, python_version: str, cuda: str) -> None:
    """Collect the tree, the missing packages and a script into FOLDER, below 64 MiB."""
    if folder.exists():
        raise InputError(f"{folder}: is there already; name a new folder")
    folder.mkdir(parents=True)
    _copy_tree(folder / "tree")
    with TemporaryDirectory() as wheels:
        _download(Path(wheels), python_version)
        _build(Path(wheels), ROOT / "plugins" / "specchat-bench")
        for wheel in sorted(Path(wheels).glob("*.whl")):
            _unpack(wheel, folder / "packages", cuda)
    (folder / "run.sh").write_text(SCRIPT, encoding="utf-8")
    size = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
    print_note(f"{folder}: {size / 2**20:.1f} MiB")
    if size > MOST_BYTES:
        raise InputError(f"{folder}: {size / 2**20:.1f} MiB are more than {MOST_BYTES / 2**20:.0f}")
    print(f"bash {folder.name}/run.sh")


def _copy_tree(target: Path) -> None:
    """The committed files of TREE."""
    packed = subprocess.run(["git", "archive", "HEAD", *TREE], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(target, filter="data")
    for name in LEFT_OUT:
        shutil.rmtree(target / name, ignore_errors=True)


def _download(wheels: Path, python_version: str) -> None:
    platforms = [f"--platform=manylinux_{each}_x86_64" for each in PLATFORMS]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    version = [f"--python-version={python_version}", "--implementation=cp", "--platform=manylinux2014_x86_64"]
    ran = subprocess.run([*command, *version, *platforms, "-d", str(wheels), *PACKAGES], check=False)
    if ran.returncode:
        raise InputError("pip could not download these packages for that machine; see its message above")


def _build(wheels: Path, plugin: Path) -> None:
    """A plugin as a wheel, so that specchat finds it there."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(wheels), str(plugin)]
    if subprocess.run(command, check=False).returncode:
        raise InputError(f"pip could not build {plugin.name}; see its message above")


def _unpack(wheel: Path, target: Path, cuda: str) -> None:
    """A wheel as it is installed; of the libraries of bitsandbytes that for this CUDA alone."""
    with ZipFile(wheel) as archive:
        for name in archive.namelist():
            is_other_library = "libbitsandbytes_" in name and f"_cuda{cuda}." not in name
            if not is_other_library and "__pycache__" not in name:
                archive.extract(name, target)
    if wheel.name.startswith("bitsandbytes") and not list(target.glob(f"bitsandbytes/*_cuda{cuda}.*")):
        raise InputError(f"{wheel.name}: has no library for CUDA {cuda}; give another --cuda")


if __name__ == "__main__":
    sys.exit(run_instrument(first_hour))
