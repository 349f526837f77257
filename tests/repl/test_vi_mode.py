"""The option `vi` of `screen.toml` in the line mode."""

from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input

from specchat.repl.line_input import prompt_toolkit_reader
from tests.each_row import each_row


@each_row("option, line", [("vi = true", "bc"), ("vi = false", "abcx")])
def test_the_line_mode_has_vi_keys_when_the_user_wants_them(tmp_path, monkeypatch, option, line):
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path))
    (tmp_path / "screen.toml").write_text(option)

    with create_pipe_input() as keys, create_app_session(input=keys):
        keys.send_text("abc\x1b0x\r" if line == "bc" else "abcx\r")
        assert prompt_toolkit_reader(lambda: "", None)() == line
