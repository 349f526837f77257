"""Processes that specchat starts: none of them imports from the folder in which the user stands."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import specchat
from tests.front import command
from tests.hub.packages import CONTENT, build_wheel, offer_package

SOURCES = Path(specchat.__file__).parent
POISON = (
    "bitsandbytes", "click", "collections", "contextlib", "encodings", "errors", "importlib", "json", "pip", "random",
    "re", "runpy", "sglang", "site", "sitecustomize", "specchat", "subprocess", "textual", "torch", "typing",
    "usercustomize",
)  # fmt: skip
MAY_START = re.compile(r"executable|multiprocessing|ProcessPool|runpy|python[\d.]* -|[\"']-m[\"']|python_command\(")


@pytest.fixture
def poisoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules leave their names in a file when they run, as the current folder and in PYTHONPATH."""
    folder, marks = tmp_path / "poisoned", tmp_path / "marks"
    folder.mkdir()
    marks.touch()
    code = f"open({str(marks)!r}, 'a').write(__name__ + ' ')\n"
    for name in POISON:
        (folder / f"{name}.py").write_text(code)
    for package in ("pip", "specchat", "specchat/host", "specchat/hub", "specchat/agent"):
        (folder / package).mkdir()
        for name in ("__init__.py", "__main__.py", "package_probes.py", "tab.py", "python_search.py"):
            (folder / package / name).write_text(code)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", f".{os.pathsep}{folder}{os.pathsep}")
    monkeypatch.setenv("PYTHONSTARTUP", str(folder / "json.py"))
    return marks


def _host(monkeypatch, _tmp_path):
    assert command(monkeypatch, "host", "start").code == 0
    assert command(monkeypatch, "host", "stop").code == 0


def _pull(monkeypatch, tmp_path):
    offer_package(build_wheel(tmp_path / "index"), tmp_path, monkeypatch)
    ran = command(monkeypatch, "models", "pull", "starter", "--yes")
    assert ran.code == 0 and Path(ran.out.decode().strip()).read_bytes() == CONTENT


def _doctor(_monkeypatch, _tmp_path):
    from specchat.hub.machine import probe

    assert probe("torch")["computes"] is True


def _search(_monkeypatch, _tmp_path):
    from specchat.app.agent.read_tools import SearchTool
    from specchat.app.project_files import ProjectFiles
    from specchat.context.workspace_roots import WorkspaceRoots

    tool = SearchTool(ProjectFiles(WorkspaceRoots(Path.cwd())), 2000)
    assert "torch.py:1:open(" in tool.run({"pattern": "^open"}, threading.Event()).text


def _schema(_monkeypatch, _tmp_path):
    from specchat.app.agent.tool_schemas import parse_arguments
    from specchat.chat.tools import Tool
    from specchat.errors import UsageError

    tool = Tool("t", "", '{"properties": {"x": {"pattern": "^a+$"}}}')
    assert parse_arguments(tool, '{"x": "aa"}') == {"x": "aa"}
    with pytest.raises(UsageError, match="does not match"):
        parse_arguments(tool, '{"x": "b"}')


CHILDREN = {
    "specchat.host": _host,
    "pip": _pull,
    "specchat.hub.package_probes": _doctor,
    "specchat.app.agent.python_search": _search,
    "specchat.app.agent.tool_schemas": _schema,
}


@pytest.mark.dear
@pytest.mark.parametrize("module", CHILDREN)
def test_a_child_imports_nothing_of_the_current_folder(module, poisoned, monkeypatch, tmp_path):
    CHILDREN[module](monkeypatch, tmp_path)

    assert poisoned.read_text() == ""


@pytest.mark.full
def test_a_tab_of_the_browser_imports_nothing_of_the_current_folder(poisoned):
    from specchat_web.command import CHAT_COMMAND

    ran = subprocess.run([*CHAT_COMMAND, "--help"], capture_output=True, text=True, timeout=120, check=True)

    assert ran.stdout.startswith("Usage: ")
    assert poisoned.read_text() == ""


def test_specchat_itself_imports_nothing_of_the_current_folder(poisoned, monkeypatch):
    """Python runs a `specchat/` and what its own `-m` imports before any line of ours, so those are taken away."""
    script = [str(Path(sys.executable).with_name("specchat")), "--version"]
    ours = {"a script": script, "-P -m": [sys.executable, "-P", "-m", "specchat", "--version"]}
    monkeypatch.delenv("PYTHONPATH")
    for words in ours.values():
        assert subprocess.run(words, capture_output=True, check=True, timeout=180).stdout.startswith(b"specchat ")
    for name in ("specchat", "importlib", "contextlib", "collections", "re", "runpy"):
        Path(f"{name}.py").unlink(missing_ok=True)
    Path("specchat").rename("other")
    subprocess.run([sys.executable, "-m", "specchat", "--version"], capture_output=True, check=True, timeout=180)

    assert poisoned.read_text() == ""


def test_python_is_started_by_the_helper_alone():
    texts = {path.relative_to(SOURCES).as_posix(): path.read_text("utf-8") for path in SOURCES.rglob("*.py")}
    modules = {name: ast.parse(text) for name, text in texts.items() if MAY_START.search(text)}

    found = {f"{name}: {start}" for name, tree in modules.items() for start in _starts(tree)}

    assert found == {"python_child.py: sys.executable", "python_child.py: runpy"}
    called = {
        node.args[0].value
        for tree in modules.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "python_command"
    }
    assert called == set(CHILDREN), "each child has its case above"


def test_another_way_to_start_python_is_found():
    code = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from sys import executable
run([sys.executable, "x"]); run("python3 -c 1"); run(("python", "-m", "pip")); run([path, "-m", "pip.x"])
"""
    expected = {
        "multiprocessing", "ProcessPoolExecutor", "sys.executable", "executable", "python3 -c 1", "python", "-m pip.x",
    }  # fmt: skip
    assert set(_starts(ast.parse(code))) == expected
    assert not set(_starts(ast.parse("f'{sys.executable} -m pip'; ('python', 'pypy'); [program, '-m', model]")))


def _starts(tree: ast.AST) -> Iterator[str]:
    """What may start Python, or name it to be started; a sentence for people may name it."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.JoinedStr():
                continue
            case ast.Attribute(value=ast.Name(id="sys"), attr="executable"):
                yield "sys.executable"
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                words = {word for alias in names for word in (alias.name, getattr(node, "module", None))}
                yield from words & {"multiprocessing", "ProcessPoolExecutor", "executable", "runpy"}
            case ast.Call(args=[ast.Constant(value=str(line)), *_]) if re.match(r"python[\d.]* -", line):
                yield line
            case ast.List(elts=words) | ast.Tuple(elts=words):
                yield from _named_in([getattr(word, "value", None) for word in words])
        yield from _starts(node)


def _named_in(words: list[object]) -> Iterator[str]:
    for word, following in pairwise(words):
        if isinstance(following, str):
            if isinstance(word, str) and re.fullmatch(r"python[\d.]*", word) and following.startswith("-"):
                yield word
            elif word == "-m" and not isinstance(words[0], str):
                yield f"-m {following}"
