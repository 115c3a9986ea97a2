"""The schedule of fits whose layers are all sampled."""

from __future__ import annotations

from dataclasses import replace

from livi.inference import Recipe
from livi.inference.rules import Size, default_recipe
from livi.model.data import FULL_BATCH
from livi.model.defaults import MIDDLE, SMALL
from livi.network import Layout


def quick_recipe(layout: Layout, num_rows: int, components: int) -> Recipe | None:
    """The recipe of a middle-sized network with sampled layers; None for others.

    It starts from the network's initial weights, at high rates, and is as good as a start from a MAP estimate in less
    time. Chosen on held-out training rows of three tables with classes, none of them large.
    """
    if not SMALL < layout.num_params <= MIDDLE or num_rows > FULL_BATCH:
        return None
    usual = default_recipe(Size(layout, num_rows, 1, num_rows * layout.num_params, classes=True))
    return replace(
        usual,
        steps=1000,
        map_steps=0,
        map_restarts=int(components),
        affine_rate=1e-2,
        nonlinear_rate=3e-3,
        hyper_rate=5e-2,
    )


def count_recipe(layout: Layout, num_rows: int, components: int) -> Recipe | None:
    """The recipe of a network for counts: `quick_recipe`, and for a small one fewer steps and samples than usual.

    A quarter of the time at about the same log scores, by `python -m benchmarks.choose_counts`
    (docs/benchmarks/choices-tables.md).
    """
    if layout.num_params > SMALL or num_rows > FULL_BATCH:
        return quick_recipe(layout, num_rows, components)
    return Recipe(steps=2000, map_steps=1000, map_restarts=4 * int(components), num_samples=64, num_entropy_samples=4)
