"""Crafted model files: valid safetensors with a valid digest, but changed JSON inside."""

import json
import random
from itertools import chain

from livi.posterior.storage import file

NUMBERS = (-1, 0, 1, 7, 10**6, 10**9, 10**12, 2**63, 10**30, 0.5, -1e300)
VALUES = (None, True, *NUMBERS, "", "x", "torch.nn.Transformer", [], {})
TAGGED = (
    {"tuple": [10**9]},
    {"float": "zz"},
    {"float": "00"},
    {"dtype": "float16"},
    {"dtype": "nothing"},
    {"tensor": "nowhere"},
    {"tensor": {"shape": [10**6, 10**6], "dtype": {"dtype": "float64"}}},
    {"class": "torch.nn.Transformer"},
    {"class": "Posterior"},
    {"object": {"class": "Affine", "arguments": {"latent_dim": 10**6, "num_params": 10**6}}},
    {"object": {"class": "MLP", "arguments": {"latent_dim": 3, "num_params": 3, "hidden": [1] * 20_000}}},
    {"dict": [[[1], 2]]},
    {"dict": [["a"]]},
    {"a": 1, "b": 2},
)


def write_text(path, tensors, text):
    """Write the file that livi would write, with this text instead of its JSON."""
    order = (file._bytes(tensors[name]) for name in file._order(tensors))
    path.write_bytes(b"".join(map(bytes, chain([file._header(tensors, text)], order))))


def mutated(meta, rng: random.Random):
    """A copy of the JSON with one to three changes at random places."""
    changed = json.loads(json.dumps(meta))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(rng.choice(_sections(changed))))
        holder, key = rng.choice(places)
        way = rng.random()
        if way < 0.15:
            del holder[key]
        elif way < 0.5:
            holder[key] = json.loads(json.dumps(rng.choice(VALUES)))
        elif way < 0.7:
            holder[key] = json.loads(json.dumps(rng.choice(TAGGED)))
        elif way < 0.8 and isinstance(holder[key], (int, float)):
            holder[key] *= rng.choice((-1, 2, 1000, 10**9))
        elif way < 0.9 and isinstance(holder[key], list):
            holder[key] *= rng.choice((2, 50))
        else:
            other, at = rng.choice(places)
            holder[key] = json.loads(json.dumps(other.get(at) if isinstance(other, dict) else (other or [0])[-1]))
    return changed


def _sections(meta):
    """Parts to change, each equally likely: otherwise most changes would be in the history, the longest part."""
    state = meta.get("state")
    pairs = state["dict"] if isinstance(state, dict) and isinstance(state.get("dict"), list) else []
    return [part for part in ([meta], *([value] for value in meta.values()), *pairs) if list(_places(part))]


def _places(value):
    """All containers with each of their keys or indices, at every depth."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(pairs):
        yield value, key
        yield from _places(item)
