"""The official TypeScript SDK against the embedded model, by `clients/typescript.mjs`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OLDEST_NODE = 20
PATIENCE_SECONDS = 240


@pytest.fixture(scope="module")
def clients(tmp_path_factory) -> Path:
    """The folder with the SDK installed; a skip where node, npm or the registry is missing."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        pytest.skip("node and npm are not installed")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.strip().removeprefix("v").partition(".")[0]) < OLDEST_NODE:
        pytest.skip(f"node is {version.strip()}, and the SDK needs {OLDEST_NODE}")
    folder = tmp_path_factory.mktemp("clients")
    for name in ("package.json", "typescript.mjs"):
        shutil.copy(HERE / "clients" / name, folder)
    install = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock"]
    ran = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    if ran.returncode:
        pytest.skip(f"npm could not install the SDK: {(ran.stderr.strip() or 'no reason given').splitlines()[-1]}")
    return folder


@pytest.mark.full
def test_the_typescript_sdk_finds_nothing_wrong(clients, runtime):
    command = ["node", "typescript.mjs", sys.executable, "-m", "specchat", "acp"]
    environment = os.environ | {"SPECCHAT_RUNTIME": str(runtime)}

    ran = subprocess.run(
        command, cwd=clients, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )

    print(ran.stdout)  # with the seconds that everything took
    assert 0 == ran.returncode, ran.stdout + ran.stderr
    assert 10 == ran.stdout.count("ok · ")
