"""What is packed for a machine with a GPU and without a package index."""

from __future__ import annotations

from zipfile import ZipFile

import pytest

from specchat.errors import InputError
from tools.first_hour_on_a_gpu import SCRIPT, _unpack


def test_one_library_of_bitsandbytes_is_kept(tmp_path):
    wheel, target = tmp_path / "bitsandbytes-0.50.2-py3-none-any.whl", tmp_path / "packages"
    with ZipFile(wheel, "w") as archive:
        for name in (
            "__init__.py",
            "libbitsandbytes_cuda128.so",
            "libbitsandbytes_cuda130.so",
            "libbitsandbytes_cpu.so",
        ):
            archive.writestr(f"bitsandbytes/{name}", "")

    _unpack(wheel, target, "130")

    kept = {each.name for each in (target / "bitsandbytes").iterdir()}
    assert kept == {"__init__.py", "libbitsandbytes_cuda130.so"}
    with pytest.raises(InputError, match="no library for CUDA 131"):
        _unpack(wheel, tmp_path / "other", "131")


def test_the_script_runs_every_section():
    from specchat_bench.gpu.sections import MEASURES

    line = next(line for line in SCRIPT.splitlines() if line.startswith("for each in"))
    named = line.removeprefix("for each in ").removesuffix("; do").replace(" ", ",").split(",")
    assert sorted(named) == sorted(MEASURES)
