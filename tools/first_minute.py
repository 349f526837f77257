"""A stop watch for a newcomer: README's first line in a clone and a home of their own, step by step.

    python -m tools.first_minute > docs/first-minute.md
    python -m tools.first_minute --before 104ded9f                  beside another commit
    python -m tools.first_minute --installed .venv/bin/specchat     without the installation

Writes the whole page. The package index and its settings are those of pip. Other load of the machine counts, so it is
on the page.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

from hatch_build import CPU, instruction_sets_of
from specchat.forward.native.native_build import compile_library, find_compiler
from specchat_bench.columns import markdown_table

ROOT = Path(__file__).parents[1]
INSTALL = "install: `python3 -m venv` and `pip install`, the kernels compiled"
DOWNLOADED = b"question 1 of"  # the demo writes it when the model is here
PAGE = """\
# The first minute

How long the first line of [README](../README.md) takes, from an empty folder on. `{command}` measured it and
wrote this page, {date}: {machine}, load {load}.{note}

{table}

Without the option, the table begins with the installation, which takes the packages from the package index and
compiles the kernels for the CPU. The wheel for Linux on x86-64 has them compiled. Where an installation did not
compile them, the first load does and says `compiling the CPU kernels, once, about 30 s`; it takes about 40 seconds
of processor time. Every home (`SPECCHAT_HOME`) of an installation uses the same ones. A load above the number of
cores means that the machine was busy with other work: then each figure is several times as high as on a machine
that does nothing else.
"""


@dataclass
class StopWatch:
    """Seconds by step, in their order."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str):  # noqa: ANN201 (a generator)
        began = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - began
        print(f"{name}: {self.seconds[name]:.1f} s", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class DemoTimes:
    """Moments of a demo, in seconds from its start."""

    downloaded: float
    first_token: float
    end: float


def time_demo(command: Sequence[str], environment: Mapping[str, str]) -> DemoTimes:
    """Run the demo without a terminal, so that it asks nothing."""
    downloaded = list[float]()
    began = time.monotonic()
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as demo:
        assert demo.stdout is not None and demo.stderr is not None

        def watch() -> None:
            assert demo.stderr is not None
            for line in demo.stderr:
                if DOWNLOADED in line and not downloaded:
                    downloaded.append(time.monotonic() - began)

        watching = Thread(target=watch)
        watching.start()
        demo.stdout.read(1)
        first_token = time.monotonic() - began
        demo.stdout.read()
        watching.join()
    if demo.returncode:
        raise SystemExit(f"{shlex.join(command)} ended with {demo.returncode}")
    return DemoTimes(downloaded[0], first_token, time.monotonic() - began)


def install(folder: Path, watch: StopWatch, commit: str) -> Path:
    """README's first line without the demo, in a fresh clone; returns the command."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    subprocess.run(["git", "checkout", "--quiet", commit], cwd=folder, check=True)
    with watch.step(INSTALL):
        subprocess.run([sys.executable, "-m", "venv", ".venv"], cwd=folder, check=True)
        subprocess.run([".venv/bin/pip", "install", "--quiet", "--editable", "."], cwd=folder, check=True)
    return folder / ".venv" / "bin" / "specchat"


def measure(installed: Path | None, commit: str = "HEAD") -> dict[str, float]:
    """The seconds of all steps."""
    watch = StopWatch()
    with tempfile.TemporaryDirectory(prefix="first-minute-") as name:
        specchat = installed or install(Path(name) / "clone", watch, commit)
        if commit == "HEAD" and (compiler := find_compiler()):
            with watch.step("compile the kernels, alone"):
                compile_library(compiler, instruction_sets_of(CPU)[0].flags, Path(name) / "kernels.so")
        environment = {**os.environ, "SPECCHAT_HOME": str(Path(name) / "home")}
        try:
            first = time_demo([str(specchat), "demo"], environment)
            subprocess.run([specchat, "host", "stop"], env=environment, check=True, capture_output=True)
            again = time_demo([str(specchat), "demo"], environment)
        finally:
            subprocess.run([specchat, "host", "stop"], env=environment, check=False, capture_output=True)
    return {
        **watch.seconds,
        "`specchat demo`: download the model": first.downloaded,
        "from then to the first token: prepare the file, start the engine, load, read the question": (
            first.first_token - first.downloaded
        ),
        "the whole demo, four answers": first.end,
        "the demo again, to the first token, the engine started anew": again.first_token,
        "the whole demo again": again.end,
    }


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.first_minute", description="The page of the first minute.")
    parser.add_argument("--installed", type=Path, metavar="FILE", help="this command instead of a new installation")
    parser.add_argument("--before", metavar="COMMIT", help="a column with the times of this commit")
    arguments = parser.parse_args()
    before = load()
    seconds = measure(arguments.installed and arguments.installed.absolute())
    earlier = measure(None, arguments.before) if arguments.before else {}
    print(page(seconds, f"{before} before and {load()} after", earlier), end="")


def page(seconds: Mapping[str, float], load: str, earlier: Mapping[str, float]) -> str:
    """The page with these figures, and with those of an earlier commit where there are any."""
    machine = f"{os.cpu_count()} cores ({platform.system()} {platform.machine()})"
    columns = [seconds, earlier] if earlier else [seconds]
    rows = [[name, *(f"{each[name]:.1f}" if name in each else "" for each in columns)] for name in seconds]
    table = markdown_table(["step", "seconds", "before"][: 1 + len(columns)], rows)
    note = " The column *before* has the times of the commit that the option names." if earlier else ""
    command = shlex.join(["python", "-m", "tools.first_minute", *sys.argv[1:]])
    return PAGE.format(
        command=command, date=datetime.now(UTC).date(), machine=machine, load=load, note=note, table=table
    )


if __name__ == "__main__":
    main()
