"""Names, the listed files of a folder, and the errors."""

import os
import subprocess
from pathlib import Path

import pytest

from specchat.context.at_names import find_mentions, quoted_name, resolve_names, word_at_end
from specchat.context.file_listing import MAX_FILE_BYTES, find_repository, list_folder, matches_glob
from specchat.context.retrieve import ContextBudget, gather_context
from specchat.errors import InputError
from tests.each_row import each_row

WIDE = ContextBudget.of_window(8192)


def write(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"this is {name}\n")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that is no repository."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "a.py", "src/b.py", "src/deep/c.py", "src/deep/d.md", ".hidden", ".cache/e.py", "node_modules/f.js")
    return tmp_path


@pytest.fixture
def repository(folder):
    """The same folder as a git repository, with ignore rules at two levels."""
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (folder / ".gitignore").write_text("*.log\n!kept.log\nnode_modules/\nmade/\n.cache\n")
    (folder / "src" / ".gitignore").write_text("*.md\n")
    write(folder, "x.log", "kept.log", "src/y.log", "made/z.py")
    return folder


def listed(*names):
    named, listing = resolve_names(names)
    return [file.name for file in named] + [str(path) for path in listing.files]


def test_outside_git_all_but_hidden_and_generated_files_are_listed(folder):
    assert ["a.py", "src/b.py", "src/deep/c.py", "src/deep/d.md"] == listed(".")


def test_git_rules_apply_at_every_level(repository):
    assert [".gitignore", ".hidden", "a.py", "kept.log", "src/.gitignore", "src/b.py", "src/deep/c.py"] == listed(".")
    assert ["src/.gitignore", "src/b.py", "src/deep/c.py"] == listed("src/")


def test_an_ignored_folder_can_be_named(repository):
    assert ["made/z.py"] == listed("made/")


def test_without_git_hidden_files_are_left_out(repository, monkeypatch):
    monkeypatch.setenv("PATH", str(repository / "nothing"))

    assert ["a.py", "kept.log"] == [name for name in listed(".") if name in {"a.py", "kept.log", ".hidden"}]


def test_a_folder_cannot_start_programs(repository):
    program = repository / "program"
    program.write_text("#!/bin/sh\ntouch started\n")
    program.chmod(0o755)
    subprocess.run(["git", "config", "core.fsmonitor", str(program)], cwd=repository, check=True)

    assert "a.py" in listed(".")
    assert not (repository / "started").exists()


def test_variables_of_a_git_hook_have_no_effect(repository, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(repository / "elsewhere"))

    assert "kept.log" in listed(".")
    assert "x.log" not in listed(".")


def test_the_repository_is_found_from_a_subfolder(repository, monkeypatch):
    monkeypatch.chdir(repository / "src" / "deep")

    assert "../../a.py" in listed("@repo")
    assert repository == find_repository(repository / "src")


def test_files_of_files_folders_and_globs_are_unique(folder):
    assert ["src/b.py", "src/deep/c.py", "src/deep/d.md"] == listed("src/b.py", "src", "src/**/*.py")


@each_row(
    "glob, files",
    [
        ("*.py", ["a.py"]),
        ("src/*.py", ["src/b.py"]),
        ("src/**/*.py", ["src/b.py", "src/deep/c.py"]),
        ("**/*.md", ["src/deep/d.md"]),
        ("src/**", ["src/b.py", "src/deep/c.py", "src/deep/d.md"]),
        ("[a-b].??", ["a.py"]),
        ("src/[!x].py", ["src/b.py"]),
    ],
)
def test_a_glob_matches_files(folder, glob, files):
    assert files == listed(glob)


def test_a_file_whose_name_looks_like_a_glob_is_that_file(folder):
    write(folder, "[id].py")

    assert ["[id].py"] == listed("[id].py")


@each_row("pattern", ["[z-a]", "[", "[]", "[^", "***", "\\"])
def test_an_invalid_glob_matches_nothing(pattern):
    assert not matches_glob(["a", "b"], [pattern])


def test_links_are_not_followed_and_loops_end(folder):
    (folder / "src" / "loop").symlink_to(folder)
    (folder / "src" / "away").symlink_to("/etc/hostname")

    listing = list_folder(folder / "src")

    assert (3, 1) == (len(listing.files), listing.symlinks)


def test_files_that_are_left_out_are_counted(folder):
    (folder / "src" / "image.png").write_bytes(b"\x89PNG\0")
    (folder / "src" / "odd.txt").write_bytes(b"\xff\x01")
    (folder / "src" / "data.json").write_bytes(b"1" * (MAX_FILE_BYTES + 1))
    (folder / "src" / "link").symlink_to("b.py")
    (folder / "src" / "empty.py").touch()

    notice = gather_context(["src"], "why?", WIDE).notice

    attached = ", ".join(
        f"src/{name} tokens)" for name in ("b.py (about 6", "deep/c.py (about 8", "deep/d.md (about 8")
    )
    assert notice == f"attached: {attached}; left out: 2 not text, 1 over 1 MiB, 1 link"


def test_a_name_cannot_send_control_characters_to_the_terminal(folder):
    for name in (b"src/\x1b[2J.py", b"src/F\xfcchse.py"):
        Path(os.fsdecode(name)).write_text("x = 1\n")

    named = [file.name for file in gather_context(["src"], "why?", WIDE).files]
    assert {"src/?[2J.py", "src/F?chse.py"} < set(named)
    assert [file.name.encode() for file in gather_context(["src/F\udcfcchse.py"], "why?", WIDE).files] == [
        b"src/F?chse.py"
    ]


def test_a_file_that_is_deleted_during_the_scan_is_skipped(repository):
    subprocess.run(["git", "add", "a.py"], cwd=repository, check=True)
    (repository / "a.py").unlink()

    assert "a.py" not in listed(".")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_are_named(folder):
    (folder / "src" / "b.py").chmod(0)
    (folder / "src" / "deep").chmod(0)

    assert "cannot be read: src/deep, src/b.py" in gather_context(["."], "why?", WIDE).notice
    with pytest.raises(InputError, match="src/deep: cannot be read: Permission denied"):
        resolve_names(["src/deep"])
    (folder / "src" / "deep").chmod(0o700)


@each_row(
    "name, said",
    [
        ("gone.py", "gone.py: there is no such file or folder"),
        ("gone/", "gone: there is no such file or folder"),
        ("*.rs", r"\*\.rs: no file matches"),
        ("gone/*.rs", r"gone/\*\.rs: no file matches"),
        ("empty", "empty: the folder has no files that can be attached"),
        ("pictures", "pictures: no text to read; left out: 1 not text"),
        ("@repo", "@repo: this folder is in no repository"),
        ("x" * 300, "cannot be read: File name too long"),
        ("~nobody-of-this-name/x", "there is no such file or folder"),
    ],
)
def test_a_name_without_files_is_an_error_of_one_line(folder, name, said):
    for each in ("empty", "pictures"):
        (folder / each).mkdir(exist_ok=True)
    (folder / "pictures" / "p.png").write_bytes(b"\0")

    with pytest.raises(InputError, match=said) as caught:
        gather_context(["a.py", name], "why?", WIDE)
    assert "\n" not in str(caught.value)
    assert 2 == caught.value.exit_code


def test_only_existing_names_are_mentions(folder):
    named = "why @a.py, @src/? and @*.py @repo!\n@src/deep/c.py."
    text = f"(@src/b.py) me@a.py @home @nobody @. @{'x' * 300} @[z-a] @~nobody-of-this-name @\0 @"

    assert ["a.py", "src/", "*.py", "@repo", "src/deep/c.py"] == find_mentions(f"{named} {text}")


def test_a_name_with_spaces_stands_in_quotes(folder):
    write(folder, "my notes.txt")

    assert find_mentions('what do @"my notes.txt" and @a.py say, @"src"?') == ["my notes.txt", "a.py", "src"]
    assert [quoted_name(name) for name in ("my notes.txt", "a.py")] == ['"my notes.txt"', "a.py"]


@each_row("mention", ["@src/gone.py", "@gone.py", '@"gone file"', "@*.rs", "@src/*.rs", "@gone/deep", "@types/node"])
def test_a_mention_that_reads_like_a_missing_file_is_an_error(folder, mention):
    with pytest.raises(InputError) as caught:
        find_mentions(f"why {mention}, then?")
    assert str(caught.value).startswith(f"{mention}: there is no such file or folder; correct the name, or write `@")


@each_row(
    "text",
    [
        "`@gone.py`",
        "@property",
        "@app.route('/x')",
        "@dataclass(frozen=True)",
        "@pytest.fixture",
        "@",
        "a@b.py",
        '@"',
        '@""',
    ],
)
def test_a_decorator_an_address_and_what_stands_in_backticks_are_text(folder, text):
    assert find_mentions(f"why {text} here?") == []


@each_row(
    "typed, word",
    [("why @a", "@a"), ("why ", ""), ('see @"my no', '@"my no'), ('see @"my notes" and', "and"), ('say "so', '"so')],
)
def test_the_word_that_is_being_typed_ends_at_a_space_unless_its_quotes_are_open(typed, word):
    assert word_at_end(typed) == word
