"""Answering with a fitted posterior: the same networks every time, in blocks of bounded size, without training data."""

import copy
import pickle
import weakref

import pytest
import torch
from support.samplers import sampler_for, x_for
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import livi
from livi import ImplicitPosterior, Layout, Posterior
from livi.family.ensemble import Ensemble
from livi.family.last_layer import LinearGaussian
from livi.posterior.prediction import draw_networks, networks, source


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))  # 21 weights


@pytest.fixture
def posterior():
    layout = Layout(network())
    sampler = ImplicitPosterior(layout, livi.MLP(5, layout.num_params, hidden=(6,)), livi.FixedNoise(0.1))
    return Posterior(sampler, livi.Gaussian(0.3))


@pytest.fixture(scope="module")
def exact():
    """A fit with its last layer integrated out, which holds all training rows."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    x = x_for(40, 3)
    recipe = livi.Recipe(steps=3, map_steps=3, map_restarts=1, num_samples=2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = livi.fit(network(), (x, x.sum(1)), livi.Gaussian(0.2), recipe=recipe, progress=False)
    torch.set_default_dtype(before)
    assert made.plan["last_layer"] == "exact: 2"
    return made


@pytest.fixture
def calls(monkeypatch):
    """How many weight vectors each draw from the sampler asked for."""
    found = []
    sample = ImplicitPosterior.sample

    def counted(self, num_samples, rng=None):
        found.append(num_samples)
        return sample(self, num_samples, rng)

    monkeypatch.setattr(ImplicitPosterior, "sample", counted)
    return found


def seeded(seed=3):
    return torch.Generator().manual_seed(seed)


def test_without_an_rng_the_same_networks_answer_and_are_drawn_once(posterior, calls):
    x = x_for(7, 3)
    first = posterior.predict(x, num_samples=12).means
    for rows in (slice(0, 7), slice(2, 3)):
        torch.testing.assert_close(posterior.predict(x[rows], num_samples=12).means, first[:, rows])
    assert calls == [12]
    again = Posterior(posterior.sampler, posterior.likelihood).predict(x, num_samples=12)
    torch.testing.assert_close(again.means, first, rtol=0, atol=0)


def test_answers_leave_the_global_random_stream_alone(posterior):
    before = torch.random.get_rng_state()
    posterior.predict(x_for(2, 3), num_samples=4)
    assert torch.equal(before, torch.random.get_rng_state())


def test_an_rng_decides_other_networks_and_moves_on(posterior, calls):
    x, rng = x_for(7, 3), seeded()
    usual = posterior.predict(x, num_samples=12).means
    one, two = posterior.predict(x, num_samples=12, rng=rng).means, posterior.predict(x, num_samples=12, rng=rng).means
    assert not torch.equal(one, usual)
    assert not torch.equal(one, two)
    torch.testing.assert_close(posterior.predict(x, num_samples=12, rng=seeded()).means, one, rtol=0, atol=0)
    assert calls == [12] * 4


@pytest.mark.parametrize("call", ["predict", "sample", "functions", "frozen"])
def test_a_seed_in_place_of_an_rng_is_a_type_error(posterior, call):
    arguments = (x_for(2, 3),) if call == "predict" else (4,)
    with pytest.raises(TypeError, match=r"rng: expected a torch.Generator or None, got int 0; pass .*manual_seed\(0\)"):
        getattr(posterior, call)(*arguments, rng=0)


def test_networks_come_in_blocks_of_bounded_bytes(posterior, calls, monkeypatch):
    monkeypatch.setattr(networks, "BLOCK", 5 * 21 * 8 + 100)
    blocks = list(draw_networks(posterior.sampler, 12, seeded()))
    assert [len(block.theta) for block in blocks] == calls == [5, 5, 2]
    monkeypatch.setattr(networks, "BLOCK", 1)  # not even one fits
    assert [len(block.theta) for block in draw_networks(posterior.sampler, 3, seeded())] == [1, 1, 1]


@pytest.mark.parametrize("networks_a_block", [1, 3, 7, 100])
def test_components_of_a_mixture_have_equal_shares_however_many_networks_a_block_has(monkeypatch, networks_a_block):
    layout = Layout(network())
    generators = [livi.Affine(2, 21).init_around(torch.full((21,), 100.0 * k), 0.1) for k in range(5)]
    mixture = ImplicitPosterior(layout, generators)
    monkeypatch.setattr(networks, "BLOCK", networks_a_block * 21 * 8)
    for count, least in ((100, 20), (98, 19), (5, 1)):
        theta = torch.cat([block.theta for block in draw_networks(mixture, count, seeded())])
        shares = (theta.mean(1) / 100.0).round().long().bincount(minlength=5)
        assert len(theta) == count
        assert shares.min() == least
        assert shares.max() <= least + 1


@pytest.mark.parametrize("memory_limit", [1, 3000, None])
def test_the_memory_limit_does_not_change_which_networks_answer(posterior, monkeypatch, memory_limit):
    monkeypatch.setattr(networks, "BLOCK", 5 * 21 * 8)
    x = x_for(9, 3)
    expected = livi.apply_many(
        posterior.layout, torch.cat([b.theta for b in draw_networks(posterior.sampler, 12, seeded())]), x
    )[..., 0]
    found = posterior.predict(x, num_samples=12, rng=seeded(), memory_limit=memory_limit).means
    torch.testing.assert_close(found, expected.detach())


def test_networks_of_more_than_one_block_are_drawn_anew_and_are_still_the_same(posterior, calls, monkeypatch):
    for room in (networks, source):
        monkeypatch.setattr(room, "BLOCK", 5 * 21 * 8)
    x = x_for(7, 3)
    first = posterior.predict(x, num_samples=12).means
    torch.testing.assert_close(posterior.predict(x, num_samples=12).means, first, rtol=0, atol=0)
    assert calls == [5, 5, 2] * 2


def test_blocks_of_an_ensemble_take_every_member_in_equal_shares(monkeypatch):
    monkeypatch.setattr(networks, "BLOCK", 4 * 21 * 8)
    drawn = sampler_for(network(), num_samples=5)
    ensemble = Posterior(Ensemble(drawn.layout, drawn.theta), livi.Gaussian(0.3))
    x = x_for(6, 3)
    expected = livi.apply_many(drawn.layout, drawn.theta, x)[..., 0].mean(0)
    torch.testing.assert_close(ensemble.predict(x, num_samples=15).means.mean(0), expected)


def changed_parameter(posterior):
    with torch.no_grad():
        next(posterior.sampler.parameters()).add_(1.0)


def changed_by_a_state_dict(posterior):
    state = posterior.sampler.state_dict()
    posterior.sampler.load_state_dict({name: tensor + 1.0 for name, tensor in state.items()})


def changed_calibration(posterior):
    posterior.calibration.mul_(3.0)


def other_calibration(posterior):
    posterior.calibration = posterior.calibration * 3.0


def other_sampler(posterior):
    posterior.sampler = Ensemble(posterior.layout, posterior.sample(4, seeded()))


@pytest.mark.parametrize(
    "change", [changed_parameter, changed_by_a_state_dict, changed_calibration, other_calibration, other_sampler]
)
def test_other_networks_answer_where_what_they_are_drawn_from_has_changed(change):
    layout = Layout(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)))
    sampler = ImplicitPosterior(layout, livi.MLP(5, layout.num_params, hidden=(6,)), livi.FixedNoise(0.1))
    posterior, x = Posterior(sampler, livi.Gaussian(0.3), calibration=x_for(12, 3)), x_for(7, 3)
    before = posterior.predict(x, num_samples=12).means
    torch.testing.assert_close(posterior.predict(x, num_samples=12).means, before, rtol=0, atol=0)
    change(posterior)
    found = posterior.predict(x, num_samples=12).means
    fresh = Posterior(posterior.sampler, posterior.likelihood, calibration=posterior.calibration)
    torch.testing.assert_close(found, fresh.predict(x, num_samples=12).means, rtol=0, atol=0)
    assert not torch.allclose(found, before)


def test_weights_that_count_no_changes_can_be_predicted_with():
    with torch.inference_mode():
        layout = Layout(network())
        posterior = Posterior(ImplicitPosterior(layout, livi.MLP(5, layout.num_params)), livi.Gaussian(0.3))
        assert posterior.predict(x_for(2, 3), num_samples=4).means.shape == (4, 2)


def test_a_pickle_holds_none_of_the_networks_that_have_answered(posterior):
    before = pickle.dumps(posterior)
    expected = posterior.predict(x_for(2, 3), num_samples=1000).means
    after = pickle.dumps(posterior)
    assert len(after) < len(before) + 1000  # and none of 168,000 bytes of weights
    for other in (pickle.loads(after), copy.deepcopy(posterior)):
        torch.testing.assert_close(other.predict(x_for(2, 3), num_samples=1000).means, expected, rtol=0, atol=0)


def test_networks_that_are_kept_hold_no_graph(posterior):
    assert any(parameter.requires_grad for parameter in posterior.sampler.parameters())
    posterior.predict(x_for(2, 3), num_samples=4)
    assert not any(block.theta.requires_grad for kept in posterior._same.kept.values() for block in kept)


@pytest.mark.parametrize("networks_a_block", [3, 100])
@pytest.mark.parametrize("options", [{}, {"rng": 3}, {"deterministic": True}])
def test_one_batch_of_a_loader_at_a_time_is_where_the_network_is(posterior, monkeypatch, networks_a_block, options):
    for room in (networks, source):
        monkeypatch.setattr(room, "BLOCK", networks_a_block * 21 * 8)
    converted, there, convert = [], [], Posterior._as_inputs

    def watched(self, batch):
        found = convert(self, batch)
        converted.append(weakref.ref(found))
        there.append(sum(each() is not None for each in converted))
        return found

    monkeypatch.setattr(Posterior, "_as_inputs", watched)
    x = x_for(12, 3)
    loader = DataLoader(TensorDataset(x.float()), 2)  # in another precision, so that what is converted is new
    options = {name: seeded(value) if name == "rng" else value for name, value in options.items()}
    posterior.predict(loader, num_samples=12, **options)
    assert len(there) >= 6
    assert max(there) <= 2  # the one before is let go when the next one is there


def test_a_loader_is_read_as_it_is_answered(posterior):
    alive = []

    def batches():
        for part in x_for(12, 3).split(2):
            batch = part.clone()
            alive.append(weakref.ref(batch))
            assert sum(each() is not None for each in alive) <= 3
            yield batch
            del batch

    posterior.predict(batches(), num_samples=12)
    assert len(alive) == 6


@pytest.mark.parametrize("batch_size", [3, 7])
def test_a_loader_gives_the_predictions_of_its_tensor(posterior, batch_size):
    x = x_for(7, 3)
    whole = posterior.predict(x, num_samples=12)
    for data in (TensorDataset(x), TensorDataset(x, torch.zeros(7))):
        found = posterior.predict(DataLoader(data, batch_size), num_samples=12)
        torch.testing.assert_close(found.means, whole.means)
        drawn = posterior.predict(DataLoader(data, batch_size), num_samples=12, rng=seeded())
        torch.testing.assert_close(drawn.means, posterior.predict(x, num_samples=12, rng=seeded()).means)
    single = posterior.predict(DataLoader(TensorDataset(x), batch_size), deterministic=True)
    torch.testing.assert_close(single.means, posterior.predict(x, deterministic=True).means)


def test_a_frozen_posterior_answers_with_the_same_networks(posterior, calls):
    x = x_for(7, 3)
    frozen = posterior.frozen(12)
    assert frozen.sampler.num_members == frozen.plan["frozen"] == 12
    mine = posterior.predict(x, num_samples=12).means
    torch.testing.assert_close(frozen.predict(x, num_samples=12).means.sort(0).values, mine.sort(0).values)
    assert calls == [12]
    other = posterior.frozen(12, seeded()).predict(x, num_samples=12).means
    torch.testing.assert_close(
        other.sort(0).values, posterior.predict(x, num_samples=12, rng=seeded()).means.sort(0).values
    )


def test_what_is_frozen_from_an_exact_last_layer_holds_no_training_rows(exact, tmp_path):
    rows = {tuple(row) for row in exact.sampler.inputs.tolist()}
    exact.save(tmp_path / "whole.livi")
    exact.save(tmp_path / "draws.livi", draws=15)

    def holds_rows(path):
        tensors = livi.posterior.storage.read(path)[0]
        return any(
            rows & {tuple(row) for row in tensor.tolist()} for tensor in tensors.values() if tensor.shape[1:] == (3,)
        )

    assert holds_rows(tmp_path / "whole.livi")
    assert not holds_rows(tmp_path / "draws.livi")
    assert not any(len(value) == 40 for value in exact.frozen(15).sampler.buffers())
    loaded = livi.load(tmp_path / "draws.livi", network())
    torch.testing.assert_close(
        loaded.predict(x_for(5, 3)).means, exact.frozen(15).predict(x_for(5, 3)).means, rtol=0, atol=0
    )


def test_rows_are_answered_without_going_through_the_training_rows_again(exact, monkeypatch):
    seen = []
    conditional = LinearGaussian.conditional

    def counted(self, outputs, targets):
        seen.append(len(targets))
        return conditional(self, outputs, targets)

    monkeypatch.setattr(LinearGaussian, "conditional", counted)
    posterior = Posterior(exact.sampler, exact.likelihood, exact.prior)
    for i in range(5):
        posterior.predict(x_for(5, 3)[i : i + 1], num_samples=10)
    assert seen == [40]
    frozen = posterior.frozen(10)
    frozen.predict(x_for(1, 3))
    assert seen == [40]
    posterior.predict(x_for(1, 3), num_samples=10, rng=seeded())
    assert seen == [40, 40]
