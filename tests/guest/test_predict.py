"""Predictions as a person asks for them: exact bytes, and a fit that meets what it was fitted on."""

import pytest

from tests.guest.test_commands import Emu, emu, result, state

__all__ = ["emu", "state"]


def test_bytes_of_distributed_llama_are_the_published_ones(emu: Emu) -> None:
    found = result(emu("predict", "distributed-llama", "r1-distill-8b", "switch4-gbe", "--json"))
    assert found["bytes_per_token"]["n0"] == {"sent": 884_736, "received": 1_220_352}
    assert found["compute_time_ns"] + found["communication_time_ns"] == found["token_time_ns"]


def test_a_fit_meets_its_points_and_the_cost_is_slept_for_each_all_reduce(emu: Emu) -> None:
    call = ("predict", "exo-tensor", "qwen3-235b", "mesh4-tb5-rdma-measured", "--nodes", "2", "--json")
    fitted = result(emu(*call, "--fit", "1=19.5", "--fit", "2=26.2"))
    assert fitted["tokens_per_second"] == pytest.approx(26.2, rel=1e-4)
    assert [abs(one["error"]) < 1e-4 for one in fitted["fitted"]] == [True, True]
    free = result(emu(*call, "--efficiency", repr(fitted["efficiency"])))
    assert fitted["token_time_ns"] - free["token_time_ns"] == pytest.approx(188 * fitted["free_cost_ns"], rel=1e-3)


@pytest.mark.parametrize("engine", ["exo-pipeline", "mlx-ring", "vllm-tp", "llama.cpp-rpc"])
def test_every_other_engine_runs(emu: Emu, engine: str) -> None:
    found = result(emu("predict", engine, "llama-3-70b", "mesh4-tb5-rdma", "--json"))
    assert 0 < found["communication_time_ns"] < found["token_time_ns"]
    assert found["assumptions"]
    assert found["free_cost_ns"] == 0
