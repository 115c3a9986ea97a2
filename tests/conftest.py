import os

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from livi.network import Layout

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(autouse=True)
def _default_dtype():
    """Tests run in float64 unless they say otherwise; whatever they set is undone."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    state = torch.random.get_rng_state()
    torch.manual_seed(0)
    yield
    torch.random.set_rng_state(state)
    torch.set_default_dtype(before)


@pytest.fixture
def path(tmp_path):
    """Of a file that is not there yet."""
    return tmp_path / "posterior.safetensors"


@pytest.fixture
def linear_layout():
    return Layout(nn.Linear(2, 1))  # 3 weights


@pytest.fixture
def deep_layout():
    return Layout(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)))  # 31 weights


@pytest.fixture
def plane():
    """Inputs of two columns, and targets about a plane above them."""
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(1))
    return x, x.sum(1) + 0.5 * torch.randn(20, generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="session")
def houses():
    """A table of 90 houses: a number, a category, and a price that follows from both."""
    from livi.tables import Table

    random = np.random.default_rng(0)
    area, town = random.normal(100.0, 20.0, 90), random.choice(["u", "v"], 90)
    price = 1000.0 * area + 5000.0 * (town == "u") + random.normal(0.0, 3000.0, 90)
    return Table.from_frame(pd.DataFrame({"area": area, "town": town, "price": price}), "houses")
