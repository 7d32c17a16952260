"""Requests and batching: what a schedule makes of given step times. The step times themselves need a guest."""

from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest

from emulator.errors import SpecError
from emulator.spec.load import load
from emulator.spec.model import Model
from emulator.spec.shipped import resolve
from emulator.study.batching import BATCHINGS, Batching, Server, Speculation, play
from emulator.study.requests import Range, Request, draw, read
from emulator.study.serve import read_bytes


def step_ns(tokens: int, sequences: int) -> int:
    """100 for a step, and 1 for each token."""
    assert 1 <= sequences <= tokens
    return 100 + tokens


def test_one_request_takes_its_prompt_and_its_steps() -> None:
    for how in BATCHINGS:
        played = play(how, [Request(1000, 100, 4)], Server(8, 64), step_ns)
        (one,) = played.served
        # The prompt: 64 tokens, then 36 in a step filled up to 48. It yields the first token; three steps the others.
        assert one.first_ns == 1000 + 164 + 148
        assert one.end_ns == one.first_ns + 3 * 101
        assert (played.steps, played.filled) == (3, 1.0)


def test_continuous_gives_a_place_away_at_once_and_static_at_the_end() -> None:
    short, long, late = Request(0, 16, 3), Request(0, 16, 11), Request(10, 16, 2)
    ends = {
        how: [one.end_ns for one in play(how, [short, long, late], Server(2, 64), step_ns).served] for how in BATCHINGS
    }
    prompts = 2 * 116
    # Two steps of two; then the late one's prompt, a step of two with it, and seven of one.
    assert ends["continuous"] == [
        prompts + 2 * 102,
        prompts + 2 * 102 + 116 + 102 + 7 * 101,
        prompts + 2 * 102 + 116 + 102,
    ]
    # Ten steps of two, eight of them with a place that stands empty; then the late one alone.
    assert ends["static"] == [prompts + 2 * 102, prompts + 10 * 102, prompts + 10 * 102 + 116 + 101]


def test_a_static_batch_waits_for_nobody_and_takes_who_waits() -> None:
    requests = [Request(0, 16, 2), Request(1, 16, 2), Request(2, 16, 2)]
    played = play("static", requests, Server(8, 64), step_ns)
    first, second, third = played.served
    assert first.end_ns == 116 + 101
    assert second.first_ns == first.end_ns + 116
    assert third.first_ns == second.first_ns + 116, "both that waited are in the second batch"
    assert second.end_ns == third.end_ns


@pytest.mark.parametrize("how", BATCHINGS)
@pytest.mark.parametrize("speculation", [Speculation(), Speculation(3, 0.7, 5)])
def test_all_are_served_in_full_within_the_places(how: Batching, speculation: Speculation) -> None:
    requests = draw(200, 2e6, Range(1, 100), Range(1, 50), seed=3)
    widest = 0

    def step(tokens: int, sequences: int) -> int:
        nonlocal widest
        widest = max(widest, sequences)
        return step_ns(tokens, sequences)

    played = play(how, requests, Server(6, 32, speculation, 3), step)
    assert sorted(one.request for one in played.served) == sorted(requests)
    assert widest == 6
    for one in played.served:
        assert one.request.arrival_ns < one.first_ns <= one.end_ns
        assert (one.first_ns == one.end_ns) == (one.request.output_tokens == 1)
    assert play(how, requests, Server(6, 32, speculation, 3), step_ns) == played, "the same seed, the same figures"


def test_guesses_bring_what_probability_says() -> None:
    def steps(acceptance: float) -> int:
        server = Server(1, 64, Speculation(4, acceptance, 7), 1)
        return play("continuous", [Request(0, 16, 10_001)], server, step_ns).steps

    assert steps(0.0) == 10_000
    assert steps(1.0) == 2_000
    # 1 + a + a^2 + a^3 + a^4 tokens for each step.
    assert steps(0.5) == pytest.approx(10_000 / 1.9375, rel=0.03)


def test_requests_are_a_poisson_process_of_the_seed() -> None:
    requests = draw(20_000, 50.0, Range(10, 20), Range(5, 5), seed=1)
    gaps = [(later.arrival_ns - earlier.arrival_ns) / 1e9 for earlier, later in pairwise(requests)]
    assert mean(gaps) == pytest.approx(1 / 50, rel=0.03)
    assert sum(gap > 1 / 50 for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.02)
    assert {request.prompt_tokens for request in requests} == set(range(10, 21))
    assert {request.output_tokens for request in requests} == {5}
    assert requests == draw(20_000, 50.0, Range(10, 20), Range(5, 5), seed=1)
    assert requests != draw(20_000, 50.0, Range(10, 20), Range(5, 5), seed=2)


def test_a_trace_is_read_and_sorted(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("arrival_s,prompt_tokens,output_tokens\n0.5,10,20\n\n0.25,30,40\n")
    assert read(file) == (Request(250_000_000, 30, 40), Request(500_000_000, 10, 20))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "trace.csv:1: the columns are missing; write arrival_s,prompt_tokens,output_tokens"),
        ("a,b\n1,2\n", "trace.csv:1: the columns are a, b; write"),
        ("arrival_s,prompt_tokens,output_tokens\n", "holds no request"),
        ("arrival_s,prompt_tokens,output_tokens\n1,2\n", "trace.csv:2: '1,2' is no request; write for example"),
        ("arrival_s,prompt_tokens,output_tokens\n1,2,3\nnan,2,3\n", "trace.csv:3: arrival_s nan is out of bounds"),
        ("arrival_s,prompt_tokens,output_tokens\n1,0,3\n", "trace.csv:2: prompt_tokens 0 is out of bounds"),
        ("arrival_s,prompt_tokens,output_tokens\n1,1.5,3\n", "trace.csv:2: '1,1.5,3' is no request"),
    ],
)
def test_a_bad_trace_names_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(SpecError, match=message.replace("(", r"\(")):
        read(file)
    with pytest.raises(SpecError, match="name a file that can be read"):
        read(tmp_path / "none.csv")


@pytest.mark.parametrize("text", ["", "a", "0..4", "5..4", "1..2..3", "1..10000000"])
def test_a_bad_range_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="write "):
        Range.parse(text)


def test_a_step_reads_each_expert_once() -> None:
    model = load(resolve("model", "deepseek-v3"), Model)
    assert read_bytes(model, 1) == model.read_bytes
    sizes = [read_bytes(model, tokens) for tokens in (1, 2, 4, 64, 100_000)]
    assert sizes == sorted(sizes)
    assert sizes[1] < 2 * sizes[0]
    # In the end all: what a token reads, and all experts that it does not.
    assert sizes[-1] == pytest.approx(model.read_bytes + model.parameters - model.active)
    dense = load(resolve("model", "llama-3-70b"), Model)
    assert read_bytes(dense, 64) == dense.read_bytes
