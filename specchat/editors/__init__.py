"""Editor front ends over stdin and stdout. They are thin clients of the engine process.

stdio.py    the standard streams: descriptors, reader and writer threads, signals, exit code
acp/        Agent Client Protocol: conversations, slash commands, edits with permission
lsp/        Language Server Protocol: inline completion, code actions
"""
