"""The encoding of steps: lossless at every length, and compact."""

from __future__ import annotations

import json

from specchat.chat.events import CommittedToken, LikelyToken, StepDone
from specchat.history.step_encoding import StepPacker, unpack_steps

STEP = StepDone(
    (5, 6, 7), (0, 1, 1), (CommittedToken(5, b"\xc3", "lookup"), CommittedToken(9, b"\xa9\n", "target")), 0.000125, 0.5,
    (b"\xc3", b"a", b"\xff"), ("lookup", "lookup", "draft"),
)  # fmt: skip
BARE = StepDone((), (), (CommittedToken(1, b"x", "target"),), 0.0, 0.25)


LIKELY = StepDone(
    (), (), (CommittedToken(1, b"x", "target", 0.25, (LikelyToken(b"\xc3", 0.5), LikelyToken(b"x", 0.25))),), 0.0, 0.25
)


def recorded(*steps: StepDone) -> StepPacker:
    recording = StepPacker()
    for step in steps:
        recording.add(step)
    return recording


def test_steps_are_unpacked_as_they_were_packed():
    assert unpack_steps(recorded(STEP, LIKELY, BARE, STEP).packed()) == [STEP, LIKELY, BARE, STEP]


def test_packed_steps_can_be_read_while_they_grow():
    recording = recorded(STEP)
    early = recording.packed()
    recording.add(BARE)

    assert unpack_steps(early) == [STEP]
    assert unpack_steps(recording.packed()) == [STEP, BARE]


def test_no_steps_have_no_bytes():
    assert recorded().packed() == b""
    assert unpack_steps(b"") == []


def test_an_unknown_version_has_no_steps():
    assert unpack_steps(b"\x07" + recorded(STEP).packed()[1:]) == []


def test_truncated_bytes_are_read_up_to_the_cut():
    packed = recorded(*(BARE for _ in range(2000)), STEP).packed()

    assert unpack_steps(packed[:-10])[:10] == [BARE] * 10


def test_a_step_of_sixteen_draft_tokens_is_smaller_than_a_tenth_of_its_event():
    def step(number: int) -> StepDone:
        ids = tuple((number * 31 + place * 7) % 500 for place in range(16))
        words = tuple(f"w{id} ".encode() for id in ids)
        said = tuple(CommittedToken(id, word, "suffix") for id, word in zip(ids[:9], words[:9], strict=True))
        return StepDone(
            ids, tuple(range(16)), (*said, CommittedToken(3, b"x", "target")), 1e-4, 3e-3, words, ("suffix",) * 16
        )

    steps = [step(number) for number in range(500)]
    size = sum(
        len(json.dumps([each.draft_tokens, [str(word) for word in each.draft_token_bytes], str(each.committed_tokens)]))
        for each in steps
    )

    assert len(recorded(*steps).packed()) < size / 10
