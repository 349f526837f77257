"""Writes the sizes of the models of the catalog, as transformers builds them from their configs, for `hub/catalog.py`.

python -m tools.catalog_sizes

Run it after a change of a config in `catalog.toml`; a test compares some of them.
"""

import json
from dataclasses import astuple

from specchat.hub.catalog import SIZES_FILE, catalog
from specchat.hub.config_architecture import network_matrices


def sizes_of(name: str) -> list[tuple[str, int, int, int]]:
    return [astuple(matrix) for matrix in network_matrices(catalog()[name].config, name)]


def main() -> None:
    lines = (f" {json.dumps(name)}: {json.dumps(sizes_of(name))}" for name in catalog())
    SIZES_FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
