"""The editor plugins that come with specchat, put where each editor looks for plugins.

A plan comes first: which files are written, and which of them the user has changed. A list with hashes beside the files
remembers what was installed, so a later installation and a removal touch nothing else. Nothing here asks: the command
does that first.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from specchat import __version__
from specchat.edit.atomic_write import Replacement, read_content, write_files
from specchat.errors import UsageError

PACKAGE = Path(__file__).parents[1]
LIST_NAME = ".specchat-installed.json"
AUTOLOAD = re.compile(r"^;;;###autoload\n\(def\w+ (?P<name>[\w-]+) .*\n(?P<body>(?:.*\n)*?)(?=\n)", re.MULTILINE)
HEADER = re.compile(r"^;;; specchat\.el --- (?P<summary>.*?)\s+-\*-")


@dataclass(frozen=True)
class EditorPlugin:
    """Where a plugin comes from, where it goes, and what is left for the user to do."""

    editor: str
    files: Mapping[str, bytes]  # by their path in the folder
    folder: Path
    next_step: str


@dataclass(frozen=True)
class InstallationPlan:
    """What an installation or a removal would do in a folder.

    `user_changed` are files that it would overwrite or delete, and that are not what was installed.
    """

    folder: Path
    written: Mapping[str, bytes]
    removed: tuple[str, ...]
    user_changed: tuple[str, ...]
    unchanged: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        return not self.written and not self.removed


def find_plugin(editor: str, environment: Mapping[str, str] = os.environ) -> EditorPlugin:
    """The plugin of an editor that loads files from a folder."""
    return PLUGINS[editor](Path(environment.get("HOME") or Path.home()), environment)


def plugin_source(editor: str) -> Path:
    """The folder of a plugin: in an installed package, or in the repository."""
    installed = PACKAGE / "editor_plugins" / editor
    return installed if installed.is_dir() else PACKAGE.parents[1] / editor


def plan_installation(plugin: EditorPlugin) -> InstallationPlan:
    """Write what differs; remove what an earlier version installed and this one lacks."""
    _check_folder(plugin.folder)
    recorded = _recorded_hashes(plugin.folder)
    found = {name: read_content(plugin.folder / name) for name in {*plugin.files, *recorded}}
    written = {name: content for name, content in plugin.files.items() if found[name] != content}
    obsolete = tuple(name for name in recorded if name not in plugin.files and found[name] is not None)
    return InstallationPlan(
        plugin.folder,
        written,
        obsolete,
        tuple(name for name in (*written, *obsolete) if _is_changed(found[name], recorded.get(name))),
        tuple(name for name in plugin.files if name not in written),
    )


def plan_removal(plugin: EditorPlugin) -> InstallationPlan:
    """Remove every file that an installation recorded."""
    _check_folder(plugin.folder)
    recorded = _recorded_hashes(plugin.folder)
    found = {name: content for name in recorded if (content := read_content(plugin.folder / name)) is not None}
    changed = tuple(name for name, content in found.items() if _is_changed(content, recorded[name]))
    return InstallationPlan(plugin.folder, {}, tuple(found), changed, ())


def apply_plan(plan: InstallationPlan, *, overwrites_changed: bool) -> None:
    """Write and remove all files of the plan, or none; files that the user changed only where that is allowed."""
    kept = () if overwrites_changed else plan.user_changed
    written = {name: content for name, content in plan.written.items() if name not in kept}
    removed = [name for name in plan.removed if name not in kept]
    recorded = _recorded_hashes(plan.folder) | {name: _hash(content) for name, content in written.items()}
    recorded |= {name: _hash((plan.folder / name).read_bytes()) for name in plan.unchanged}
    recorded = {name: value for name, value in recorded.items() if name not in plan.removed}
    new: dict[str, bytes | None] = {**written, **dict.fromkeys(removed)}
    new[LIST_NAME] = json.dumps({"version": __version__, "sha256": recorded}, indent=1).encode() if recorded else None
    replacements = [Replacement(plan.folder / name, read_content(plan.folder / name), new[name]) for name in new]
    replacements = [each for each in replacements if each.old != each.new]
    for each in replacements:
        if each.new is not None:
            each.path.parent.mkdir(parents=True, exist_ok=True)
    write_files(replacements)
    _remove_empty_folders(plan.folder, removed)


def _check_folder(folder: Path) -> None:
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link to {folder.resolve()}; remove the link, or keep the plugin that it shows")


def _recorded_hashes(folder: Path) -> dict[str, str]:
    try:
        recorded = json.loads((folder / LIST_NAME).read_text(encoding="utf-8"))["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {
        str(name): str(value) for name, value in recorded.items() if not Path(name).is_absolute() and ".." not in name
    }


def _is_changed(content: bytes | None, recorded: str | None) -> bool:
    """Whether a file is not what was installed: the user changed it, or made it."""
    return content is not None and _hash(content) != recorded


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _remove_empty_folders(folder: Path, removed: list[str]) -> None:
    """Folders that the removal left empty, up to the one of the plugin and its package folder in Vim."""
    parents = {parent for name in removed for parent in (folder / name).parents if parent.is_relative_to(folder)}
    above = [folder.parent, folder.parent.parent] if folder.parent.name == "start" else []
    for each in [*sorted(parents, key=lambda path: -len(path.parts)), *above]:
        if each.is_dir() and not any(each.iterdir()):
            each.rmdir()


def _vim(home: Path, _environment: Mapping[str, str]) -> EditorPlugin:
    folder = home / ".vim" / "pack" / "specchat" / "start" / "specchat"
    return EditorPlugin("vim", _files("vim"), folder, "restart Vim, then :'<,'>Specchat add type hints")


def _neovim(home: Path, environment: Mapping[str, str]) -> EditorPlugin:
    data = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share")
    folder = data / "nvim" / "site" / "pack" / "specchat" / "start" / "specchat"
    next_step = "restart Neovim, then :checkhealth specchat and :'<,'>Specchat add type hints"
    return EditorPlugin("neovim", _files("neovim"), folder, next_step)


def _emacs(home: Path, environment: Mapping[str, str]) -> EditorPlugin:
    """A package as package.el stores it; the folder is the one that Emacs chooses for itself."""
    xdg = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "emacs"
    uses_xdg = xdg.is_dir() and not (home / ".emacs.d").exists() and not (home / ".emacs").exists()
    base = xdg if uses_xdg else home / ".emacs.d"
    files = _files("emacs")
    source = files["specchat.el"].decode()
    version = _header(source, "Version")
    files |= {"specchat-pkg.el": _package_file(source, version), "specchat-autoloads.el": _autoloads(source)}
    next_step = "restart Emacs, then M-x specchat-edit"
    return EditorPlugin("emacs", files, base / "elpa" / f"specchat-{version}", next_step)


PLUGINS: Mapping[str, Callable[[Path, Mapping[str, str]], EditorPlugin]] = {
    "vim": _vim, "neovim": _neovim, "emacs": _emacs,
}  # fmt: skip


def _files(editor: str) -> dict[str, bytes]:
    source = plugin_source(editor)
    files = {
        path.relative_to(source).as_posix(): path.read_bytes() for path in sorted(source.rglob("*")) if path.is_file()
    }
    return {name: content for name, content in files.items() if not name.endswith((".elc", "~"))}


def _header(source: str, name: str) -> str:
    found = re.search(rf"^;; {name}: (.*)$", source, re.MULTILINE)
    assert found
    return found[1].strip()


def _package_file(source: str, version: str) -> bytes:
    summary = HEADER.match(source)
    assert summary
    requirements = _header(source, "Package-Requires")
    text = f'(define-package "specchat" "{version}" "{summary["summary"]}" \'{requirements})\n'
    return f";; -*- no-byte-compile: t -*-\n{text}".encode()


def _autoloads(source: str) -> bytes:
    """The commands of the file, as `package-install` writes them: Emacs loads the file when one is used."""
    lines = [
        f'(autoload \'{each["name"]} "specchat" nil {"t" if "(interactive" in each["body"] else "nil"})'
        for each in AUTOLOAD.finditer(source)
    ]
    path = "(add-to-list 'load-path (directory-file-name (file-name-directory load-file-name)))"
    return "\n".join([";; -*- lexical-binding: t; no-byte-compile: t -*-", path, *lines, ""]).encode()
