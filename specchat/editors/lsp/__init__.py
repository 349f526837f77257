"""A language server: completions as grey text, and edits as code actions. Reaches the engine through the host."""
