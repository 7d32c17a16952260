"""From a `config.json`, as it is published with a model's weights, to a model card.

Its names differ from family to family; those looked for are in `NAMES`. A config counts no parameters: they are added
up from its sizes, without norms and biases, which are less than a thousandth.
"""

import json
from pathlib import Path
from typing import Any

from emulator.errors import SpecError
from emulator.spec.load import parse
from emulator.spec.model import BITS, BITS_UNIT, Model
from emulator.spec.tree import read

NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "vocabulary": ("vocab_size",),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim"),
    "expert_intermediate_size": ("moe_intermediate_size",),
    "experts": ("n_routed_experts", "num_experts", "num_local_experts"),
    "shared_experts": ("n_shared_experts",),
    "experts_per_token": ("num_experts_per_tok",),
    "dense_layers": ("first_k_dense_replace",),
}
REQUIRED = ("layers", "hidden_size", "heads", "vocabulary")
UNGATED = ("gelu", "gelu_new", "gelu_fast", "relu")
"""Activations of feed-forward layers of two matrices; all others have three."""
DTYPES = {"float32": 32, "bfloat16": 16, "float16": 16, "float8_e4m3fn": 8}


def import_config(path: Path, name: str, precision: int | None = None) -> tuple[str, Model]:
    """The text of a model card called `name`, and the card, of the `config.json` at `path`.

    `precision` (32nds of a bit) is that of all weights; None: as the config says. Raises SpecError that names what is
    missing.
    """
    try:
        config = json.loads(read(path))
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: is not JSON: {error}; give a config.json as published with a model") from None
    if isinstance(config, dict) and isinstance(config.get("text_config"), dict):
        # A model that sees, too: its language part.
        config = config["text_config"]
    if not isinstance(config, dict):
        raise SpecError(f"{path}: holds no object; give a config.json as published with a model")
    found = _sizes(path, config)
    bits = precision or _precision(path, config)
    card = _card(path, config, found, name, bits)
    return card, parse(card, f"{path} as a model card", Model)


def _sizes(path: Path, config: dict[str, Any]) -> dict[str, int]:
    """The sizes by our names. Raises SpecError that names all that are missing or no numbers."""
    found: dict[str, int] = {}
    faults = []
    for ours, theirs in NAMES.items():
        for key in theirs:
            if config.get(key) is not None:
                if type(config[key]) is not int or config[key] < 0:
                    faults.append(f"`{key}` is {str(config[key])[:40]!r}, not a whole number")
                else:
                    found[ours] = config[key]
                break
        else:
            if ours in REQUIRED:
                faults.append(f"`{theirs[0]}` is missing")
    if found.get("experts"):
        faults += [f"`{NAMES[key][0]}` is missing" for key in ("experts_per_token",) if key not in found]
    if not found.get("experts") and "intermediate_size" not in found:
        if config.get("model_type") == "gpt2" and "hidden_size" in found:
            found["intermediate_size"] = 4 * found["hidden_size"]
        else:
            faults.append("`intermediate_size` is missing")
    if config.get("kv_lora_rank"):
        faults += [f"`{key}` is missing" for key in LATENT if type(config.get(key)) is not int and key != "q_lora_rank"]
    if faults:
        raise SpecError(f"{path}: {'; '.join(faults)}; add to the file what is missing")
    return found


def _precision(path: Path, config: dict[str, Any]) -> int:
    """In 32nds of a bit. Raises SpecError where the config does not say."""
    advice = "give it with --precision, for example --precision 4.5bit"
    quantised = config.get("quantization") or config.get("quantization_config")
    if isinstance(quantised, dict):
        if type(bits := quantised.get("bits")) is int and 1 <= bits <= 16:
            group = quantised.get("group_size")
            # A scale and an offset of 16 bits for each group.
            return bits * BITS_UNIT + (32 * BITS_UNIT // group if type(group) is int and group > 0 else 0)
        if quantised.get("quant_method") == "fp8":
            return 8 * BITS_UNIT
        raise SpecError(f"{path}: its quantisation names no bits; {advice}")
    dtype = config.get("torch_dtype") or config.get("dtype")
    if dtype not in DTYPES:
        what = "`torch_dtype` is missing" if dtype is None else f"the type {str(dtype)[:40]!r} is not known"
        raise SpecError(f"{path}: {what}; {advice}")
    return DTYPES[dtype] * BITS_UNIT


LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def _card(path: Path, config: dict[str, Any], found: dict[str, int], name: str, bits: int) -> str:
    hidden, layers, heads = found["hidden_size"], found["layers"], found["heads"]
    width = found.get("head_dim") or hidden // heads
    attention = 2 * hidden * width * (heads + found.get("kv_heads", heads))
    extra: dict[str, int] = {}
    if config.get("kv_lora_rank"):
        q_rank, kv_rank, nope, rope, value = (config.get(key) or 0 for key in LATENT)
        queries = heads * (nope + rope)
        attention = (
            (hidden * q_rank + q_rank * queries if q_rank else hidden * queries)
            + hidden * (kv_rank + rope)
            + kv_rank * heads * (nope + value)
            + heads * value * hidden
        )
        extra = {"attention_parameters": attention, "kv_values": kv_rank + rope}
    matrices = 2 if config.get("hidden_act", config.get("activation_function")) in UNGATED else 3

    def feed(size: int) -> int:
        return matrices * hidden * size

    experts, shared = found.get("experts", 0), found.get("shared_experts", 0)
    dense = found.get("dense_layers", 0) if experts else layers
    expert = feed(found.get("expert_intermediate_size") or found.get("intermediate_size", 0))
    tied = bool(config.get("tie_word_embeddings", config.get("model_type") == "gpt2"))
    common = found["vocabulary"] * hidden * (1 if tied else 2) + layers * attention
    common += dense * feed(found.get("intermediate_size", 0)) + (layers - dense) * hidden * experts
    total = common + (layers - dense) * expert * (experts + shared)
    active = common + (layers - dense) * expert * (found.get("experts_per_token", 0) + shared)
    if not experts:
        found = {key: size for key, size in found.items() if "expert" not in key and key != "dense_layers"}
    lines = {"name": json.dumps(name), "description": json.dumps(f"From the {path.name} of {name}.")}
    lines |= {key: str(size) for key, size in found.items() if not (extra and key in ("kv_heads",))}
    lines |= {key: str(size) for key, size in extra.items()}
    lines |= {"tied_embeddings": "true"} if tied else {}
    lines |= {"parameters": str(total)} | ({"active_parameters": str(active)} if experts else {})
    each = BITS.format(bits)
    lines["precision"] = f"{{attention: {each}, experts: {each}, embeddings: {each}, kv: 16bit}}"
    lines["source"] = json.dumps(f"{path.name}; parameters added up from it")
    return "".join(f"{key}: {value}\n" for key, value in lines.items())
