"""A plugin for specchat: editors chat, complete and edit with it.

acp/       Agent Client Protocol: `specchat acp`
lsp/       Language Server Protocol: `specchat lsp`
install/   the plugins of Vim, Neovim, Emacs and VS Code: `specchat editors install`; the schema of profiles
stdio.py   the standard streams that acp/ and lsp/ share: descriptors, reader and writer threads, signals, exit code

They are front ends: they import `specchat.app`, `specchat.host.client` and plain types, which contracts in
pyproject.toml hold.
Every process of specchat imports this file, so it only declares the commands.
"""

from specchat.plugins.hooks import Extension, hookimpl


@hookimpl
def register_commands() -> list[Extension]:
    acp = "Serve an editor: Agent Client Protocol over stdin and stdout."
    lsp = "Serve an editor: completions and edits (Language Server Protocol)."
    editors = "Install the plugins for Vim, Neovim, Emacs and VS Code."
    return [
        Extension("acp", acp, "specchat_editors.acp.command:acp"),
        Extension("lsp", lsp, "specchat_editors.lsp.command:lsp"),
        Extension("editors", editors, "specchat_editors.install.command:editors"),
    ]
