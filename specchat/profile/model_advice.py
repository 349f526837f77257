"""What suits a model: weaker than every setting of the user, stronger than the defaults.

    generation_config.json     beside the weights, as vLLM reads it: the sampling that its authors advise
    model_advice.toml          for models whose files say nothing, and the prompts of models that need others

Without `do_sample` a model is meant to be decoded greedily, so a temperature beside it counts for nothing. Reads two
small files and knows nothing else of a model.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specchat.errors import ProfileError
from specchat.own_tables import own_tables
from specchat.paths import local_model_folder, read_json_object, read_text_config
from specchat.profile.keys import EMBEDDED, Profile
from specchat.profile.validation import SettingsSource, merge_sources

MODEL_KIND, ADVICE_KIND = "model", "advice"
GENERATION_CONFIG = "generation_config.json"
DEFAULT_TEMPERATURE = 1.0  # of transformers, with do_sample
ADVISED_TABLES = ("sampling", "prompt")
SHAPE_KEYS = ("hidden_size", "num_hidden_layers", "vocab_size")


def model_sources() -> tuple[SettingsSource, ...]:
    """The sources that depend on the target, the weakest first."""
    return tuple(
        SettingsSource(kind, {}, lambda _path: "", resolve_for=resolve)
        for kind, resolve in ((ADVICE_KIND, _advice_source_for), (MODEL_KIND, _generation_config_source_for))
    )


def _generation_config_source_for(profile: Profile) -> SettingsSource | None:
    target = profile.models.target
    folder = None if target == EMBEDDED else local_model_folder(target)
    if folder is None:
        return None
    path = folder / GENERATION_CONFIG
    return _valid_source(MODEL_KIND, {"sampling": sampling_of(read_json_object(path))}, str(path))


def _advice_source_for(profile: Profile) -> SettingsSource | None:
    target = profile.models.target
    name, folder = Path(target).name.lower(), None if target == EMBEDDED else local_model_folder(target)
    shape = [read_text_config(folder).get(key) for key in SHAPE_KEYS] if folder else []
    for model in own_tables(__file__)["models"]:
        names = [each for each in model["names"] if name == each.lower() or name.startswith(f"{each.lower()}.")]
        if names or shape in model.get("shapes", ()):
            tables = {name: model[name] for name in ADVISED_TABLES if name in model}
            return _valid_source(ADVICE_KIND, tables, f"for {(names or model['names'])[0]}")
    return None


def sampling_of(generation_config: Mapping[str, Any]) -> dict[str, float]:
    """The keys of [sampling] in a generation_config.json.

    {"do_sample": true, "top_p": 0.9} is {"temperature": 1.0, "top_p": 0.9}; {"temperature": 0.6} is {}.
    """
    numbers = {name: value for name, value in generation_config.items() if type(value) in (int, float)}
    chosen = {"repetition_penalty": numbers["repetition_penalty"]} if "repetition_penalty" in numbers else {}
    match generation_config.get("do_sample"):
        case True:
            shaping = {name: numbers[name] for name in ("top_k", "top_p", "min_p") if name in numbers}
            return {"temperature": numbers.get("temperature", DEFAULT_TEMPERATURE), **shaping, **chosen}
        case False:
            return {"temperature": 0.0, **chosen}
        case _:
            return chosen


def _valid_source(kind: str, tables: Mapping[str, Mapping[str, Any]], location: str) -> SettingsSource | None:
    """A source with these values; None for none, and for values that no profile could have."""
    source = SettingsSource(kind, {name: dict(values) for name, values in tables.items()}, lambda _path: location)
    try:
        merge_sources(Profile(), [source])
    except ProfileError:
        return None
    return source if any(tables.values()) else None
