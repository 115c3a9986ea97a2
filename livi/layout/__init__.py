"""Any nn.Module as a function of one flat parameter vector theta: the only place that calls functional_call."""

from livi.layout.cost import multiplications, suitable_strategy
from livi.layout.evaluation import Loop, Strategy, Vmap, apply_many, record_statistics
from livi.layout.parameters import Group, Layout, Slot
from livi.layout.statistics import as_call, estimate_statistics, has_batch_norm

__all__ = [
    "Group",
    "Layout",
    "Loop",
    "Slot",
    "Strategy",
    "Vmap",
    "apply_many",
    "as_call",
    "estimate_statistics",
    "has_batch_norm",
    "multiplications",
    "record_statistics",
    "suitable_strategy",
]
