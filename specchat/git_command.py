"""Runs git in a folder that may be hostile: what its configuration names does not run, and nothing waits for a person.

An unpacked archive brings its own `.git/config` and hooks. `core.fsmonitor` and hooks start programs with any command
that reads the index; so they are off, and only a commit runs hooks, because that is what a user expects of a commit.
Variables that move git to another repository are left out, as inside a hook. Knows no repository and no file.
"""

import os
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
# The user's own identity and configuration files, and where the search for a repository ends.
KEPT_VARIABLES = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM",
                  "GIT_CEILING_DIRECTORIES")  # fmt: skip


def run_git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command that reads, or adds to the index. OSError without git, SubprocessError when it takes too long."""
    return _run(folder, (*SETTINGS, NO_HOOKS), arguments, TIMEOUT_SECONDS)


def run_git_with_hooks(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """The same for a command whose hooks the user wants to run."""
    return _run(folder, SETTINGS, arguments, COMMIT_TIMEOUT_SECONDS)


def _run(
    folder: Path, settings: tuple[str, ...], arguments: tuple[str, ...], timeout_seconds: float
) -> subprocess.CompletedProcess[bytes]:
    options = [word for setting in settings for word in ("-c", setting)]
    command = ["git", "--no-pager", "--literal-pathspecs", *options, *arguments]
    return subprocess.run(
        command, cwd=folder, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False,
        timeout=timeout_seconds,
    )  # fmt: skip


def _environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(KEPT_VARIABLES)
    }
    return kept | {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_EDITOR": "true", "GIT_PAGER": "cat"}
