"""A load on a GPU that is too small: what is chosen is what its plan says, and what cannot fit is never read."""

from __future__ import annotations

import pytest

from specchat.errors import ModelError
from specchat.forward.linear.quant_linear import DequantizedLinear
from specchat.forward.llama.llama import LlamaModel
from specchat.loading.engine_memory import compute_features, memory_of_devices, planned_bytes
from specchat.loading.fitted_plan import plan_that_fits
from specchat.loading.load_engine import load_engine
from specchat.weights.tensor_files import TensorFiles
from tests.fake_gpu import fake_gpu
from tests.tiny import tiny_profile

PROFILE = tiny_profile().override(
    {"models.device": "cuda", "models.heads": [], "limits.context": 512, "limits.answer": 64}
)


def bytes_in_bf16() -> int:
    plan = plan_that_fits(PROFILE, compute_features(), memory_of_devices)
    return plan.memory().total_bytes


def test_a_target_that_does_not_fit_in_floats_is_loaded_in_8_bits_with_one_line(monkeypatch):
    monkeypatch.setattr(LlamaModel, "capture_graphs", lambda *_: None)
    needed = bytes_in_bf16()

    with fake_gpu(memory_bytes=needed - 1):
        assert planned_bytes(PROFILE)["cuda"] < needed
        engine = load_engine(PROFILE)
        assert isinstance(engine.models.target.weights.lm_head, DequantizedLinear)
        assert ["int8 weights instead of"] == [line[:23] for line in engine.models.notices[-1].split(": ")[1:]]


def test_what_a_person_chose_is_refused_before_a_byte_of_its_weights_is_read(monkeypatch):
    monkeypatch.setattr(TensorFiles, "read_rows", lambda *_: pytest.fail("weights were read"))
    needed = bytes_in_bf16()

    with fake_gpu(memory_bytes=needed - 1):
        for refused in (load_engine, planned_bytes):
            with pytest.raises(ModelError, match=r"with int8 weights instead of .* which the settings exclude"):
                refused(
                    PROFILE.override(
                        {"models.weights": "float", "models.embedding_device": "device", "models.place": "none"}
                    )
                )
