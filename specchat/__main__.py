"""`python -m specchat` runs the command `specchat`."""

from specchat.python_child import leave_current_folder

if __name__ == "__main__":
    leave_current_folder()
    from specchat.cli.main import main

    main()
