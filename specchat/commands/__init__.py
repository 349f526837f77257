"""What every front end can do besides asking: slash commands, edits, export. Plugins import this package."""
