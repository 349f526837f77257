"""Pictures of terminals for documents."""

import sys

from tools.terminal_picture import draw_svg, run_in_pty


def test_a_picture_shows_what_stands_on_the_screen_in_the_end():
    command = [sys.executable, "-c", "print('loading…', end='\\r\\x1b[2K'); print('[green]answer')"]

    text = run_in_pty(command)

    assert text == "[green]answer\n"
    assert "answer" in draw_svg(command, text)
