"""Starts Python in another process, in which nothing of the current folder runs. No other module starts Python.

`python -m NAME` puts the current folder in front of everything: a folder with a `pip/` or a `json.py` would run. Here
the folder is not on the path, and no variable that begins with PYTHON is read, as PYTHONPATH may name it. What is
installed is found as ever, the user's site folder included, and specchat is this one, also where it is not installed.
Knows neither what the child does nor why.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from runpy import run_module

PACKAGE_FOLDER = Path(__file__).parent  # the current folder of children that need none of the user's
SAFE_VARIABLES = {"PYTHONSAFEPATH": "1"}  # for a program that may be a script of another Python


def python_command(module: str, *arguments: str) -> tuple[str, ...]:
    """The words that run a module as `python -m` does, in any folder."""
    options = ("-E", "-P", "-s") if sys.flags.no_user_site else ("-E", "-P")
    return (sys.executable, *options, __file__, module, *arguments)


def _run(module: str) -> None:
    """Run a module of this specchat, or of what is installed. Its arguments are in `sys.argv`."""
    spec = spec_from_file_location("specchat", PACKAGE_FOLDER / "__init__.py")
    assert spec and spec.loader
    sys.modules["specchat"] = package = module_from_spec(spec)
    spec.loader.exec_module(package)
    run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run(sys.argv.pop(1))
