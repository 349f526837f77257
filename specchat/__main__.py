"""`specchat` and `python -m specchat`: the first code that runs."""

import signal


def main() -> None:
    """Run the command. While it is imported, Ctrl-C ends the process at once and prints nothing."""
    if is_usual := signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from specchat.cli.main import main as run_command

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_command()


if __name__ == "__main__":
    from specchat.python_child import leave_current_folder

    leave_current_folder()
    main()
