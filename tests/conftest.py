import os
import signal

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from livi.network import Layout

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


def pytest_make_parametrize_id(val, argname):
    """No test is named after bytes: gzip files contain a time stamp, and all workers must collect the same names."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(autouse=True)
def _default_dtype():
    """Run tests in float64 unless they say otherwise; restore dtype and random state afterwards."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    state = torch.random.get_rng_state()
    torch.manual_seed(0)
    yield
    torch.random.set_rng_state(state)
    torch.set_default_dtype(before)


@pytest.fixture
def path(tmp_path):
    """The path of a file that does not exist yet."""
    return tmp_path / "posterior.safetensors"


@pytest.fixture
def linear_layout():
    return Layout(nn.Linear(2, 1))  # 3 weights


@pytest.fixture
def deep_layout():
    return Layout(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)))  # 31 weights


@pytest.fixture
def plane():
    """Inputs with two columns, and targets on a plane with noise."""
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(1))
    return x, x.sum(1) + 0.5 * torch.randn(20, generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="session")
def houses():
    """A table of 90 houses: a number, a category, and a price that depends on both."""
    from livi.tables import Table

    random = np.random.default_rng(0)
    area, town = random.normal(100.0, 20.0, 90), random.choice(["u", "v"], 90)
    price = 1000.0 * area + 5000.0 * (town == "u") + random.normal(0.0, 3000.0, 90)
    return Table.from_frame(pd.DataFrame({"area": area, "town": town, "price": price}), "houses")


# --- for the commands on tables --------------------------------------------------------------------


@pytest.fixture(scope="session")
def homes():
    """A table of 120 homes with all kinds of columns, missing values, and columns to drop."""
    random = np.random.default_rng(0)
    rows = 120
    frame = pd.DataFrame(
        {
            "id": [f"h{i}" for i in range(rows)],
            "area": random.normal(100.0, 20.0, rows).round(1),
            "rooms": random.integers(1, 6, rows),
            "town": random.choice(["Aarhus", "Bath", "Cork"], rows),
            "built": [f"20{10 + i % 12}-0{1 + i % 9}-11" for i in range(rows)],
            "country": "X",
        }
    )
    frame["price"] = (1000.0 * frame["area"] + 5000.0 * frame["rooms"] + random.normal(0.0, 3000.0, rows)).round(2)
    frame["dear"] = np.where(frame["price"] > frame["price"].median(), "yes", "no")
    frame.loc[5:12, "area"] = np.nan
    frame.loc[20:25, "town"] = None
    return frame


@pytest.fixture
def here(tmp_path, monkeypatch, homes):
    """A temporary folder with houses.csv, test.csv and new.csv, as the working directory."""
    monkeypatch.chdir(tmp_path)
    homes.iloc[:80].drop(columns="dear").to_csv("houses.csv", index=False)
    homes.iloc[80:].drop(columns="dear").to_csv("test.csv", index=False)
    homes.iloc[80:90].drop(columns=["dear", "price"]).to_csv("new.csv", index=False)
    return tmp_path


@pytest.fixture(scope="session")
def home_models(tmp_path_factory, homes):
    """The contents of two model files: one predicts price, the other dear."""
    from livi import cli

    folder = tmp_path_factory.mktemp("models")
    models = []
    for target, other in (("price", "dear"), ("dear", "price")):
        homes.iloc[:80].drop(columns=other).to_csv(folder / "houses.csv", index=False)
        arguments = ["fit", str(folder / "houses.csv"), "--target", target, "--out", str(folder / f"{target}.livi")]
        assert cli.main([*arguments, "--steps", "20", "--hidden", "4", "--quiet", "--allow-poor"]) == 0
        models.append((folder / f"{target}.livi").read_bytes())
    return models


@pytest.fixture
def model(here, home_models):
    """Models in the folder `here`: houses.livi predicts price, dear.livi the class dear."""
    (here / "houses.livi").write_bytes(home_models[0])
    (here / "dear.livi").write_bytes(home_models[1])


@pytest.fixture
def interruptible():
    """Install Python's handler of Ctrl-C, which is missing in background processes of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
