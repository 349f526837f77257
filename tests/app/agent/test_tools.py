"""What each tool does, and what it refuses."""

from __future__ import annotations

import os
import time
from threading import Event as Flag

import pytest

from specchat.app.agent.agent_tool import ToolOutcome
from specchat.edit.undo_store import find_edit, undo_edit, user_undo_store
from tests.app.agent.scripted import REPOSITORY, agent_tools
from tests.processes import is_gone, set_when_written


def use(project_files, name, limit_seconds=120.0, cancelled=None, **arguments) -> ToolOutcome:
    tools = {each.tool.name: each for each in agent_tools(project_files, limit_seconds=limit_seconds)}
    return tools[name].run(arguments, cancelled or Flag())


def test_read_gives_a_file_as_it_is(files):
    assert ToolOutcome(REPOSITORY["shop/prices.py"]) == use(files, "read", path="shop/prices.py")


def test_read_gives_the_asked_lines_and_says_how_to_go_on(files):
    outcome = use(files, "read", path="shop/prices.py", first_line=4, lines=2)

    expected = "def gross(net):\n    return net * (1 + TAX)\n"
    assert f"{expected}[lines 4-5 of 9 of shop/prices.py; read on with first_line 6]" == outcome.text


def test_a_long_file_is_read_in_parts_that_are_bounded(files, project):
    (project / "long.txt").write_text("".join(f"line {number} {'x' * 50}\n" for number in range(1000)))

    outcome = use(files, "read", path="long.txt")

    assert len(outcome.text) < 4200
    assert "of 1000 of long.txt; read on with first_line" in outcome.text


def test_a_line_without_an_end_is_cut(files, project):
    (project / "line.json").write_text("x" * 1_000_000)

    assert len(use(files, "read", path="line.json").text) < 4200


@pytest.mark.parametrize(
    "path",
    ["../outside.txt", "/etc/passwd", "shop/../../outside.txt", "file:///etc/passwd", "link", "folder/link", "", "\0"],
)
@pytest.mark.parametrize("name", ["read", "write", "edit"])
def test_no_tool_leaves_the_project(files, project, path, name):
    (project / "link").symlink_to(project.parent / "outside.txt")
    (project / "folder").symlink_to(project.parent)
    (project.parent / "link").symlink_to(project.parent / "outside.txt")

    outcome = use(files, name, path=path, content="new", new_text="new")

    assert outcome.is_error
    assert "secret" not in outcome.text
    assert "secret\n" == (project.parent / "outside.txt").read_text()


def test_a_link_inside_the_project_is_followed(files, project):
    (project / "link.py").symlink_to("shop/prices.py")

    assert REPOSITORY["shop/prices.py"] == use(files, "read", path="link.py").text


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "missing", "binary"])
def test_only_regular_text_files_are_read(files, project, kind):
    path = project / kind
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"\0\1\2")
    name = "/dev/zero" if kind == "device" else kind

    assert use(files, "read", path=name).is_error


def test_list_leaves_out_what_git_ignores(files):
    outcome = use(files, "list")

    assert sorted(set(REPOSITORY) - {"debug.log"}) == outcome.text.split("\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pattern": "*.md"}, ["AGENTS.md", "README.md"]),
        ({"folder": "shop", "pattern": "c*.py"}, ["shop/cart.py", "shop/check.py"]),
        ({"pattern": "notes/*"}, ["notes/todo.txt"]),
        ({"pattern": "*.rs"}, ["[no files]"]),
    ],
)
def test_list_takes_a_folder_and_a_pattern(files, arguments, expected):
    assert expected == use(files, "list", **arguments).text.split("\n")


def test_list_is_bounded(files, project):
    for number in range(500):
        (project / f"a-file-with-a-long-name-{number}.txt").touch()

    outcome = use(files, "list")

    assert len(outcome.text) < 4200
    assert "more files; name a folder or a pattern]" in outcome.text


def test_search_prints_path_line_and_text(files):
    assert "shop/prices.py:1:TAX = 0.2" == use(files, "search", pattern="^TAX").text


@pytest.mark.dear
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pattern": "tax", "ignore_case": True, "files": "*.txt"}, "notes/todo.txt:1:- rename TAX"),
        ({"pattern": "def (total|gross)"}, "shop/cart.py:4:def total(items):\nshop/prices.py:4:def gross(net):"),
        ({"pattern": "TAX", "folder": "notes"}, "notes/todo.txt:1:- rename TAX"),
        ({"pattern": "nowhere"}, "[no match]"),
    ],
)  # fmt: skip
def test_search_takes_a_folder_a_glob_and_a_case(files, arguments, expected):
    assert expected == use(files, "search", **arguments).text


def test_a_wrong_expression_is_an_error_for_the_model(files):
    outcome = use(files, "search", pattern="(a")

    assert outcome.is_error
    assert "not a regular expression" in outcome.text


def test_a_search_that_never_ends_is_ended(files, project, monkeypatch):
    monkeypatch.setattr("specchat.app.agent.read_tools.SEARCH_SECONDS", 0.2)
    (project / "evil.txt").write_text("a" * 60)

    outcome = use(files, "search", pattern="(a+)+b")

    assert "stopped by the time limit" in outcome.text


def test_write_creates_a_file_and_undo_removes_it(files, project):
    outcome = use(files, "write", path="shop/new.py", content="A = 1\n")

    assert not outcome.is_error
    assert "A = 1\n" == (project / "shop/new.py").read_text()
    store = user_undo_store()
    undo_edit(store, find_edit(store, ""), is_forced=False)
    assert not (project / "shop/new.py").exists()


def test_write_keeps_the_line_ends_and_the_encoding_of_a_file(files, project):
    (project / "dos.txt").write_bytes("\ufeffone\r\ntwo\r\n".encode())

    use(files, "write", path="dos.txt", content="one\nthree\n")

    assert "\ufeffone\r\nthree\r\n".encode() == (project / "dos.txt").read_bytes()


@pytest.mark.parametrize("path", [".git/config", "no/such/folder.txt", "shop"])
def test_write_refuses_what_it_must_not_change(files, path):
    assert use(files, "write", path=path, content="x").is_error


def test_edit_by_instruction_rewrites_the_file(files, project):
    outcome = use(files, "edit", path="shop/prices.py", instruction="TAX VAT")

    assert outcome.text.startswith("shop/prices.py: 1 change written (edit 1)")
    assert REPOSITORY["shop/prices.py"].replace("TAX", "VAT") == (project / "shop/prices.py").read_text()


@pytest.mark.parametrize(
    ("lines", "new", "expected"),
    [
        ({"first_line": 1, "last_line": 1}, "TAX = 0.1", ["TAX = 0.1", "", ""]),
        ({"first_line": 1, "last_line": 1}, "TAX = 0.1\n", ["TAX = 0.1", "", ""]),
        ({"first_line": 1, "last_line": 2}, "", ["", "def gross(net):", "    return net * (1 + TAX)"]),
        ({"last_line": 1}, "A = 1\nTAX = A", ["A = 1", "TAX = A", ""]),
    ],
)
def test_edit_puts_new_lines_in_the_place_of_old_ones(files, project, lines, new, expected):
    use(files, "edit", path="shop/prices.py", new_text=new, **lines)

    assert expected == (project / "shop/prices.py").read_text().split("\n")[:3]


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "shop/missing.py", "instruction": "x y"},
        {"path": "shop/prices.py"},
        {"path": "shop/prices.py", "instruction": "x y", "new_text": "x"},
        {"path": "shop/prices.py", "new_text": "def (", "first_line": 4, "last_line": 4},
        {"path": "shop/prices.py", "new_text": "x", "first_line": 40},
        {"path": "shop/prices.py", "new_text": "x", "first_line": 4, "last_line": 2},
    ],
)
def test_an_edit_that_cannot_be_made_changes_nothing(files, project, arguments):
    assert use(files, "edit", **arguments).is_error
    assert REPOSITORY["shop/prices.py"] == (project / "shop/prices.py").read_text()


def test_without_the_plugin_new_text_with_gaps_is_refused_with_the_line_that_installs_it(files, project):
    refused = use(files, "edit", path="shop/prices.py", new_text="# ... existing code ...\nx = 1\n")

    assert refused.is_error
    assert "the merge of sketches is a plugin;" in refused.text and "/specchat-apply' installs it" in refused.text
    assert REPOSITORY["shop/prices.py"] == (project / "shop/prices.py").read_text()


def test_an_edit_without_a_change_is_no_error(files):
    outcome = use(files, "edit", path="shop/prices.py", instruction="nowhere somewhere")

    assert not outcome.is_error
    assert "nothing to change" in outcome.text


def test_a_change_is_not_written_over_another_one(files, project):
    tool = next(each for each in agent_tools(files) if each.tool.name == "write")
    planned = tool.plan({"path": "README.md", "content": "new\n"}, Flag())
    (project / "README.md").write_text("changed meanwhile\n")

    assert planned.apply().is_error
    assert "changed meanwhile\n" == (project / "README.md").read_text()


def test_run_works_in_the_project_and_gives_output_and_exit_code(files):
    outcome = use(files, "run", command="python -m shop.check; echo bad >&2; exit 3")

    assert outcome.is_error
    assert outcome.text.startswith("passed\nbad\n[exit code 3 after ")


def test_a_command_gets_no_input(files):
    assert "[exit code 0" in use(files, "run", command="cat").text


def test_a_command_that_never_ends_is_ended_with_its_children(files, project):
    outcome = use(files, "run", 3.0, command="sh -c 'echo $$ > child; exec sleep 60' & echo started; sleep 60")

    assert outcome.is_error
    assert outcome.text.startswith("started\n[stopped by the time limit after ")
    assert is_gone(project / "child")


def test_a_command_is_ended_when_the_user_cancels(files, project):
    cancelled, started = Flag(), time.monotonic()
    set_when_written(cancelled, project / "begun")

    outcome = use(files, "run", cancelled=cancelled, command="trap '' TERM; echo > begun; sleep 60")

    assert "stopped by the user" in outcome.text
    assert time.monotonic() - started < 55


def test_what_a_command_leaves_running_is_ended(files, project):
    use(files, "run", command="sh -c 'echo $$ > child; exec sleep 60' & until [ -s child ]; do :; done")

    assert is_gone(project / "child")


def test_a_child_with_a_session_of_its_own_ends_too(files, project):
    command = "for n in 1 2; do setsid sh -c 'echo $$ > child'$n'; exec sleep 60' & done; "
    use(files, "run", command=command + "until [ -s child1 ] && [ -s child2 ]; do :; done")

    assert is_gone(project / "child1") and is_gone(project / "child2")


@pytest.mark.parametrize("size", [3_000_000, pytest.param(100_000_000, marks=pytest.mark.full)])
def test_a_large_output_is_bounded_while_it_comes(files, size):
    outcome = use(files, "run", command=f"head -c {size} /dev/zero | tr '\\0' 'x'")

    assert len(outcome.text) < 4200
    assert f"{size - 4000} bytes left out" in outcome.text


def test_binary_output_is_counted_and_not_shown(files):
    outcome = use(files, "run", command="head -c 100000 /dev/zero")

    assert outcome.text.startswith("[100000 bytes of binary data, which are not shown]\n[exit code 0")
