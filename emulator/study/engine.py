"""Engines: how each splits a model over nodes and what its nodes send, as published; from that to a program.

To add one: a function that gives a `Split`, and a line in `ENGINES`.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from emulator.errors import SpecError
from emulator.plan.model import Plan
from emulator.spec.load import suggest
from emulator.spec.model import NS_PER_S, Model
from emulator.spec.workload import Workload
from emulator.workload.connection import Direction
from emulator.workload.program import Program, program

Per = Literal["all-reduce", "message"]


class Split(NamedTuple):
    """What an engine makes of a model on some nodes."""

    pattern: str
    parameters: dict[str, int | str]
    payload_bytes: int
    layers: tuple[float, ...]
    """Share of the layers' weights on each node."""
    head: tuple[float, ...]
    """Share of the output head on each node."""
    collectives: int
    """All-reduces, or all-gathers, of each token, one after the other; 0 where nodes compute one after the other."""
    assumptions: tuple[str, ...]


class Engine(NamedTuple):
    description: str
    split: Callable[[Model, tuple[int, ...]], Split]
    """Of a model on nodes with these bytes of memory (0: not known)."""
    cost_per: Per
    """What the one cost is per that no cable and no model accounts for, unless a person says otherwise."""
    source: str


class Job(NamedTuple):
    """A program with what was assumed of it."""

    program: Program
    compute_ns: int
    """On the critical path of a token, without the free cost."""
    split: Split


STATE_BITS = 16
"""Of each value of a hidden state between nodes; distributed-llama: 32."""


def job(
    name: str,
    model: Model,
    plan: Plan,
    nodes: int,
    *,
    efficiency: float,
    context: int,
    free_cost_ns: int,
    per: Per,
    tokens: int,
    warmup_tokens: int = 2,
) -> Job:
    """What the engine `name` does with `model` on the first `nodes` nodes of a plan; `free_cost_ns` is slept before
    each all-reduce, or by the sender before each message. Raises SpecError, with what is missing, where it does not
    fit."""
    engine = find(name)
    members = plan.computing[:nodes]
    split = engine.split(model, tuple(node.memory_bytes for node in members))
    _check_memory(model, plan, split, nodes, context)
    times = tuple(
        _compute_ns(model, plan, index, layers, head, efficiency, context)
        for index, (layers, head) in enumerate(zip(split.layers, split.head, strict=True))
    )
    workload = Workload.model_validate(
        {
            "name": f"{name}, {model.name}",
            "description": engine.description,
            "pattern": split.pattern,
            "parameters": split.parameters,
            "payload": f"{split.payload_bytes}B",
            "nodes": tuple(node.name for node in members),
            "tokens": tokens,
            "warmup_tokens": warmup_tokens,
        }
    )
    made = program(plan, workload)
    extra = free_cost_ns * split.collectives if per == "all-reduce" else 0
    made = msgspec.structs.replace(made, compute_ns=tuple(time + extra for time in times))
    if per == "message":
        made = msgspec.structs.replace(
            made,
            connections=tuple(
                msgspec.structs.replace(
                    link, a_to_b=_dearer(link.a_to_b, free_cost_ns), b_to_a=_dearer(link.b_to_a, free_cost_ns)
                )
                for link in made.connections
            ),
        )
    return Job(made, path_ns(split, times), split)


def compute_ns(model: Model, plan: Plan, name: str, nodes: int, efficiency: float, context: int) -> int:
    """Compute time on the critical path of a token. Raises SpecError where the model does not fit the nodes."""
    split = find(name).split(model, tuple(node.memory_bytes for node in plan.computing[:nodes]))
    _check_memory(model, plan, split, nodes, context)
    shares = enumerate(zip(split.layers, split.head, strict=True))
    return path_ns(split, tuple(_compute_ns(model, plan, i, *share, efficiency, context) for i, share in shares))


def path_ns(split: Split, times: tuple[int, ...]) -> int:
    """Compute on the critical path: nodes that share each layer compute at once, others one after the other."""
    return max(times) if split.collectives else sum(times)


def find(name: str) -> Engine:
    """The engine of that name. Raises SpecError with what it may have meant."""
    if name not in ENGINES:
        raise SpecError(f"unknown engine `{name[:100]}`; {suggest(name, ENGINES)}")
    return ENGINES[name]


def _compute_ns(
    model: Model, plan: Plan, index: int, layers: float, head: float, efficiency: float, context: int
) -> int:
    node = plan.computing[index]
    if not node.memory_bandwidth_bytes_per_s:
        raise SpecError(
            f"topology {plan.topology}: node {node.name} has no memory bandwidth, from which compute time comes; "
            "write for example `memory_bandwidth: 819GB/s`"
        )
    read = layers * (model.layer_read_bytes + context * model.kv_bytes) + head * model.head_read_bytes
    return round(read * NS_PER_S / (node.memory_bandwidth_bytes_per_s * efficiency))


def _check_memory(model: Model, plan: Plan, split: Split, nodes: int, context: int) -> None:
    need = model.weight_bytes + context * model.kv_bytes
    members = plan.computing[:nodes]
    known = all(node.memory_bytes for node in members)
    if known and need > (pooled := sum(node.memory_bytes for node in members)):
        raise SpecError(
            f"{model.name} takes {need / 1e9:,.1f} GB, and {nodes} nodes of {plan.topology} have "
            f"{pooled / 1e9:,.1f} GB in all; take more nodes, or a card with fewer bits"
        )
    for node, share in zip(members, split.layers, strict=True):
        if node.memory_bytes and share * need > node.memory_bytes:
            raise SpecError(
                f"{model.name}: node {node.name} has to hold {share * need / 1e9:,.1f} GB and has "
                f"{node.memory_bytes / 1e9:,.1f} GB; take more nodes, or a card with fewer bits"
            )


def _dearer(way: Direction, cost_ns: int) -> Direction:
    return msgspec.structs.replace(way, cost_ns=way.cost_ns + cost_ns)


# What each engine does.

EVEN = "every node reads an equal share of all weights, output head included"


def _state_bytes(model: Model) -> int:
    return model.hidden_size * STATE_BITS // 8


def _tensor(model: Model, memory: tuple[int, ...], algorithm: str, times: int, *assumptions: str) -> Split:
    each = (1 / len(memory),) * len(memory)
    parameters: dict[str, int | str] = {"times": times, "algorithm": algorithm}
    return Split("tensor-parallel", parameters, _state_bytes(model), each, each, times, (EVEN, *assumptions))


def _exo_tensor(model: Model, memory: tuple[int, ...]) -> Split:
    return _tensor(model, memory, "auto", 2 * model.layers)


def _mlx_ring(model: Model, memory: tuple[int, ...]) -> Split:
    return _tensor(model, memory, "ring", 2 * model.layers)


def _vllm_tensor(model: Model, memory: tuple[int, ...]) -> Split:
    count, size = len(memory), _state_bytes(model)
    limit = {2: size, 4: 512 << 10}.get(count, 256 << 10 if count <= 8 else 0)
    algorithm = "mesh" if size <= limit else "reduce-scatter-all-gather"
    return _tensor(model, memory, algorithm, 2 * model.layers + 1, "the gather of the logits of all nodes is left out")


def _stages(memory: tuple[int, ...], layers: int) -> tuple[float, ...]:
    """Whole layers on each node, in proportion to memory where that is known; shares of all layers."""
    weights = memory if all(memory) else (1,) * len(memory)
    exact = [layers * weight / sum(weights) for weight in weights]
    counts = [int(value) for value in exact]
    for index in sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])[: layers - sum(counts)]:
        counts[index] += 1
    return tuple(count / layers for count in counts)


BY_MEMORY = "whole layers on each node, in proportion to its memory; all layers are taken as equally large"


def _exo_pipeline(model: Model, memory: tuple[int, ...]) -> Split:
    head = (0.0,) * (len(memory) - 1) + (1.0,)
    shares = _stages(memory, model.layers)
    return Split(
        "pipeline-gather", {}, _state_bytes(model), shares, head, 0, (BY_MEMORY, "the output head is on the last node")
    )


def _llama_cpp(model: Model, memory: tuple[int, ...]) -> Split:
    head = (1.0,) + (0.0,) * (len(memory) - 1)
    shares = _stages(memory, model.layers)
    assumptions = (
        BY_MEMORY,
        "the output head is on the client, the first node",
        "two round trips for each remote node and token; the bytes of the compute graph are in the free cost",
        "a hidden state of 32-bit values",
    )
    return Split("star", {}, 4 * model.hidden_size, shares, head, 0, assumptions)


def _distributed_llama(model: Model, memory: tuple[int, ...]) -> Split:
    each = (1 / len(memory),) * len(memory)
    parameters: dict[str, int | str] = {"layers": model.layers, "vocabulary": model.vocabulary}
    # As tensor parallelism computes; its exchanges are all-gathers, and what they cost is counted per message.
    return Split(
        "distributed-llama", parameters, 4 * model.hidden_size, each, each, 2 * model.layers, (EVEN, "chunks of 4096 B")
    )


EXO = "github.com/exo-explore/exo"
ENGINES: dict[str, Engine] = {
    "exo-pipeline": Engine("N - 1 sends of the hidden state, then one all-gather of it", _exo_pipeline, "message", EXO),
    "exo-tensor": Engine(
        "two all-reduces of the hidden state per layer, as MLX does them on a mesh",
        _exo_tensor,
        "all-reduce",
        f"{EXO}, github.com/ml-explore/mlx",
    ),
    "mlx-ring": Engine(
        "two all-reduces of the hidden state per layer, round a ring",
        _mlx_ring,
        "all-reduce",
        "github.com/ml-explore/mlx (ring backend)",
    ),
    "llama.cpp-rpc": Engine(
        "the client hands the state to each remote node in turn and takes it back",
        _llama_cpp,
        "message",
        "github.com/ggml-org/llama.cpp, ggml/src/ggml-rpc",
    ),
    "distributed-llama": Engine(
        "input to all, two all-gathers of q80 vectors per layer, logits to the root",
        _distributed_llama,
        "message",
        "github.com/b4rtaz/distributed-llama 0.16",
    ),
    "vllm-tp": Engine(
        "two all-reduces per layer and one of the embedding, in one phase where vLLM's own does so",
        _vllm_tensor,
        "all-reduce",
        "github.com/vllm-project/vllm, csrc/custom_all_reduce.cuh",
    ),
}
