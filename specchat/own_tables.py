"""The tables in TOML that lie beside our modules. Imports nothing of the package."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def own_tables(module_file: str, name: str = "") -> dict[str, Any]:
    """The tables beside a module, which gives its `__file__`: in the file of its name, or of another name.

    They are read once and shared, so no caller may change them.
    """
    path = Path(module_file)
    return tomllib.loads((path.with_name(name) if name else path.with_suffix(".toml")).read_text(encoding="utf-8"))
