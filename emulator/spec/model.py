"""A model as its card says it: layers, sizes, parameters. From them: bytes moved and time computed for each token.

Generating is bound by memory: each token reads all weights that are active for it, once, and the keys and values of the
tokens before it. Reading a prompt is bound by arithmetic: two operations for each active parameter and token.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from emulator.spec.load import Document, Mistakes, Part
from emulator.spec.profile import Text
from emulator.spec.units import Quantity

NS_PER_S = 1_000_000_000

DECODE_EFFICIENCY = 0.55
"""Share of a node's memory bandwidth that generating reaches. Derived: 19.5 tokens/s of Qwen3-235B, 8-bit weights with
their scales (22.7 GB read for each token), on one Mac Studio M3 Ultra of 819 GB/s are 54 %; with llama.cpp, 20.4
tokens/s, 57 %. Source: charts in github.com/exo-explore/exo, docs/benchmarks/jeffgeerling."""

BITS_UNIT = 32
"""Precisions are held in 32nds of a bit: with a scale for each 32 values there are half bits (q80, 34 bytes: 8.5)."""


class _Bits(Quantity):
    def base_text(self, value: int) -> str:
        return f"{value / BITS_UNIT:.5f}".rstrip("0").rstrip(".") + "bit"


BITS = _Bits("a precision", {"bit": BITS_UNIT}, "32nds of a bit", "1bit", "64bit", ("16bit", "8.5bit"))

Bits = Annotated[int, BITS]
"""32nds of a bit for each value."""
Count = Annotated[int, Field(ge=1, le=10**15)]


class Precisions(Part):
    """Bits of each value, with what its scales take: 8-bit weights in groups with 16-bit scales are 8.5bit."""

    attention: Bits
    experts: Bits
    """Of the experts, and of the dense layers in their place."""
    embeddings: Bits
    """Of the embedding and of the output head."""
    kv: Bits = 16 * BITS_UNIT
    """Of keys and values."""


class Model(Document):
    """A model card. Counts have no unit."""

    name: Text
    """The file's name without `.yaml`."""
    description: Text
    layers: Count
    dense_layers: Annotated[int, Field(ge=0)] | None = None
    """Layers without experts; left out: all where there are no experts, none where there are."""
    hidden_size: Count
    heads: Count
    kv_heads: Count | None = None
    """Left out: as many as heads."""
    head_dim: Count | None = None
    """Left out: hidden_size / heads."""
    vocabulary: Count
    tied_embeddings: bool = False
    """The output head is the embedding."""
    intermediate_size: Count | None = None
    """Of a dense layer."""
    expert_intermediate_size: Count | None = None
    experts: Annotated[int, Field(ge=0)] = 0
    """That tokens are routed to, in each layer with experts."""
    shared_experts: Annotated[int, Field(ge=0)] = 0
    """That see every token."""
    experts_per_token: Annotated[int, Field(ge=0)] = 0
    parameters: Count
    active_parameters: Count | None = None
    """For one token, embeddings included; left out, without experts: all."""
    attention_parameters: Count | None = None
    """Of one layer; left out: of grouped-query attention with these heads."""
    kv_values: Count | None = None
    """Held for one token in one layer; left out: 2 kv_heads head_dim (latent attention holds fewer)."""
    precision: Precisions
    source: Text

    @property
    def active(self) -> int:
        return self.active_parameters or self.parameters

    @property
    def width(self) -> int:
        """Of one head."""
        return self.head_dim or self.hidden_size // self.heads

    @property
    def attention_total(self) -> int:
        """Parameters of all attention layers."""
        groups = self.kv_heads or self.heads
        return self.layers * (self.attention_parameters or 2 * self.hidden_size * self.width * (self.heads + groups))

    @property
    def embedding(self) -> int:
        """Parameters of the embedding, or of the head."""
        return self.vocabulary * self.hidden_size

    @property
    def embeddings_total(self) -> int:
        return self.embedding * (1 if self.tied_embeddings else 2)

    @property
    def weight_bytes(self) -> int:
        """Of all weights: what a cluster must hold."""
        rest = self.parameters - self.attention_total - self.embeddings_total
        return self._layer_bytes(rest) + _bytes(self.embeddings_total, self.precision.embeddings)

    @property
    def layer_read_bytes(self) -> int:
        """Weights of all layers that one generated token reads."""
        return self._layer_bytes(self.active - self.attention_total - self.embeddings_total)

    @property
    def head_read_bytes(self) -> int:
        """Weights of the output head. Of the embedding, a token reads one row, which is not counted."""
        return _bytes(self.embedding, self.precision.embeddings)

    @property
    def read_bytes(self) -> int:
        """Weights that one generated token reads."""
        return self.layer_read_bytes + self.head_read_bytes

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one token in all layers."""
        values = self.kv_values or 2 * (self.kv_heads or self.heads) * self.width
        return _bytes(self.layers * values, self.precision.kv)

    def decode_ns(self, bandwidth: int, *, efficiency: float = DECODE_EFFICIENCY, context: int = 0) -> int:
        """Time to generate one token on one node of `bandwidth` bytes/s, of which `efficiency` is reached, after
        `context` tokens. Compute for n nodes: a share of it each."""
        return round((self.read_bytes + context * self.kv_bytes) * NS_PER_S / (bandwidth * efficiency))

    def prefill_ns(self, tokens: int, flops: float, bandwidth: int, *, efficiency: float = DECODE_EFFICIENCY) -> int:
        """Time to read a prompt of `tokens` on one node of `flops` operations/s (those it reaches): two for each active
        parameter and token, and no less than the weights, each read once, take. Attention's own operations are left
        out: they count for prompts longer than hidden_size."""
        experts_read = min(self.parameters, self.active * tokens)
        read = self.read_bytes * experts_read / self.active
        return round(max(2 * self.active * tokens / flops, read / (bandwidth * efficiency)) * NS_PER_S)

    def activation_bytes(self, sequence: int, batch: int = 1, *, checkpointing: bool = False) -> int:
        """What a training step of 16-bit activations keeps for the backward pass, in all layers together.

        s b h (34 + 5 a s / h) bytes for each layer of s tokens, b sequences, hidden size h and a heads; with full
        checkpointing its input alone, 2 s b h (Korthikanti et al. 2022, arXiv:2205.05198, equation 2 and section 5).
        Of dense transformers: what experts keep besides is left out.
        """
        tokens = sequence * batch
        if checkpointing:
            return self.layers * 2 * tokens * self.hidden_size
        return self.layers * tokens * (34 * self.hidden_size + 5 * self.heads * sequence)

    def _layer_bytes(self, rest: int) -> int:
        """Of attention, and `rest` parameters of experts and dense layers."""
        return _bytes(self.attention_total, self.precision.attention) + _bytes(rest, self.precision.experts)

    @model_validator(mode="after")
    def _check(self) -> Self:
        found = []
        if self.experts and not 1 <= self.experts_per_token <= self.experts:
            found.append(
                (("experts_per_token",), f"is not within the {self.experts} experts; write 1 to {self.experts}")
            )
        if not self.experts and (self.experts_per_token or self.shared_experts):
            found.append((("experts",), "is missing, and experts are named; write how many there are in a layer"))
        if self.experts and self.active_parameters is None:
            found.append((("active_parameters",), "is missing; with experts, write how many are active for a token"))
        if self.dense_layers is not None and self.dense_layers > self.layers:
            found.append((("dense_layers",), f"are more than the {self.layers} layers; write at most {self.layers}"))
        if self.active > self.parameters:
            found.append((("active_parameters",), f"are more than all; write at most {self.parameters}"))
        if not found and self.attention_total + self.embeddings_total > self.active:
            message = (
                f"attention ({self.attention_total}) and embeddings ({self.embeddings_total}) alone are more; check "
                "them, or write attention_parameters (of one layer)"
            )
            found.append((("active_parameters" if self.active_parameters else "parameters",), message))
        if found:
            raise Mistakes(*found)
        return self


def _bytes(values: int, bits: int) -> int:
    """Rounded up to whole bytes."""
    return -(-values * bits // (8 * BITS_UNIT))
