"""The order of a fit's batches: one for each seed and epoch, and the same one again."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from livi.model.data import TensorData, as_data, epoch_seed, remaining_batches

KIND = {"device": torch.device("cpu"), "dtype": torch.float64}


@pytest.mark.parametrize("loaded", [False, True], ids=["tensors", "loader"])
def test_fits_of_neighbouring_seeds_share_no_epoch(loaded):
    x, y = torch.randn(60, 2), torch.arange(60)
    given = DataLoader(TensorDataset(x, y), 10, shuffle=True) if loaded else (x, y)
    data = as_data(given, batch_size=None if loaded else 10, **KIND)

    def orders(seed):
        batches = [tuple(targets.tolist()) for _, targets in remaining_batches(data, seed, 0, 5 * 6)]
        return {sum(batches[start : start + 6], ()) for start in range(0, 30, 6)}

    found = [orders(seed) for seed in range(4)]
    assert len(set.union(*found)) == 4 * 5


def test_a_resumed_fit_has_the_batches_that_were_left():
    data = as_data((torch.randn(60, 2), torch.arange(60)), batch_size=10, **KIND)
    whole = [targets.tolist() for _, targets in remaining_batches(data, 3, 0, 20)]
    rest = [targets.tolist() for _, targets in remaining_batches(data, 3, 8, 20)]
    assert rest == whole[8:]


@pytest.mark.parametrize("seed", [-1, 0, 2**31, 2**63])
def test_every_seed_has_epochs_that_torch_can_draw(seed):
    data = TensorData(torch.randn(9, 2), torch.arange(9), 3, augment=lambda inputs, _: inputs)
    assert sorted(torch.cat([targets for _, targets in data.epoch(epoch_seed(seed, 2))]).tolist()) == list(range(9))
