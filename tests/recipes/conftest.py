"""The tiny corpus and network of tests/train."""

from tests.train.conftest import *  # noqa: F403 (fixtures)
