"""Posteriors and checkpoints in single safetensors files: written atomically, readable anywhere, without pickle."""

from livi.posterior.storage.file import StorageError, read, replace_file, write
from livi.posterior.storage.posteriors import (
    SAVE_OPTIONS,
    LoadedParts,
    Saveable,
    load_parts,
    moved,
    save_posterior,
)
from livi.posterior.storage.state import flatten_state, read_checkpoint, unflatten_state, write_checkpoint

__all__ = [
    "SAVE_OPTIONS",
    "LoadedParts",
    "Saveable",
    "StorageError",
    "flatten_state",
    "load_parts",
    "moved",
    "read",
    "read_checkpoint",
    "replace_file",
    "save_posterior",
    "unflatten_state",
    "write",
    "write_checkpoint",
]
