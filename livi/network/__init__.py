"""Any nn.Module as a function of one flat parameter vector theta: the only place that calls functional_call."""

from livi.network.cost import multiplications, suitable_strategy
from livi.network.evaluation import Loop, Strategy, Vmap, apply_many, as_call
from livi.network.modes import all_batch_norms
from livi.network.parameters import Layout, as_layout
from livi.network.scaling import InputScaling
from livi.network.slots import Group, Slot
from livi.network.statistics import estimate_statistics, record_statistics

__all__ = [
    "Group",
    "InputScaling",
    "Layout",
    "Loop",
    "Slot",
    "Strategy",
    "Vmap",
    "all_batch_norms",
    "apply_many",
    "as_call",
    "as_layout",
    "estimate_statistics",
    "multiplications",
    "record_statistics",
    "suitable_strategy",
]
