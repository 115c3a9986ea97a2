"""Several processes fit together as one would alone: every check of two ranks is against one, to rounding.

Two pairs of processes are started in all, since each takes seconds to import torch.
"""

import copy

import pytest
import torch
from support.processes import (
    CASES,
    Poison,
    StopAt,
    first_step,
    fitted,
    network,
    outcome,
    spawn,
    stopped_early,
    torchrun,
)
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import livi
from livi.family.share import Share
from livi.inference.ranks import Alone, apart, joined
from livi.model.data import Part, as_data


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The folder, and what each of two ranks found."""
    folder = tmp_path_factory.mktemp("together")
    return folder, spawn("together", folder)


def assert_same_fit(found, alone, **tolerance):
    tolerance = tolerance or {"rtol": 1e-7, "atol": 1e-9}
    for one in found:
        assert one["steps"] == alone["steps"]
        assert one["stopped"] == alone["stopped"]
        torch.testing.assert_close(one["bounds"], alone["bounds"], **tolerance)
        torch.testing.assert_close(one["draws"], alone["draws"], **tolerance)
    torch.testing.assert_close(found[0]["draws"], found[1]["draws"], rtol=0, atol=0)


@pytest.mark.parametrize("name", [*CASES, "Lanczos, gradient", "Lanczos, none"])
def test_the_bounds_of_two_ranks_add_up_to_that_of_one_and_so_do_gradients(together, name):
    found = [one["bound"][name] for one in together[1]]
    case, _, part = name.partition(", ")
    if name == "an estimator of the user's":  # whose random numbers are other ones on every rank
        assert torch.equal(found[0]["rng"], found[1]["rng"])
        return
    alone = first_step(CASES[case](), Alone(), part or "value")
    torch.testing.assert_close(found[0]["own"] + found[1]["own"], alone["own"], rtol=1e-10, atol=1e-10)
    for one in found:
        torch.testing.assert_close(one["terms"], alone["terms"], rtol=1e-10, atol=1e-10)
        # Rounding grows in the conjugate gradients of an ill-conditioned matrix.
        close = {"rtol": 1e-5, "atol": 1e-6} if case == "Lanczos" else {"rtol": 1e-9, "atol": 1e-10}
        torch.testing.assert_close(one["gradients"], alone["gradients"], **close)
        assert torch.equal(one["rng"], alone["rng"]), "the random streams went apart"
    whole = name in ("a family of the user's", "an exact last layer")  # which every rank computes the same of
    assert whole or not torch.isclose(found[0]["own"], found[1]["own"], rtol=1e-6), "nothing was divided"


def test_a_fit_is_the_same_on_two_ranks_whatever_weights_the_second_came_with(together):
    assert_same_fit([one["fit"] for one in together[1]], outcome(fitted()))


def test_a_sharded_optimiser_makes_the_same_fit(together):
    assert_same_fit([one["sharded"] for one in together[1]], outcome(fitted()))


def test_a_failure_on_one_rank_sends_both_back(together):
    alone = outcome(fitted(callbacks=[Poison(rank=0)], recipe={"averaging": 0.9}))
    assert_same_fit([one["poisoned"] for one in together[1]], alone)
    assert alone["draws"].isfinite().all()


def test_one_rank_that_asks_for_it_stops_both_at_the_next_logged_step(together):
    assert_same_fit([one["stopped"] for one in together[1]], outcome(fitted(callbacks=[StopAt(40, rank=0)])))


def test_early_stopping_is_decided_together(together):
    alone = outcome(stopped_early())
    assert alone["stopped"] is not None
    assert_same_fit([one["early"] for one in together[1]], alone)


def test_a_budget_is_counted_by_the_clock_of_one_rank(together):
    first, second = (one["budget"] for one in together[1])
    assert first == second < 500_000


def test_one_rank_writes(together):
    folder, (first, second) = together
    assert second["written"] == []
    assert first["written"].count(str(folder / "whole")) == 2  # after the start, and at the end
    assert (folder / "rows0.csv").exists()
    assert not (folder / "rows1.csv").exists()


@pytest.mark.parametrize("name", ["half", "half sharded"])
def test_a_fit_of_two_ranks_goes_on_in_one_process(together, tmp_path, name):
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes((together[0] / name).read_bytes())
    began = []

    class Start(livi.Callback):
        def on_start(self, run):
            began.append(run.step)

    resumed = fitted(checkpoint=checkpoint, checkpoint_every=20, callbacks=[Start()])
    assert began == [40]
    alone = outcome(fitted())
    torch.testing.assert_close(outcome(resumed)["draws"], alone["draws"], rtol=1e-7, atol=1e-9)


def test_a_process_can_fit_apart_from_the_others(together):
    for one in together[1]:
        torch.testing.assert_close(one["alone"]["draws"], outcome(fitted())["draws"], rtol=0, atol=0)


def test_fits_of_a_benchmark_are_spread_over_the_ranks_and_their_rows_meet_at_the_first(together):
    first, second = (one["rows"] for one in together[1])
    assert second == []
    assert sorted(row["number"] for row in first) == list(range(6))
    assert all(row["twice"] == 2 * row["number"] for row in first)
    assert {row["rank"] for row in first} == {"0", "1"}
    assert {row["alone"] for row in first} == {"Alone"}  # a fit in there is one process's own


def test_ranks_that_are_about_to_do_different_things_say_so(together):
    for one in together[1]:
        assert "expected the same on every rank, but seed is" in one["other seed"]


def test_a_killed_worker_is_started_again_and_loses_one_checkpoint_interval_at_most(tmp_path):
    found = torchrun("restarted", tmp_path, "--max-restarts", "1")
    assert (tmp_path / "starts").read_text().split() == ["0", "40"]  # killed after 45 steps
    assert_same_fit(found, outcome(fitted()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_two_ranks_on_a_gpu_are_one(tmp_path):
    found = spawn("on_a_gpu", tmp_path)
    alone = outcome(fitted(device="cuda", capture=False))
    assert_same_fit([one["fit"] for one in found], alone, rtol=1e-5, atol=1e-6)
    assert_same_fit([one["sharded"] for one in found], alone, rtol=1e-5, atol=1e-6)


# --- in one process -------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("samples", [1, 2, 3, 8])
def test_shares_cover_every_sample_example_and_latent_once(ranks, samples):
    shares = [Share.of(rank, ranks, num_samples=samples) for rank in range(ranks)]
    cells = [
        (sample, part)
        for share in shares
        for sample in range(samples)[share.samples]
        for part in range(ranks)
        if part * share.examples[1] // ranks == share.examples[0]
    ]
    assert sorted(cells) == [(sample, part) for sample in range(samples) for part in range(ranks)]
    latents = [share.latents(samples) for share in shares]
    assert sorted(row for rows, weight in latents if weight for row in rows) == list(range(samples))
    assert sum(weight for _, weight in latents) == pytest.approx(1.0)
    assert all(rows for rows, _ in latents)


@pytest.mark.parametrize("ranks", [2, 3, 4, 6])
@pytest.mark.parametrize("name", ["samples", "samples one by one", "examples", "a mixture", "Lanczos"])
def test_the_shares_of_any_number_of_ranks_add_up(name, ranks):
    bound, data = (prepared := CASES[name]()).bound, prepared.data
    whole = first_step(prepared, Alone())
    bound.zero_grad()
    terms = []
    for rank in range(ranks):
        share = Share.of(rank, ranks, num_samples=bound.num_samples // bound.family.num_components)
        *_, (inputs, targets, weight, _) = Part(data, *share.examples).epoch(0)
        rng = torch.Generator().manual_seed(7)
        terms += [bound.accumulate(inputs, targets, rng, kl_weight=0.5, share=share, weight=weight)]
        assert torch.equal(rng.get_state(), whole["rng"])
    sums = [sum(getattr(one, part) for one in terms) for part in ("log_likelihood", "log_prior", "entropy")]
    torch.testing.assert_close(torch.stack(sums), whole["terms"], rtol=1e-10, atol=1e-10)
    gradients = {name: p.grad for name, p in bound.named_parameters() if p.grad is not None}
    torch.testing.assert_close(gradients, whole["gradients"], rtol=1e-5, atol=1e-6)


def _loader(**options):
    x = torch.arange(23.0)
    return DataLoader(TensorDataset(x[:, None], x), **{"batch_size": 10, "shuffle": True} | options)


def _batches():
    """As a list, which cannot be read in parts."""
    x = torch.arange(23.0)
    return [(x[None, rows].T, x[rows]) for rows in torch.arange(23).split(10)]


@pytest.mark.parametrize("make", [_loader, _batches, lambda: _loader(drop_last=True), lambda: _loader(batch_size=1)])
@pytest.mark.parametrize("count", [2, 3])
def test_parts_of_batches_are_the_batches(make, count):
    data = as_data(make(), device=torch.device("cpu"), dtype=torch.float64)
    parts = [list(Part(data, index, count).epoch(5)) for index in range(count)]
    for (inputs, targets), *pieces in zip(data.epoch(5), *parts, strict=True):
        used = [piece for piece in pieces if piece[2] > 0]
        torch.testing.assert_close(torch.cat([piece[1] for piece in used]), targets, rtol=0, atol=0)
        torch.testing.assert_close(torch.cat([piece[0] for piece in used]), inputs, rtol=0, atol=0)
        assert [weight for *_, weight, _ in used] == [len(piece[1]) / len(targets) for piece in used]


def test_a_part_of_a_loader_reads_its_own_examples_only():
    read = []

    class Watched(TensorDataset):
        def __getitem__(self, index):
            read.append(index)
            return super().__getitem__(index)

        __getitems__ = None

    dataset = Watched(*(torch.arange(20.0) for _ in range(2)))
    data = as_data(DataLoader(dataset, 5), device=torch.device("cpu"), dtype=torch.float64)
    read.clear()
    list(Part(data, 0, 2).epoch(0))
    assert len(read) == 8


def test_a_part_of_a_loader_checks_its_examples_as_the_whole_loader_does():
    data = as_data(_loader(), device=torch.device("cpu"), dtype=torch.float64)

    def refuse(inputs):
        raise ValueError(f"{len(inputs)} bad inputs")

    data.check_inputs = refuse
    for examples, count in ((data, 10), (Part(data, 0, 2), 5)):
        with pytest.raises(ValueError, match=f"batch 0: {count} bad inputs"):
            list(examples.epoch(0))


def test_what_cannot_be_cut_is_everyones_in_equal_parts():
    batch = ({"edges": torch.zeros(2, 7), "nodes": torch.zeros(4, 3)}, torch.arange(4.0))
    data = as_data([batch], device=torch.device("cpu"), dtype=torch.float64)
    for index in range(2):
        [(inputs, targets, weight, _)] = Part(data, index, 2).epoch(0)
        assert inputs["edges"].shape == (2, 7)
        assert len(targets) == 4
        assert weight == 0.5


def test_a_loader_that_is_divided_already_is_refused():
    dataset = _loader().dataset
    sampler = DistributedSampler(dataset, num_replicas=2, rank=0)
    with pytest.raises(ValueError, match="DistributedSampler; leave the sampler out"):
        as_data(DataLoader(dataset, 5, sampler=sampler), device=torch.device("cpu"), dtype=torch.float64)


def test_one_process_is_alone():
    assert type(joined()) is Alone
    with apart():
        assert type(joined()) is Alone
    with pytest.raises(ValueError, match="torchrun"):
        joined(distributed=True)
    with pytest.raises(ValueError, match="shard: expected several processes"):
        fitted(net=copy.deepcopy(network()), shard=True)
