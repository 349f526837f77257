"""`specchat` and `python -m specchat`: the first code that runs. Python's own start comes before it."""

import os
import sys


def main() -> None:
    """Run the command. Until it can say that it was interrupted, Ctrl-C ends the process and prints nothing."""
    import signal

    if is_usual := signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from specchat.cli import main as command

    try:
        if is_usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command.main()
    except KeyboardInterrupt:
        sys.exit(command.INTERRUPTED_EXIT_CODE)


if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109 (`pathlib` may lie in that folder)
        del sys.path[0]  # `python -m` put the current folder there; nothing is imported from it from now on
    main()
