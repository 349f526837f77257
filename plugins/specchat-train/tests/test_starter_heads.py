"""The heads of the starter model that are part of specchat: of its shape, small, and with a README."""

from pathlib import Path

import pytest

import specchat
from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.spec import TargetDimensions, mismatches
from specchat_train.fingerprint import trained_target_fingerprint

FOLDER = Path(specchat.__file__).parent / "starter_heads"
STARTER = TargetDimensions(hidden_size=576, layers=30, vocab_size=49152)
STARTER_FINGERPRINT = "d99fe7731bca03f3"
MAX_BYTES = 45 * 2**20  # of all


@pytest.mark.parametrize("kind", ["eagle3"])
def test_a_head_fits_the_starter_and_has_a_readme(kind):
    spec = inspect_head(FOLDER / kind)

    assert spec.kind == kind
    assert not mismatches(spec, STARTER)
    assert trained_target_fingerprint(FOLDER / kind) == STARTER_FINGERPRINT
    assert "license: apache-2.0" in (FOLDER / kind / "README.md").read_text()


def test_they_are_small():
    assert sum(path.stat().st_size for path in FOLDER.rglob("*")) < MAX_BYTES
