"""What the TUI and `/inspect` draw with. Knows no screen and no process.

glyphs.py           Unicode or ASCII; control characters made visible
themes.py           the colours, and the style of a token
inspector_lines.py  an inspected answer as lines
"""
