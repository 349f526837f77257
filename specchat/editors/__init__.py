"""Plugins for editors and how they are installed, and the standard streams that `acp/` and `lsp/` share.

stdio.py                 the standard streams: descriptors, reader and writer threads, signals, exit code
plugin_installation.py   the plugins of `specchat editors install`, and where they go
vscode_extension.py      the VS Code extension as one file, and the program that installs it
"""
