import pytest

from tests.host.test_not_stored import *  # noqa: F403

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("runtime")]
