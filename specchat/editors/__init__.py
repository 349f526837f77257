"""Editor front ends over stdin and stdout, thin clients of the engine process, and the plugins for editors.

stdio.py                 the standard streams: descriptors, reader and writer threads, signals, exit code
acp/                     Agent Client Protocol: conversations, slash commands, edits with permission
lsp/                     Language Server Protocol: inline completion, code actions
plugin_installation.py   the plugins of `specchat editors install`, and where they go
vscode_extension.py      the VS Code extension as one file, and the program that installs it
"""
