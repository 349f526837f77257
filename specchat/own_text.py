"""The product's own text in the language of the user, where there is a catalogue of that language.

A catalogue is `texts/LANGUAGE.json`, in the configuration folder or here: the English texts that `tools.collect_texts`
finds in the source, and their translations; `{names}` stand for what changes. It is looked up where a text leaves for a
person, so errors, events, JSON and what is stored stay English. Answers never pass.
"""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from specchat.paths import configuration_folder

VARIABLES = ("SPECCHAT_LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
COLUMNS = re.compile(r"(\n|\s{2,})")  # a catalogue has the texts on both sides
SEPARATORS = " · ", ": ", "; ", ". ", " (", ")", ", "  # between texts that are joined, the strongest first
PLACES = re.compile(r"\{(\w+)\}")
WORDS = re.compile(r"[^\W\d_]{2,}")


def translated(text: str) -> str:
    """The text in the language of the user; without a catalogue, the text itself."""
    texts = catalogue(next(filter(None, map(os.environ.get, VARIABLES)), ""))
    return "".join(_translation(each, texts) for each in COLUMNS.split(text)) if texts else text


@cache
def catalogue(locale: str) -> Mapping[str, str]:
    """The translations for `de_AT`, else for `de`, those of most words first; empty without a catalogue."""
    language = locale.partition(".")[0]
    for name in (language, language.partition("_")[0]):
        for folder in (configuration_folder(), Path(__file__).parent) if name.isidentifier() and name != "en" else ():
            with suppress(OSError, ValueError, TypeError):
                texts = dict[str, str](json.loads((folder / "texts" / f"{name}.json").read_text(encoding="utf-8")))
                return {each: str(texts[each]) for each in sorted(texts, key=_words, reverse=True) if texts[each]}
    return {}


def _words(english: str) -> int:
    return len(WORDS.findall(PLACES.sub(" ", english)))


def _translation(text: str, texts: Mapping[str, str]) -> str:
    """Of a whole text, of what fills a template, or of the parts that it is joined from."""
    if whole := texts.get(text) or texts.get(f"{text}.", "").removesuffix("."):
        return whole
    for english, translation in texts.items():
        literals, names = (parts := PLACES.split(english))[::2], parts[1::2]
        if not names or any(each not in text for each in literals) or not (words := _words(english)):
            continue
        anything = "(.*?)" if words > 2 else r"(\S*?)"  # what has few words of its own would fit everywhere
        if filled := re.fullmatch(anything.join(map(re.escape, literals)), text):
            values = dict(zip(names, filled.groups(), strict=True))
            return PLACES.sub(lambda place, to=values: _translation(to.get(place[1], place[0]), texts), translation)
    separator = next((each for each in SEPARATORS if each in text), "")
    return separator.join(_translation(each, texts) for each in text.split(separator, 1)) if separator else text
