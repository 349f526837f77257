"""Editors over stdin and stdout: the Agent Client Protocol and the Language Server Protocol."""
