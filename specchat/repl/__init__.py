"""The line mode: lines in, lines out, for pipes and for terminals without a full screen. Nothing is redrawn.

line_input.py        read lines: prompt_toolkit on a capable terminal, plain lines elsewhere
loop.py              run commands and questions
answer_printer.py    the answer to stdout, everything else to stderr; also for `specchat ask` and the demo
temporary_line.py    what is drawn over while the user waits, or said now and then
interrupt.py         Ctrl-C and SIGTERM as a flag that stops an answer
terminal_ui.py       how a terminal asks; the colours of a hunk, and $EDITOR
"""
