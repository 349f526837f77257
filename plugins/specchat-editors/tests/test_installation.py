"""`specchat editors install`: what it writes where, and what it never overwrites."""

from __future__ import annotations

import json
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

from specchat.cli.main import run
from specchat_editors.install.plugin_installation import LIST_NAME, PLUGINS, find_plugin, plugin_source
from specchat_editors.install.vscode_extension import PACKED
from tests.plugins.test_editors import ROOT, needs, ran

PLUGIN = Path(__file__).parents[1]
FOLDERS = {
    "vim": ".vim/pack/specchat/start/specchat/plugin/specchat.vim",
    "neovim": ".local/share/nvim/site/pack/specchat/start/specchat/lua/specchat/init.lua",
    "emacs": ".emacs.d/elpa/specchat-0.1.0/specchat.el",
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder without settings, and nothing on the PATH but the system."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("editor", PLUGINS)
def test_it_shows_and_writes_every_file_and_removes_them_again(home, capsys, editor):
    assert run(["editors", "install", editor, "--yes"]) == 0
    shown, written = capsys.readouterr().err, files_in(home)

    assert (home / FOLDERS[editor]).is_file()
    assert all(f"write {path}" in shown for path in written if path.name != LIST_NAME)
    assert run(["editors", "install", editor, "--yes"]) == 9
    assert run(["editors", "install", editor, "--uninstall", "--yes"]) == 0
    assert files_in(home) == []
    assert run(["editors", "install", editor, "--uninstall", "--yes"]) == 9


def test_without_a_terminal_it_needs_yes(home, capsys):
    assert run(["editors", "install", "vim"]) == 2

    assert "--yes" in capsys.readouterr().err
    assert files_in(home) == []


def test_a_file_that_the_user_changed_is_kept_until_overwrite(home, capsys):
    run(["editors", "install", "vim", "--yes"])
    file, other = home / FOLDERS["vim"], find_plugin("vim").folder / "README.md"
    installed = file.read_bytes()
    file.write_text('" mine\n')
    other.unlink()

    assert run(["editors", "install", "vim", "--yes"]) == 0
    assert f"keep (changed by you; see --overwrite) {file}" in capsys.readouterr().err
    assert file.read_text() == '" mine\n'
    assert other.is_file()
    assert run(["editors", "install", "vim", "--yes"]) == 5
    assert run(["editors", "install", "vim", "--uninstall", "--yes"]) == 0
    assert files_in(home) == [file]
    assert run(["editors", "install", "vim", "--yes", "--overwrite"]) == 0
    assert file.read_bytes() == installed


def test_a_file_of_an_older_version_is_replaced_without_a_question(home):
    run(["editors", "install", "vim", "--yes"])
    file, old = home / FOLDERS["vim"], '" an older version\n'
    record = find_plugin("vim").folder / LIST_NAME
    file.write_text(old)
    content = json.loads(record.read_text())
    from hashlib import sha256

    content["sha256"] |= {"plugin/specchat.vim": sha256(old.encode()).hexdigest(), "gone.vim": sha256(b"x").hexdigest()}
    record.write_text(json.dumps(content))
    (record.parent / "gone.vim").write_bytes(b"x")

    assert run(["editors", "install", "vim", "--yes"]) == 0
    assert file.read_text() != old
    assert not (record.parent / "gone.vim").exists()


def test_a_link_to_a_copy_of_the_repository_is_left_alone(home, capsys):
    folder = find_plugin("vim").folder
    folder.parent.mkdir(parents=True)
    folder.symlink_to(ROOT / "plugins" / "vim")

    assert run(["editors", "install", "vim", "--yes"]) == 2
    assert "is a link" in capsys.readouterr().err


def test_emacs_finds_the_commands_of_the_package(home):
    run(["editors", "install", "emacs", "--yes"])

    said = ran({"HOME": str(home), "PATH": "/usr/bin:/bin"}, needs("emacs"), "--batch", "--eval",
               "(progn (package-initialize) (print (commandp 'specchat-edit)) (specchat-eglot 'text-mode)"
               " (princ (featurep 'specchat)))")  # fmt: skip

    assert said.split()[-2:] == ["t", "t"]


def test_vim_and_neovim_load_what_is_installed(home):
    for editor, program in (("vim", ["vim", "-es"]), ("neovim", ["nvim", "--headless"])):
        run(["editors", "install", editor, "--yes"])
        check = "if exists(':Specchat') == 2 | call writefile(['found'], 'seen') | endif"
        subprocess.run(
            [needs(program[0]), *program[1:], "-c", check, "-c", "qa!"],
            env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
            cwd=home, timeout=180, check=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip

        assert (home / "seen").read_text() == "found\n"
        (home / "seen").unlink()


def test_vs_code_gets_a_packed_extension(home):
    (home / "bin").mkdir()
    code = home / "bin" / "code"
    code.write_text(
        f'#!/bin/sh\necho "$@" >> {home}/called\n[ "$1" != --install-extension ] || cp "$2" {home}/packed.zip\n'
    )
    code.chmod(0o700)

    assert run(["editors", "install", "code", "--yes"]) == 0
    assert run(["editors", "install", "code", "--uninstall", "--yes"]) == 0

    names = zipfile.ZipFile(home / "packed.zip").namelist()
    assert {f"extension/{name}" for name in PACKED} <= set(names)
    assert (home / "called").read_text().splitlines()[1] == "--uninstall-extension specchat.specchat"


def test_without_vs_code_the_packed_extension_stays_here(home, capsys):
    assert run(["editors", "install", "code", "--yes"]) == 0

    assert zipfile.is_zipfile(home / "specchat.specchat.vsix")
    assert "Install from VSIX" in capsys.readouterr().err


def test_the_wheel_has_the_plugins():
    wheel = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    folders = wheel["force-include"]

    assert all((PLUGIN / name).exists() for name in folders)
    assert {f"specchat_editors/editor_plugins/{editor}" for editor in PLUGINS} <= set(folders.values())
    assert {f"specchat_editors/editor_plugins/vscode/{name}" for name in PACKED} <= set(folders.values())
    assert all((plugin_source("vscode") / name).is_file() for name in PACKED)
