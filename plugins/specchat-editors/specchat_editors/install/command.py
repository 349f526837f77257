"""`specchat editors`: puts the editor plugins of this package in place, and removes them; the schema of profiles."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click

from specchat.cli.notes import confirm
from specchat.errors import FileChangedError, NoChangeError, UsageError
from specchat_editors.install.plugin_installation import (
    PLUGINS,
    InstallationPlan,
    apply_plan,
    find_plugin,
    plan_installation,
    plan_removal,
)

VS_CODE = "code"


@click.group()
def editors() -> None:
    """Install the plugins for Vim, Neovim, Emacs and VS Code that come with specchat; help editors with profiles."""


@editors.command()
@click.argument("editor", type=click.Choice([*PLUGINS, VS_CODE]))
@click.option("--uninstall", is_flag=True, help="Remove what was installed.")
@click.option("-y", "--yes", "skips_confirmation", is_flag=True, help="Do not ask; files that you changed stay.")
@click.option("--overwrite", is_flag=True, help="Also files that you changed.")
def install(editor: str, *, uninstall: bool, skips_confirmation: bool, overwrite: bool) -> None:
    """Put a plugin where the editor looks for it. Shows every file, and asks before it writes.

    A list beside the files remembers what was installed. A file that you changed since then is never overwritten or
    removed without --overwrite. VS Code installs its extension itself, from a file that is packed for it; without the
    program `code` that file stays in this folder.
    """
    if editor == VS_CODE:
        _remove_extension(skips_confirmation) if uninstall else _install_extension(skips_confirmation)
        return
    plugin = find_plugin(editor)
    plan = plan_removal(plugin) if uninstall else plan_installation(plugin)
    if plan.is_empty:
        raise NoChangeError(f"{plugin.folder}: {'nothing of specchat is there' if uninstall else 'is up to date'}")
    _show(plan, overwrites_changed=overwrite)
    if plan.user_changed and not overwrite and len(plan.user_changed) == len(plan.written) + len(plan.removed):
        raise FileChangedError("every file of this was changed by you; nothing is done, --overwrite does it")
    if not skips_confirmation:
        confirm(
            "Remove?" if uninstall else "Write?", "a removal" if uninstall else "an installation", "nothing was done"
        )
    apply_plan(plan, overwrites_changed=overwrite)
    if not uninstall:
        click.echo(plugin.next_step, err=True)


@editors.command()
def schema() -> None:
    """Print the JSON Schema of profiles, with which editors complete and check them."""
    from specchat_editors.install.profile_schema import profile_schema

    click.echo(json.dumps(profile_schema(), indent=2))


def _show(plan: InstallationPlan, *, overwrites_changed: bool) -> None:
    """Every file, and what happens to it."""
    for name in [*plan.written, *plan.removed]:
        verb = "write" if name in plan.written else "remove"
        if name in plan.user_changed:
            verb = f"{verb} (changed by you)" if overwrites_changed else "keep (changed by you; see --overwrite)"
        click.echo(f"{verb} {plan.folder / name}", err=True)


def _install_extension(skips_confirmation: bool) -> None:
    from specchat_editors.install.vscode_extension import extension_id, find_program, pack_extension, run_program

    program, path = find_program(), Path(f"{extension_id()}.vsix").absolute()
    if program is None:
        if path.exists():
            raise UsageError(f"{path} exists; remove it first")
        click.echo(f"no program `code` on the PATH; write {path}", err=True)
    else:
        click.echo(f"{program} --install-extension: VS Code copies {extension_id()} into its extensions", err=True)
    if not skips_confirmation:
        confirm("Write?" if program is None else "Run it?", "an installation", "nothing was done")
    if program is None:
        pack_extension(path)
        click.echo("in VS Code: the menu of the Extensions view, “Install from VSIX…”", err=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder, path.name)
        pack_extension(packed)
        run_program(program, "--install-extension", str(packed), "--force")
    click.echo("in VS Code: “specchat: rewrite the selection…” in the command palette", err=True)


def _remove_extension(skips_confirmation: bool) -> None:
    from specchat_editors.install.vscode_extension import extension_id, find_program, run_program

    program = find_program()
    if program is None:
        raise UsageError("no program `code` on the PATH; remove the extension in the Extensions view of VS Code")
    click.echo(f"{program} --uninstall-extension {extension_id()}", err=True)
    if not skips_confirmation:
        confirm("Run it?", "a removal", "nothing was done")
    run_program(program, "--uninstall-extension", extension_id())
