"""Which pair of the catalog to take for so much free memory, and why. A pure function of a device and a wish.

The choice is a rule of thumb, written as one product in `_worth`, and every factor is a constant with its reason here.
Memory is counted, not guessed: weights, drafter, keys and values of a full context, workspace. Speed is estimated only
where a bandwidth was measured, and called an estimate.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import Any

from specchat.hub.architecture import Anatomy
from specchat.hub.catalog import CARDS, Entry, catalog, head_anatomy
from specchat.hub.machine import Device, simulated
from specchat.hub.memory_plan import DENSE, GIB, SCRATCH, SMALLER, Held, Need, need, weight_bytes
from specchat.hub.pairing import LARGEST, Partner, cautions
from specchat.profile import Limits, Models
from specchat.profile.validation import about

PURPOSES = ("chat", "code", "edit")
QUALITY = {"bf16": 1.0, "float32": 1.0, "int8": 0.97, "nf4-double": 0.75}  # of a parameter: 14B in 4 bits is like 11B
SECOND_PURPOSE = 0.6  # a model that is made for something else is worth as much as one of 0.6 times its size
A_YEAR = 1.25  # newer models of the same size are better by about so much
GATED = 0.6  # somebody must sign in, accept a licence and wait
GUESSED_BY = {"eagle3": 1.15, "dflash": 1.1, "draft": 1.0, "": 0.85}  # a head costs one layer, a draft all of its own
ONE_LANGUAGE = 0.8  # a head that was trained on one language, which may not be yours
TOO_LARGE = 0.8  # a draft that is too large for its target: rather nobody
AWAY = 0.5  # embeddings on the CPU: passes are not recorded then
FULL = 0.98  # of what is free
SPARED = 0.75  # of free main memory: the rest is for everybody else
READING = 8.0  # tokens a second that a person reads; slower is a loss that grows fast
USUAL_BYTES = 20e9  # a second, of main memory that nobody measured: two slow channels
USED = 0.6  # of the bandwidth of main memory that passes on a CPU reach
CONTEXT = 8192  # exactly one bucket of keys and values
SHORT_CONTEXT = 4096
TIGHT = 0.94
FIRST_YEAR = 2024


@dataclass(frozen=True)
class Wish:
    """What a pair is to do, and in how much text."""

    purpose: str = "chat"
    context: int = CONTEXT


@dataclass(frozen=True)
class Drafting:
    """Who drafts: a head, a model, or nobody but the text itself."""

    kind: str = ""  # "eagle3", "dflash", "draft"; "" for nobody
    id: str = ""
    held: Held | None = None
    speaks: str = ""  # the one language that it was trained on


@dataclass(frozen=True)
class Pair:
    """A target, how it is held, and who drafts for it: one way to use a device."""

    entry: Entry
    way: str
    drafting: Drafting
    context: int
    device: Device
    embeddings_on_cpu: bool = False
    bytes_per_second: float | None = None  # of the device's memory, where it was measured
    worth: float = 0.0

    @cached_property
    def need(self) -> Need:
        """Bytes that it takes with a full context. All rows are kept, so that guesses can be taken back."""
        target = Held(self.entry.anatomy, self.way, self.embeddings_on_cpu)
        rows = self.context + SCRATCH
        return need(target, self.drafting.held, rows, on_card=self.device.is_card, keeps_windows=False)

    @property
    def is_tight(self) -> bool:
        """Whether it takes nearly all that is free."""
        return self.need.total > TIGHT * _room(self.device)

    @property
    def plain_speed(self) -> float | None:
        """Tokens a second without guesses, at best: every pass reads the weights once. None: nothing was measured."""
        if self.bytes_per_second is None:
            return None
        share = self.entry.active / self.entry.anatomy.parameters
        return USED * self.bytes_per_second / (weight_bytes(self.entry.anatomy, self.way) * share)


def recommend(
    device: Device, wish: Wish | None = None, skills: Sequence[str] = (), bytes_per_second: float | None = None
) -> list[Pair]:
    """The best pair of every model that fits, the best first; empty when only the embedded models fit.

    `bytes_per_second` is that of main memory; where a CPU computes and nobody measured it, a slow one is assumed.
    """
    wish = wish or Wish()
    if not device.is_card:
        bytes_per_second = bytes_per_second or USUAL_BYTES
    best = dict[str, Pair]()
    for entry in catalog().values():
        for pair in _pairs(entry, device, wish, skills, bytes_per_second):
            if entry.id not in best or pair.worth > best[entry.id].worth:
                best[entry.id] = pair
    return sorted(best.values(), key=lambda pair: -pair.worth)


def fits(entry: Entry, purpose: str = "chat") -> tuple[int, ...]:
    """The sizes of cards, in GB, on which this model finds room in some way."""
    return tuple(card for card in CARDS if any(_pairs(entry, simulated(card), Wish(purpose), (), None)))


def reasons(pair: Pair) -> Iterator[str]:
    """Why this one, in words and numbers."""
    anatomy, sizes = pair.entry.anatomy, pair.need
    held = {"bf16": "as it was saved", "float32": "in float32"}.get(pair.way, f"held in {pair.way}")
    yield f"{anatomy.parameters / 1e9:.1f} B parameters {held}: {in_gib(sizes.weights)}"
    match pair.drafting.kind:
        case "":
            yield "nobody else drafts: repeats of the text are copied (lookup, suffix), which costs no memory"
        case "draft":
            yield f"{pair.drafting.id} drafts: {in_gib(sizes.drafter)}, {_share(pair):.0%} of its target"
            beside, draft = (
                Partner(name, each.parameters, each.layers, pair.entry.tokens, is_recorded=each.family in DENSE)
                for name, each in ((pair.entry.id, anatomy), (pair.drafting.id, _drafted(pair)))
            )
            yield from (f"beware: {line}" for line in cautions(draft, beside, on_card=pair.device.is_card))
        case kind:
            layers = _drafted(pair).layers
            yield (
                f"{pair.drafting.id} drafts ({kind}): {in_gib(sizes.drafter)}, {layers} layer{'s' * (layers > 1)}"
                f"{f', trained on {pair.drafting.speaks}' * bool(pair.drafting.speaks)}"
            )
    yield f"a text of {pair.context} tokens: {in_gib(sizes.text)}; workspace {in_gib(sizes.workspace)}"
    room = _room(pair.device)
    yield f"together {in_gib(sizes.total)} of {in_gib(room)}{' (tight)' * pair.is_tight}"
    if pair.embeddings_on_cpu:
        yield "its embeddings stay in main memory, or it would not fit; a few KB a token cross over"
    if pair.entry.is_gated:
        yield f"gated: accept its licence ({pair.entry.licence}) on the hub first"
    if (speed := pair.plain_speed) is not None and pair.bytes_per_second:
        yield f"about {speed:.2g} tokens/s without guesses, estimated from {pair.bytes_per_second / 1e9:.0f} GB/s" + (
            "; slower than one reads" if speed < READING else ""
        )


def profile_text(pair: Pair, name: str) -> str:
    """The profile that uses this pair, as TOML with a comment above every key."""
    tables = (("models", _models(pair), about(Models)), ("limits", {"context": pair.context}, about(Limits)))
    lines = [f"# {pair.entry.id} on {pair.device.name}, chosen by 'specchat models recommend'.", ""]
    lines += ["# How the profile is called.", f"name = {json.dumps(name)}"]
    lines += ["# One line for lists of profiles.", f"description = {json.dumps(_described(pair))}"]
    lines += ["# Everything that is not said here is taken from this profile.", 'extends = "chat"']
    for table, keys, known in tables:
        lines += ["", f"[{table}]"]
        for key, value in keys.items():
            lines += [f"# {known[key].what}", f"{key} = {json.dumps(value)}"]
    return "\n".join(lines) + "\n"


def drafter_way(way: str, *, on_card: bool = True) -> str:
    """How a draft model is held beside a target that is held so: small enough for bf16 unless memory is scarce.

    On a CPU int8 reads half as many bytes for a guess, as for a word of the target.
    """
    return way if way.startswith("nf4") or (way == "int8" and not on_card) else "bf16"


def in_gib(count: float) -> str:
    """Bytes as people say them: "8.5 GiB", "45 MiB"."""
    return f"{count / GIB:.1f} GiB" if count >= GIB / 10 else f"{count / 2**20:.0f} MiB"


def _models(pair: Pair) -> dict[str, Any]:
    """The keys of [models]."""
    drafting = pair.drafting
    keys: dict[str, Any] = {"target": pair.entry.id, "draft": drafting.id if drafting.kind == "draft" else ""}
    keys["heads"] = [drafting.id] if drafting.kind not in ("", "draft") else []
    if pair.way in SMALLER:
        keys["weights"] = pair.way
    else:
        keys["dtype"] = "float32" if pair.way == "float32" else "bfloat16"
    if drafting.held is not None and drafting.kind == "draft" and drafting.held.way in SMALLER:
        keys["draft_weights"] = drafting.held.way
    if pair.embeddings_on_cpu:
        keys["embedding"] = "cpu"
    if not pair.device.is_card:
        keys["device"] = "cpu"
    return keys


def _described(pair: Pair) -> str:
    drafted = f" with {pair.drafting.id.partition('/')[2]}" if pair.drafting.kind else ""
    return f"{pair.entry.name} ({pair.way}){drafted}, {in_gib(pair.need.total)}"


def _drafted(pair: Pair) -> Anatomy:
    assert pair.drafting.held is not None
    return pair.drafting.held.anatomy


def _share(pair: Pair) -> float:
    return _drafted(pair).parameters / pair.entry.anatomy.parameters


def _room(device: Device) -> float:
    """What a pair may take."""
    return device.free * (FULL if device.is_card else SPARED)


def _pairs(
    entry: Entry, device: Device, wish: Wish, skills: Sequence[str], bytes_per_second: float | None
) -> Iterator[Pair]:
    """Every way to use a model here that fits, with the context that is wished for; the usual one may be shortened."""
    can_part = device.is_card and entry.anatomy.family in DENSE and not entry.anatomy.is_tied
    places = (False, True) if can_part else (False,)
    shorter = SHORT_CONTEXT if wish.context == CONTEXT else wish.context
    for context in dict.fromkeys((wish.context, shorter)):
        found = False
        for way in _ways(entry, device, skills):
            for drafting in _draftings(entry, way, on_card=device.is_card):
                for is_away in places:
                    pair = Pair(entry, way, drafting, context, device, is_away, bytes_per_second)
                    if context <= entry.anatomy.longest and pair.need.total <= _room(device):
                        found = True
                        yield replace(pair, worth=_worth(pair, wish))
                        break
        if found:
            return


def _ways(entry: Entry, device: Device, skills: Sequence[str]) -> Iterator[str]:
    """How its weights can be held here, the most faithful first."""
    is_dense = entry.anatomy.family in DENSE
    yield "bf16" if device.is_card or "BF16" in skills else "float32"
    if is_dense and (device.is_card or "VNNI" in skills):
        yield "int8"
    if is_dense and device.is_card:
        yield "nf4-double"


def _draftings(entry: Entry, way: str, *, on_card: bool) -> Iterator[Drafting]:
    """Who could draft for it: its first head, its drafts, nobody."""
    if entry.heads:
        head = entry.heads[0]
        yield Drafting(head.kind, head.id, Held(head_anatomy(entry.id, head.kind), "bf16"), head.speaks)
    for name in entry.drafts:
        yield Drafting("draft", name, Held(catalog()[name].anatomy, drafter_way(way, on_card=on_card)))
    yield Drafting()


def _worth(pair: Pair, wish: Wish) -> float:
    """How good an answer is expected to be, and how soon: billions of parameters, weighed."""
    entry = pair.entry
    wanted = "code" if wish.purpose == "edit" else wish.purpose
    made_for = 1.0 if entry.purposes[0] == wanted else SECOND_PURPOSE if wanted in entry.purposes else 0.0
    worth = sqrt(entry.anatomy.parameters * entry.active) / 1e9 * QUALITY[pair.way] * made_for
    worth *= A_YEAR ** (entry.year - FIRST_YEAR) * (GATED if entry.is_gated else 1.0)
    worth *= 1.0 if wish.purpose == "edit" and not pair.drafting.kind else GUESSED_BY[pair.drafting.kind]
    worth *= 1.0 if pair.drafting.kind != "draft" or _share(pair) <= LARGEST else TOO_LARGE
    worth *= ONE_LANGUAGE if pair.drafting.speaks else 1.0
    worth *= AWAY if pair.embeddings_on_cpu else 1.0
    speed = pair.plain_speed
    return worth if speed is None else worth * min(1.0, speed / READING) ** 2
