import os

import pytest
import torch

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
