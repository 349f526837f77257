"""The tests of llama-server against `specchat serve`, from the source of llama.cpp in a package of the index.

They run as they are, but for assertions about the text of their model (llama_suite.toml). Nothing of them is kept here.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from xml.etree import ElementTree

from tests.clients.http_sdks import SCRIPTS, sdk_python
from tests.clients.world import NotAvailable, World

RULES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
PACKAGES = ("pytest", "pytest-timeout", "requests", "filelock", "wget", "openai", "prometheus-client", "aiohttp")
ENVIRONMENT, INSIDE = "llama", "llama.cpp/tools/server/tests/"
CASE_SECONDS, SUITE_SECONDS = 30, 1800.0


@dataclass(frozen=True)
class Case:
    """A test of another project, and what became of it: `problem` is "" for a passed one."""

    name: str
    problem: str = ""
    not_ours: str = ""  # why it does not apply


def llama_cases(world: World) -> Iterator[Case]:
    """What became of each test."""
    python, tests = sdk_python(world, ENVIRONMENT), _tests(world)
    report = world.folder / "llama.xml"
    environment = {
        **world.environment, "LLAMA_TESTS": str(tests), "PYTHONPATH": str(SCRIPTS),
        "LLAMA_OTHERS": json.dumps([each for group in RULES["does_not_apply"] for each in group["tests"]]),
        "LLAMA_SERVED_BY": json.dumps([world.program("specchat"), "serve", "--port", "0"]),
    }  # fmt: skip
    options = ["-p", "llama_suite_plugin", "--timeout", str(CASE_SECONDS), "-q", "--tb=line", f"--junitxml={report}"]
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [str(python), "-m", "pytest", *options, "unit"], cwd=tests, env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=SUITE_SECONDS, check=False,
        )  # fmt: skip
    if not report.exists():
        raise NotAvailable(f"pytest did not end within {SUITE_SECONDS:.0f} s, or did not begin")
    for each in ElementTree.parse(report).iter("testcase"):
        yield _case(each)


def prepared(source: str) -> str:
    """A file of tests without the assertions about a text."""
    patterns = [re.compile(each) for each in RULES["about_the_text"]]

    class Without(ast.NodeTransformer):
        def visit_Assert(self, node: ast.Assert) -> ast.AST:
            text = ast.unparse(node.test)
            return ast.Pass() if any(each.search(text) for each in patterns) else node

    return ast.unparse(ast.fix_missing_locations(Without().visit(ast.parse(source))))


def why_not(name: str) -> str:
    """Why a test does not apply; "" if it does."""
    groups = RULES["does_not_apply"]
    return next((g["reason"] for g in groups if any(fnmatchcase(name, each) for each in g["tests"])), "")


def _tests(world: World) -> Path:
    """A copy of the tests in the world, from the source in --packages."""
    [*found] = (world.packages / "llamacpp").glob("*.tar.gz")
    if not found:
        raise NotAvailable("no source of llama.cpp in the folder --packages")
    folder = world.folder / "llama"
    with tarfile.open(found[0]) as archive:
        for member in archive:
            _, _, name = member.name.partition(INSIDE)
            if name and member.isfile() and (file := archive.extractfile(member)):
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                text = file.read().decode()
                path.write_text(prepared(text) if name.startswith("unit/") else text)
    return folder


def _case(element: ElementTree.Element) -> Case:
    file = element.get("classname", "").rpartition(".")[2] + ".py"
    name = f"{file}::{element.get('name')}"
    fault = next((each for kind in ("failure", "error", "skipped") if (each := element.find(kind)) is not None), None)
    problem = "" if fault is None else " ".join((fault.get("message") or fault.tag).split())[:200]
    return Case(name, problem, why_not(name))


def install(packages: Path) -> None:
    """The source and the environment of the tests, where they are not there yet."""
    folder = packages / "llamacpp"
    if not list(folder.glob("*.tar.gz")):
        folder.mkdir(parents=True, exist_ok=True)
        download = ("download", "-q", "--no-deps", "--no-build-isolation", "-d", str(folder), RULES["source"])
        subprocess.run([sys.executable, "-m", "pip", *download], check=True)
    make_environment(packages / ENVIRONMENT, PACKAGES)


def make_environment(folder: Path, packages: Sequence[str]) -> None:
    """A virtual environment with these packages; one that is there stays as it is."""
    if not (folder / "bin" / "python").exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *packages], check=True)
        except subprocess.CalledProcessError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
