"""Runs git in a folder that may be hostile: what its configuration names does not run, and nothing waits for a person.

An unpacked archive brings its own `.git/config` and hooks. `core.fsmonitor` and hooks start programs with any command
that reads the index; so they are off, and only a commit runs hooks, because that is what a user expects of a commit.
Filters and programs that sign are off where the repository names them; those of the user's own configuration count.
Variables that move git to another repository are left out, as inside a hook. Knows no repository and no file.
"""

import os
import re
import subprocess
from pathlib import Path

TIMEOUT_SECONDS = 30.0
COMMIT_TIMEOUT_SECONDS = 600.0  # hooks may run tests
SETTINGS = (
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.pager=cat",
    "gc.auto=0",
    "maintenance.auto=false",
)
NO_HOOKS = f"core.hooksPath={os.devnull}"
OWN_SCOPES = ("local", "worktree")
FILTER_KINDS = ("clean", "smudge", "process")
PROGRAM_KEY = re.compile(  # of what reading, adding and committing start
    rf"filter\..*\.({'|'.join(FILTER_KINDS)})|gpg\.(.*\.)?program|gpg\.ssh\.defaultkeycommand", re.DOTALL
)
# The user's own identity and configuration files, and where the search for a repository ends.
KEPT_VARIABLES = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM",
                  "GIT_CEILING_DIRECTORIES")  # fmt: skip
SET_VARIABLES = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_EDITOR": "true",
    "GIT_PAGER": "cat",
    "GIT_ALLOW_PROTOCOL": "none",  # a missing object is fetched from nowhere, as that starts programs, too
}


def run_git(
    folder: Path, *arguments: str, content: bytes = b"", index: Path | None = None, runs_hooks: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """Run a command; `content` is its input, `index` the file in the place of the index.

    OSError without git, SubprocessError when it takes too long.
    """
    settings = list(SETTINGS) if runs_hooks else [*SETTINGS, NO_HOOKS]
    try:
        settings += [setting for key in folder_programs(folder) for setting in _settings_without(key)]
    except subprocess.CalledProcessError as error:
        return subprocess.CompletedProcess(error.cmd, error.returncode, b"", error.stderr)
    seconds = COMMIT_TIMEOUT_SECONDS if runs_hooks else TIMEOUT_SECONDS
    return subprocess.run(
        _command(settings, arguments), cwd=folder, env=_environment(index), input=content, capture_output=True,
        check=False, timeout=seconds,
    )  # fmt: skip


def folder_programs(folder: Path) -> dict[str, str]:
    """The programs that the repository itself names, by their keys. CalledProcessError if that cannot be read."""
    command = _command([*SETTINGS, NO_HOOKS], ("config", "--null", "--show-scope", "--list"))
    listed = subprocess.run(
        command, cwd=folder, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, check=True,
        timeout=TIMEOUT_SECONDS,
    )  # fmt: skip
    words = os.fsdecode(listed.stdout).split("\0")
    items = [item for scope, item in zip(words[::2], words[1::2], strict=False) if scope in OWN_SCOPES]
    programs = {key: value for key, _, value in (item.partition("\n") for item in items) if PROGRAM_KEY.fullmatch(key)}
    if strange := next((key for key in programs if "=" in key), ""):  # it cannot be set for one command
        raise OSError(f"the git configuration of {folder} has the key {strange!r}")
    return programs


def _settings_without(key: str) -> tuple[str, ...]:
    """What keeps git from starting this program. A file whose filter is off is taken as it is."""
    name, _, kind = key.rpartition(".")
    return (f"{key}=", f"{name}.required=false") if kind in FILTER_KINDS else (f"{key}=",)


def _command(settings: list[str], arguments: tuple[str, ...]) -> list[str]:
    options = [word for setting in settings for word in ("-c", setting)]
    return ["git", "--no-pager", "--literal-pathspecs", *options, *arguments]


def _environment(index: Path | None = None) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(KEPT_VARIABLES)
    }
    return kept | SET_VARIABLES | ({"GIT_INDEX_FILE": str(index)} if index else {})
