"""Build the wheel twice, compare its content with the repository, and use it in empty environments.

python -m tools.try_wheel [--dist FOLDER] [--kernels] [pip] [pipx] [uv]

Each name is an installer that gets an environment of its own; without names only the content is compared. pipx and uv
must be on the PATH. The settings of pip (index, folders with wheels) apply to all of them. With --kernels the wheel is
that for Linux x86-64, with native kernels; it is used without a compiler, and must compute the bits that this clone
computes. The exit code is 1 when something is missing, or is in the wheel and should not be, or does not work.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat import __version__
from specchat.forward.native.native_build import INSTRUCTION_SETS, PLAIN

ROOT = Path(__file__).parents[1]
REQUIRED = (  # one file of each kind that no import would miss before it is needed
    "specchat/forward/native/native_linear.cpp", "specchat/forward/native/native_lanes.h", "specchat/hub/catalog.toml",
    "specchat/starter_heads/eagle3/model.safetensors", "specchat/embedded/target/model.safetensors",
    "specchat/profiles/chat.toml", "specchat/tui/screen.tcss", "specchat/py.typed",
)  # fmt: skip
INSTALL_SECONDS, COMMAND_SECONDS = 1800, 300  # a build counts as an installation
KERNELS_VARIABLE = "SPECCHAT_BUILD_KERNELS"
COMPUTED_BITS = """
import hashlib, torch
from specchat.forward.linear.linear import WeightSource, float_linear, sample_tensor
from specchat.forward.native.native_ops import native_kernels
from specchat.forward.linear.quant_linear import BLOCKS_OF_8_BITS, quant_linear

rows, weight = sample_tensor(torch.bfloat16, 19, 768), sample_tensor(torch.bfloat16, 99, 768)
layers = float_linear(weight), quant_linear(WeightSource.from_tensor(weight), BLOCKS_OF_8_BITS)
bits = b"".join(bytes(layer(rows).view(torch.uint8).flatten().tolist()) for layer in layers)
print(hashlib.sha256(bits).hexdigest() if native_kernels().library else native_kernels().missing_reason)
"""

QUESTION = "What is 3 + 4?"


@dataclass(frozen=True)
class Use:
    """A command of an installed specchat, and what its output must contain; a dot stands for anything but nothing."""

    command: tuple[str, ...]
    expected: str = "."
    stdin: str = ""

    def fault(self, variables: Mapping[str, str], folder: Path) -> str:
        """What is wrong, or ""."""
        name = " ".join(["specchat", *self.command[1:]])
        try:
            output = _run(self.command, variables, cwd=folder, stdin=self.stdin)
        except WheelError as error:
            return str(error)
        found = output.strip() if self.expected == "." else self.expected in output
        return "" if found else f"{name}: {self.expected!r} is not in its output {output[-200:]!r}"


class WheelError(Exception):
    """What is wrong with the wheel, in one line."""


def build_wheel(folder: Path, has_kernels: bool = False) -> Path:
    """The wheel of this clone; an older one of the same version is replaced."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={folder}", str(ROOT)]
    _run(command, {KERNELS_VARIABLE: str(int(has_kernels))}, INSTALL_SECONDS)
    return next(folder.glob(f"specchat-{__version__}-py3-none-{'*linux' if has_kernels else 'any'}*.whl"))


def kernel_names() -> set[str]:
    """What a wheel with native kernels has in addition."""
    return {f"specchat/forward/native/{each.library_name()}" for each in (*INSTRUCTION_SETS, PLAIN)}


def expected_names() -> set[str]:
    """The files that belong into every wheel, by their names in it, as git and pyproject.toml list them."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    settings = build["targets"]["wheel"]
    tracked = _run(["git", "-C", str(ROOT), "ls-files", "-z"]).split("\0")
    sources: Mapping[str, str] = {"specchat": "specchat", **settings["force-include"]}
    return {
        place + name.removeprefix(source)
        for source, place in sources.items()
        for name in tracked
        if (name == source or name.startswith(f"{source}/"))
        and not any(name.startswith(f"{excluded}/") for excluded in settings["exclude"])
    }


def content_faults(names: Iterable[str], expected: set[str]) -> list[str]:
    """What is missing in a wheel, and what should not be there; its metadata aside."""
    found = {name for name in names if f"-{__version__}.dist-info/" not in name}
    return [
        *(f"missing: {name}" for name in sorted((expected | set(REQUIRED)) - found)),
        *(f"not expected: {name}" for name in sorted(found - expected)),
    ]


def install_with_pip(wheel: Path, folder: Path) -> Path:
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    _run([str(programs / "python"), "-m", "pip", "install", "--quiet", str(wheel)], seconds=INSTALL_SECONDS)
    return programs / "specchat"


def install_with_pipx(wheel: Path, folder: Path) -> Path:
    places = {
        "PIPX_HOME": str(folder / "pipx"),
        "PIPX_BIN_DIR": str(folder / "bin"),
        "PIPX_MAN_DIR": str(folder / "man"),
    }
    _run(["pipx", "install", "--quiet", str(wheel)], {**uv_settings(), **places}, INSTALL_SECONDS)  # it may call uv
    return folder / "bin" / "specchat"


def install_with_uv(wheel: Path, folder: Path) -> Path:
    places = {"UV_TOOL_DIR": str(folder / "tools"), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    _run(["uv", "tool", "install", "--quiet", str(wheel)], {**uv_settings(), **places}, INSTALL_SECONDS)
    return folder / "bin" / "specchat"


def uv_settings() -> Mapping[str, str]:
    """The settings of pip as environment variables of uv."""
    names = {
        "index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS",
        "cert": "SSL_CERT_FILE",
    }  # fmt: skip
    lines = _run([sys.executable, "-m", "pip", "config", "list"]).splitlines()
    pip = {line.partition("=")[0].partition(".")[2].lstrip("."): line.partition("=")[2].strip("'\"") for line in lines}
    settings = {variable: pip[name] for name, variable in names.items() if name in pip}
    return {**settings, "UV_INDEX_STRATEGY": "unsafe-best-match"}  # all indexes are equal, as for pip


INSTALLERS: Mapping[str, Callable[[Path, Path], Path]] = {
    "pip": install_with_pip, "pipx": install_with_pipx, "uv": install_with_uv,
}  # fmt: skip


def use_kernels(program: Path, home: Path) -> list[str]:
    """Use the native kernels of an installed specchat where no compiler is: what did not work."""
    home.mkdir()
    python = Path(os.path.realpath(program)).parent / "python"
    expected = _run([sys.executable, "-c", COMPUTED_BITS]).strip()
    variables = {"HOME": str(home), "SPECCHAT_HOME": str(home / "specchat"), "PATH": str(python.parent), "CXX": ""}
    uses = (
        Use((str(program), "doctor"), "compiled in the wheel"),
        Use((str(python), "-c", COMPUTED_BITS), expected),
    )
    return [fault for each in uses if (fault := each.fault(variables, home))]


def use(program: Path, home: Path) -> list[str]:
    """Use an installed specchat as a user does: what did not work."""
    home.mkdir()
    variables = {"HOME": str(home), "SPECCHAT_HOME": str(home / "specchat"), "HF_HUB_OFFLINE": "1"}
    python = Path(os.path.realpath(program)).parent / "python"
    code = f"import specchat; print(specchat.answer({QUESTION!r}))"
    uses = (
        Use((str(program), "--version"), __version__),
        Use((str(program), "ask", "--target", "embedded", QUESTION)),
        Use(
            (str(program), "edit", "-", "--lang", "py", "rename add to total"),
            "def total",
            "def add(a):\n    return a\n",
        ),
        Use((str(program), "models", "list"), "starter"),
        Use((str(program), "doctor"), "0 broken"),
        Use((str(python), "-c", code)),
        Use((str(program), "host", "stop"), ""),
    )
    return [fault for each in uses if (fault := each.fault(variables, home))]


def try_installer(name: str, wheel: Path, has_kernels: bool) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="wheel-", ignore_cleanup_errors=True) as folder:
        try:
            program = INSTALLERS[name](wheel, Path(folder))
            faults = use(program, Path(folder) / "home")
            return [*faults, *(use_kernels(program, Path(folder) / "bare") if has_kernels else ())]
        except WheelError as error:
            return [str(error)]


def _run(
    command: Sequence[str],
    variables: Mapping[str, str] | None = None,
    seconds: float = COMMAND_SECONDS,
    cwd: Path = ROOT,
    stdin: str = "",
) -> str:
    """The output of a command; WheelError with its last line when it fails. Nothing of this clone is importable."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, timeout=seconds, cwd=cwd,
        env={**inherited, **(variables or {})},
    )  # fmt: skip
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        reasons = [line for line in done.stdout.splitlines() if line.startswith("fail")] or [last[:300]]  # of `doctor`
        raise WheelError(f"{' '.join(command[:6])}: exit code {done.returncode}: {'; '.join(reasons)}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the wheel and use it in empty environments.")
    parser.add_argument("installers", nargs="*", metavar="pip|pipx|uv")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--kernels", action="store_true", help="the wheel with native kernels, for Linux x86-64")
    options = parser.parse_args()
    if unknown := set(options.installers) - set(INSTALLERS):  # `choices` of Python 3.11 refuse no name at all, too
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(INSTALLERS)}")
    wheel, expected = build_wheel(options.dist, options.kernels), expected_names()
    with zipfile.ZipFile(wheel) as archive:
        faults = content_faults(archive.namelist(), expected | kernel_names() if options.kernels else expected)
    if not options.kernels:  # which take a minute to compile
        with tempfile.TemporaryDirectory() as folder:
            is_same = build_wheel(Path(folder)).read_bytes() == wheel.read_bytes()
        faults += [] if is_same else ["another build of it has other bytes"]
    size = wheel.stat().st_size / 2**20
    print(json.dumps({"wheel": wheel.name, "MiB": round(size, 1), "faults": faults}), flush=True)
    has_failed = bool(faults)
    for name in options.installers:
        if name != "pip" and shutil.which(name) is None:
            print(json.dumps({"installer": name, "skipped": f"{name} is not installed"}), flush=True)
            continue
        started_at = time.monotonic()
        faults = try_installer(name, wheel, options.kernels)
        seconds = round(time.monotonic() - started_at)
        print(json.dumps({"installer": name, "seconds": seconds, "faults": faults}), flush=True)
        has_failed = has_failed or bool(faults)
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
