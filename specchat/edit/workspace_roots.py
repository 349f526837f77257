"""The folders of a session: which files it may read and write, after resolving links and `..`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from specchat.chat.file_listing import is_folder
from specchat.errors import InputError

PROTECTED_FOLDER = ".git"


@dataclass(frozen=True)
class WorkspaceRoots:
    """The folders of a session; names are relative to `main_root`."""

    main_root: Path
    additional_roots: tuple[Path, ...] = ()

    def path_of(self, name: str) -> Path:
        """The path for a name or a `file:` URI; the file system is not read."""
        return self.main_root / (path_of_uri(name) or name)

    def display_name(self, path: Path) -> str:
        return str(path.relative_to(self.main_root)) if path.is_relative_to(self.main_root) else str(path)

    def contains(self, path: Path) -> bool:
        """Whether this file, with links resolved, lies in one of the folders."""
        try:
            real = path.resolve()
            return any(real.is_relative_to(root.resolve()) for root in (self.main_root, *self.additional_roots))
        except (OSError, RuntimeError, ValueError):
            return False

    def check_writable(self, path: Path) -> None:
        """InputError for a file that an edit must not change."""
        if not self.contains(path):
            raise InputError(f"{path}: is outside the folders of this session")
        if PROTECTED_FOLDER in path.resolve().parts:
            raise InputError(f"{path}: is part of the git repository data")


def checked_roots(cwd: str, additional_directories: Sequence[str]) -> WorkspaceRoots:
    """The folders; InputError when one is not an absolute path of a folder."""
    folders = [Path(each) for each in (cwd, *additional_directories)]
    for folder in folders:
        if not folder.is_absolute() or not is_folder(folder):
            raise InputError(f"{folder}: must be an absolute path of a folder")
    return WorkspaceRoots(folders[0], tuple(folders[1:]))


def path_of_uri(uri: str) -> Path | None:
    """The path of a `file:` URI, None for any other URI."""
    try:
        split = urlsplit(uri)
    except ValueError:
        return None
    return Path(unquote(split.path)) if split.scheme == "file" and split.path.startswith("/") else None
