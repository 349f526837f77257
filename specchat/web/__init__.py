"""The screen in a browser: who may see it, and what serves it. Knows no model and no chat, only a command to run."""
