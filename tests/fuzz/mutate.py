"""Inputs: random bytes, shipped files with bytes changed, and shipped YAML with its structure changed."""

import copy
import random
from typing import Any

import yaml
from hypothesis import strategies as st

from tests.fuzz.targets import seeds

VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 10**18, 10**30, -(10**400), 1e308, float("inf"), float("nan"), 0.5, "", "x", "é"),
    *("\x00", "\ud7ff", "a" * 5000, "0us", "-1us", "300us", "1e400us", "9" * 40 + "us", "99999999999h", "1e-30ns"),
    *("80Gbit/s", "0bit/s", "9999999999999Gbit/s", "1B", "9999999TiB", "0%", "101%", "nan%", "inf", "nan", "12abc"),
    *("../../../etc/passwd", "/dev/zero", "n0", "n0-n1", "full-mesh", "*", "{}", "%s", "-", "no", "1:30", "2024-01-01"),
    *([], {}, [[]], [{}], {"": ""}, {"x": {"y": []}}, [1, 2, 3], ["n0", "n1"], [None], {"count": 10**9, "prefix": "n"}),
]
"""What a value is replaced by."""

WORDS = [
    *(
        b"\x00",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\n",
        b"\t",
        b": ",
        b"- ",
        b"---\n",
        b"&a ",
        b"*a",
        b"!!python/name:os.system ",
    ),
    *(b"[", b"]", b"{", b"}", b"'", b'"', b"|", b">", b"%", b"@", b"`", b"?", b"#", b"<<: *a\n", b"9" * 30, b"1e999"),
    *(b"\\ud800", b"\\u0000", b"null", b"NaN", b"Infinity", b"-", b".", b",", b"\r", b"\x1b[2J", b"\xf0\x9f\x92\xa5"),
]
"""What is written into the bytes."""


def _levels(item: str, join: str) -> bytes:
    lines = [f"a: &a [{', '.join(['x'] * 9)}]"]
    lines += [f"{chr(98 + i)}: &{chr(98 + i)} {item.format(join.join([f'*{chr(97 + i)}'] * 9))}" for i in range(20)]
    return "\n".join(lines).encode()


BOMBS = [
    _levels("[{}]", ", "),
    b"a: &a {x: 1}\n" + b"".join(b"b%d: {<<: [*a, *a, *a]}\n" % i for i in range(2000)),
    b"[" * 100_000,
    b"{" * 100_000,
    b'{"a":' * 100_000,
    b"[" * 50_000 + b"]" * 50_000,
    b"x: " + b"9" * 900_000,
    b"schema_version: " + b"9" * 5_000,
    b'{"schema_version": ' + b"9" * 100_000 + b"}",
    b'{"hidden_size": ' + b"9" * 4_000 + b"}",
    b"name: x\ndescription: d\nnodes: [{count: 999999999, prefix: n}]\nplanes: {a: {shape: ring, profile: ring}}\n",
    b"name: x\ndescription: d\nnodes: [{count: 5000, prefix: n}]\nplanes:\n  a: {shape: full-mesh, "
    b"profile: thunderbolt5-rdma}\n",
    b"arrival_s,prompt_tokens,output_tokens\n" + b"1,1,1\n" * 150_000,
    b"arrival_s,prompt_tokens,output_tokens\n" + b"9" * 200_000 + b",1,1\n",
    b'"' + b"x" * 900_000,
    b"\xdc\xff\xff" * 100_000,
    b"\xdd\xff\xff\xff\xff" * 10_000,
    b"\x91" * 100_000,
    b"\xc6\xff\xff\xff\xff",
    b"\x00" * 1_000_000,
    b"# " + b"x" * 5_000_000,
]
"""Small inputs that ask for much: expansion, depth, large numbers, counts, lengths."""


def bytes_changed(data: bytes, chance: random.Random) -> bytes:
    """A few bytes, words or stretches put in, left out, doubled or replaced."""
    held = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        start = chance.randint(0, len(held))
        end = min(start + chance.choice((0, 1, 1, 4, 30, 300)), len(held))
        match chance.randrange(5):
            case 0:
                held[start:end] = chance.choice(WORDS)
            case 1:
                del held[start:end]
            case 2:
                held[start:start] = held[start:end]
            case 3:
                held[start:end] = chance.randbytes(end - start)
            case _:
                other = chance.randint(0, len(held))
                held[start:end] = held[other : other + end - start]
    return bytes(held)


def structure_changed(data: bytes, chance: random.Random) -> bytes:
    """The same YAML with values replaced, keys renamed, left out, or moved to where they do not belong."""
    tree = yaml.safe_load(data)
    for _ in range(chance.randint(1, 5)):
        places = list(_places(tree))
        if not places:
            break
        holder, key = chance.choice(places)
        match chance.randrange(6):
            case 0 | 1 | 2:
                holder[key] = copy.deepcopy(chance.choice(VALUES))
            case 3:
                other, there = chance.choice(places)
                holder[key] = copy.deepcopy(other[there])
            case 4:
                del holder[key]
            case _:
                if isinstance(holder, list):
                    holder.append(copy.deepcopy(holder[key]))
                else:
                    holder[chance.choice(["x", "name", "nodes", "profile", "delay", "count"])] = holder.pop(key)
    text: str = yaml.safe_dump(
        tree, sort_keys=False, allow_unicode=True, default_flow_style=chance.choice((None, True))
    )
    return text.encode("utf-8", "surrogatepass")


def _places(tree: Any, depth: int = 0) -> Any:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in list(items):
        yield tree, key
        if depth < 12:
            yield from _places(child, depth + 1)


def mutated(name: str, chance: random.Random) -> bytes:
    """One input for a target."""
    data = chance.choice(seeds(name))
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(300))
    if name not in ("wire", "recording", "requests", "journal") and chance.random() < 0.6:
        return structure_changed(data, chance)
    return bytes_changed(data, chance)


def inputs(name: str) -> st.SearchStrategy[bytes]:
    """The same for hypothesis, which begins with small ones."""
    return st.binary(max_size=200) | st.randoms(use_true_random=False).map(lambda chance: mutated(name, chance))
