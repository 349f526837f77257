"""The line mode: lines in, lines out, for pipes and for terminals without a full screen. Nothing is redrawn.

line_input.py        read lines: prompt_toolkit on a capable terminal, plain lines elsewhere
loop.py              run commands and requests, print answers
thinking_printer.py  what a model thinks, dimmed, on stderr
terminal_agent.py    questions of consent and lines about calls of tools
interrupt.py         Ctrl-C and SIGTERM as a flag that stops an answer
terminal_edit_ui.py  review file edits line by line
terminal_review.py   its colours, its prompt, and $EDITOR
"""
