"""Whatever the user has, as tensors and batches of (inputs, targets)."""

from livi.model.data.augment import Augment, CropFlip
from livi.model.data.batches import MINIBATCH, TARGET_KEYS, Batch, Unpack, default_unpack, holds_batches, input_batches
from livi.model.data.conversion import as_tensor, as_tensors, to_tensor
from livi.model.data.gather import NotGatheredError, check_size, gathered
from livi.model.data.loaders import LoaderData
from livi.model.data.parts import Part
from livi.model.data.shapes import shapes_in_words
from livi.model.data.training import (
    FULL_BATCH,
    Data,
    TensorData,
    as_data,
    epoch_seed,
    remaining_batches,
    some_inputs,
)

__all__ = [
    "FULL_BATCH",
    "MINIBATCH",
    "TARGET_KEYS",
    "Augment",
    "Batch",
    "CropFlip",
    "Data",
    "LoaderData",
    "NotGatheredError",
    "Part",
    "TensorData",
    "Unpack",
    "as_data",
    "as_tensor",
    "as_tensors",
    "check_size",
    "default_unpack",
    "epoch_seed",
    "gathered",
    "holds_batches",
    "input_batches",
    "remaining_batches",
    "shapes_in_words",
    "some_inputs",
    "to_tensor",
]
