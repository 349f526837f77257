"""The figures of recurrent networks come from a command."""

import pytest

from tools.recurrent_costs import main


@pytest.mark.full
def test_a_text_that_is_edited_near_its_end_keeps_what_is_before_its_last_checkpoint(capsys):
    main(["going-back", "lfm2"])

    assert "| lfm2 | 768 of 990 | 221 | yes |" in capsys.readouterr().out
