"""The engine process listens on TCP in all tests of this folder."""

import pytest

from specchat.host import address


@pytest.fixture(autouse=True)
def loopback(monkeypatch) -> None:
    monkeypatch.setenv(address.TRANSPORT_VARIABLE, address.LOOPBACK)
