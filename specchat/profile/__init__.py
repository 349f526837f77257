"""Profiles: the user's settings as TOML files. They are validated here once, and trusted everywhere else.

    keys.py               every key, with its permitted values and default, and keys.toml with its meaning
    drafter_names.py      the names of all drafters
    validation.py         check tables against dataclasses, merge sources, keep the origin of each value
    toml_lines.py         TOML files, and the line of each key
    profile_files.py      profiles by name, what they extend, the user file; writes one that a command made
    project_file.py       .specchat.toml, and whether it is trusted
    environment_keys.py   SPECCHAT_<TABLE>_<KEY>
    model_advice.py       what suits the target: the sampling that its authors advise, and model_advice.toml
    shipped_drafters.py   the default target, and the drafters that are part of specchat for a target
    settings.py           the settings of a conversation: one value from all of these sources
    screen_file.py        `screen.toml` beside them: where it is, and its switches

Precedence, the strongest first: what was changed in the conversation, option, environment, project file, profile, user
file, model and advice, default. Front ends read all of them; the engine process is sent the result.
Knows no model and imports no torch.
"""
