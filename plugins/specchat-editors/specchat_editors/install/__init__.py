"""Plugins for editors, and how they are installed.

command.py               `specchat editors install`
plugin_installation.py   the plugins, and where they go
vscode_extension.py      the VS Code extension as one file, and the program that installs it
"""
