"""`python -m specchat` runs the command `specchat`."""

from specchat.cli.main import main

if __name__ == "__main__":
    main()
