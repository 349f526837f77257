"""Commands: parse, call, print. Nothing heavy is imported before a command needs it."""
