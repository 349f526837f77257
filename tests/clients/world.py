"""The environment of a client: a home, a project with one file, an engine process, and `specchat` on the PATH."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.clients.snippets import ROOT
from tests.plugins.conftest import command_with_such_a_host

AREA = '''def area(width, height):
    """Return the area of a rectangle."""
    if width < 0 or height < 0:
        raise ValueError("sizes must not be negative")
    return width * height
'''
RENAME = "Rename `width` to `breadth`."
PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 0.1
TYPING_SECONDS = 0.05


class NotAvailable(Exception):  # noqa: N818 (not an error)
    """The client is not installed; the message says what is missing."""


@dataclass(frozen=True)
class Step:
    """A step of a client, and its result."""

    done: str
    seen: str
    is_well: bool = True


@dataclass(frozen=True)
class World:
    """`folder` holds all of it, `packages` what editors load from its sources: a folder for each package."""

    folder: Path
    packages: Path
    environment: dict[str, str]

    @property
    def project(self) -> Path:
        """The folder that clients work in."""
        return self.folder / "project"

    def fresh_file(self, tail: str = "") -> Path:
        """The one file of the project, as it was in the beginning."""
        path = self.project / "area.py"
        path.write_text(AREA + tail)
        return path

    def note(self, name: str, text: str) -> Path:
        """A file of settings or of steps for a client."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def program(self, name: str) -> str:
        """Where a program is; NotAvailable for nowhere."""
        found = shutil.which(name, path=self.environment["PATH"])
        if found is None:
            raise NotAvailable(f"no program `{name}`")
        return found

    def package(self, name: str) -> Path:
        """The sources of a package for an editor; NotAvailable for none."""
        path = self.packages / name
        if not path.is_dir():
            raise NotAvailable(f"no sources of {name}")
        return path

    def run(self, *command: object, seconds: float = PATIENCE_SECONDS, code: int | None = 0, stdin: str = "") -> str:
        """The stdout and stderr of a program; AssertionError for another exit code than `code`."""
        ran = subprocess.run(
            [str(each) for each in command], cwd=self.project, env=self.environment, input=stdin,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False,
        )  # fmt: skip
        assert code in (None, ran.returncode), f"exit code {ran.returncode}: {ran.stdout[-800:]}"
        return ran.stdout

    def new_enough(self, program: str, word: str, *oldest: int) -> str:
        """Its version; NotAvailable for one that is too old."""
        version = self.version(program, word)
        numbers = tuple(map(int, re.findall(r"\d+", version)[: len(oldest)]))
        if numbers < oldest:
            raise NotAvailable(f"{version} is older than {'.'.join(map(str, oldest))}")
        return version

    def version(self, program: str, word: str = "") -> str:
        """The first line of `--version` with this word."""
        lines = self.run(program, "--version").strip().splitlines()
        return next((line.strip() for line in lines if word in line), "of unknown version")


def import_path() -> str:
    """That of the `specchat` of this clone: it finds the plugins that are installed for this process."""
    inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join(map(str, (ROOT, *(Path(folder).absolute() for folder in inherited))))


@contextmanager
def new_world(packages: Path) -> Iterator[World]:
    """A temporary environment; stops everything that was started in it."""
    folder = Path(tempfile.mkdtemp(prefix="clients-"))
    for name in ("bin", "home", "project", "run"):
        (folder / name).mkdir(mode=0o700)
    program = folder / "bin" / "specchat"
    command = shlex.join(command_with_such_a_host(import_path()))
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{import_path()}" exec {command} "$@"\n')
    program.chmod(0o700)
    environment = {
        **{name: os.environ[name] for name in ("LANG", "OMP_NUM_THREADS", "OMP_WAIT_POLICY") if name in os.environ},
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "SPECCHAT_RUNTIME": str(folder / "run"),
        "TERM": "xterm-256color",
    }
    world = World(folder, packages, environment)
    try:
        yield world
    finally:
        with suppress(AssertionError, subprocess.TimeoutExpired):
            world.run("specchat", "host", "stop")
        shutil.rmtree(folder, ignore_errors=True)


class Screen:
    """A program in a terminal of a tmux server of its own: a server that is ending refuses new sessions."""

    def __init__(self, world: World, *command: object) -> None:
        socket = Path(tempfile.mkdtemp(prefix="tmux-", dir=world.folder)) / "s"
        self._tmux = [world.program("tmux"), "-S", str(socket), "-f", "/dev/null"]
        self._world = world
        world.run(*self._tmux, "new-session", "-d", "-x", "110", "-y", "40", *command)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._world.run(*self._tmux, "kill-server", code=None)

    def press(self, *keys: str) -> None:
        """Keys by their names, such as `Escape`."""
        self._world.run(*self._tmux, "send-keys", *keys)

    def type(self, text: str) -> None:
        """Type one character after the other; completion loses some when they arrive at once."""
        for letter in text:
            self._world.run(*self._tmux, "send-keys", "-l", letter)
            time.sleep(TYPING_SECONDS)

    @property
    def shown(self) -> str:
        """All lines, without colours."""
        return self._world.run(*self._tmux, "capture-pane", "-p", code=None)

    def until_shown(self, text: str, seconds: float = PATIENCE_SECONDS) -> str:
        """Wait for a text; returns the screen."""
        until(lambda: text in self.shown, f"{text!r} was not shown:\n{{}}".format, lambda: self.shown, seconds)
        return self.shown


def until(
    is_so: Callable[[], bool],
    words: Callable[[str], str],
    state: Callable[[], str] = lambda: "",
    seconds: float = PATIENCE_SECONDS,
) -> None:
    """Wait for a condition; AssertionError with this message after a timeout."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, words(state())
        time.sleep(LOOK_SECONDS)
