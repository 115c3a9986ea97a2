"""Every kind of network is fitted without options: residual ones, transformers, and a recurrent one."""

import pytest
import torch

import livi
from benchmarks.architecture_cases import CASES, text_examples
from livi.experiments.sequences import Attention, Decoder
from livi.posterior.metrics import nll
from livi.posterior.prediction import ClassificationPrediction
from livi.rivals import fit_map

sklearn_datasets = pytest.importorskip("sklearn.datasets")

SEEN, SCORED, STEPS = 48, 200, 25


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)


def digits():
    """Real pictures of 8 x 8 pixels, as wide as the small networks take them."""
    found = sklearn_datasets.load_digits()
    return torch.tensor(found.images, dtype=torch.float32)[:, None] / 8.0 - 1.0, torch.tensor(found.target)


def examples(name):
    if name == "decoder":
        return text_examples(0, quick=True)
    x, y = digits()
    x = x[..., :7, :7] if name == "lstm" else x.expand(-1, 3, -1, -1)
    return (x[:SEEN], y[:SEEN]), (x[-SCORED:], y[-SCORED:])


@pytest.mark.filterwarnings("ignore::livi.FitWarning")  # a fit of a few steps
@pytest.mark.parametrize("name", [name for name in CASES if name != "resnet"])  # which is slow, and wrn's kind
def test_a_fit_without_options_learns_from_real_data(name):
    train, scored = examples(name)
    net = CASES[name].build(0, quick=True)
    own = [parameter.clone() for parameter in net.parameters()]
    start = fit_map(net, train, livi.Categorical(), steps=STEPS)
    posterior = livi.fit(net, train, livi.Categorical(), steps=STEPS, progress=False)
    assert all(torch.equal(one, other) for one, other in zip(own, net.parameters(), strict=True))
    untrained = ClassificationPrediction(net.eval()(scored[0])[None].detach(), livi.Categorical())
    predictions = (untrained, *(made.predict(scored[0], num_samples=10) for made in (start, posterior)))
    nothing, before, after = (nll(prediction, scored[1]) / scored[1][0].numel() for prediction in predictions)
    assert after < before < nothing


def test_text_comes_from_modules_that_are_either_seen_or_held_out():
    train, scored = text_examples(0, quick=True)
    assert torch.equal(train[0][:, 1:], train[1][:, :-1])  # targets are the next characters
    seen, held = ({bytes(row.tolist()) for row in part[0]} for part in (train, scored))
    assert not seen & held
    assert not torch.equal(train[0], text_examples(1, quick=True).train[0])
    assert torch.equal(scored[0], text_examples(1, quick=True).scored[0])


def test_choices_are_made_on_modules_that_no_table_reports():
    train, scored = text_examples(0, quick=True, choosing=True)
    reported = {bytes(row.tolist()) for row in text_examples(0, quick=True).scored[0]}
    assert not reported & {bytes(row.tolist()) for part in (train, scored) for row in part[0]}


def test_a_decoder_looks_back_only():
    net, text = Decoder(16, 8, width=16, depth=1, heads=2), torch.arange(8)[None]
    changed = torch.cat([text[:, :5], text[:, 5:] + 1], 1)
    one, other = net(text), net(changed)
    assert torch.allclose(one[..., :5], other[..., :5], atol=1e-6)
    assert not torch.allclose(one[..., 5:], other[..., 5:], atol=1e-3)


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match="width: expected a multiple of 3 heads, got 16"):
        Attention(16, 3, causal=False)
