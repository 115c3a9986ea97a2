"""The whole diagnosis: what is left out and why, its words, the verdict, its errors."""

import json
from dataclasses import replace

import pytest
import torch
from support.diagnosed_posteriors import CHEAP, Fitted, Members, affine, close, gaussian, seeded
from torch import nn

from livi.family.entropy import Exact
from livi.family.generators import MLP
from livi.family.implicit import ImplicitPosterior
from livi.family.noise import FixedNoise
from livi.model.likelihoods import Gaussian
from livi.model.priors import FunctionPrior, Normal
from livi.network import Layout
from livi.posterior.diagnostics import Diagnosis, Effort, Estimate, Skipped, diagnose, kernel_density
from livi.posterior.diagnostics.verdict import verdict
from livi.posterior.posterior import Posterior


def test_a_sampler_without_generators_gets_what_samples_tell(deep_layout, plane):
    found = diagnose(Fitted(Members(deep_layout, gaussian(200, 31))), *plane, rng=seeded())
    assert isinstance(found.log_det, Skipped)
    assert isinstance(found.density, Skipped)
    assert isinstance(found.bound.entropy, Skipped)
    assert isinstance(found.bound.bound, Skipped)
    assert isinstance(found.rank.local, Skipped)
    assert close(found.rank.covariance, 31.0)
    assert found.facts.num_distinct < found.facts.num_samples == 256
    assert "not applicable: Members has no generator" in str(found)
    assert any("fixed set" in finding.text for finding in found.findings)


@pytest.mark.parametrize("members", [1, 5])
def test_an_ensemble_of_a_few_is_told_so(deep_layout, plane, members):
    found = diagnose(Fitted(Members(deep_layout, gaussian(members, 31))), *plane, rng=seeded())
    assert found.facts.num_distinct == members
    assert isinstance(found.spread, Skipped) == (members < 3)
    for part in (found.rank, found.correlation, found.shape):
        assert part == Skipped(f"too few samples: needs 16 distinct weight vectors, got {members}")


def test_a_posterior_without_prior_has_no_bound(linear_layout, plane):
    found = diagnose(Fitted(affine(linear_layout), prior=None), *plane, rng=seeded(), effort=CHEAP)
    assert isinstance(found.bound.log_prior, Skipped)
    assert isinstance(found.bound.bound, Skipped)
    assert isinstance(found.bound.entropy, Estimate)


@pytest.fixture(scope="module")
def diagnosis():
    layout = Layout(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double())
    generators = [MLP(4, 13, hidden=(8,), skip=True, offset=True).double() for _ in range(2)]
    for k, generator in enumerate(generators):
        generator.init_around(torch.full((13,), float(k), dtype=torch.float64), 0.3)
    posterior = Fitted(ImplicitPosterior(layout, generators), Gaussian(0.5).double(), Normal().double())
    x = gaussian(20, 2, seed=1).double()
    return diagnose(posterior, x, x.sum(1), num_samples=100, rng=seeded(), effort=CHEAP)


def test_samples_are_rounded_up_to_full_batches_of_all_components(diagnosis):
    assert diagnosis.facts.num_samples == 128
    assert diagnosis.facts.num_components == 2


def test_a_diagnosis_prints_every_part_and_the_verdict_last(diagnosis):
    text = str(diagnosis)
    headings = [
        "Diagnosis of 13 weights",
        "Bound",
        "Entropy by",
        "Linearised entropy",
        "Spread",
        "Correlation",
        "Verdict",
    ]
    places = [text.index(heading) for heading in headings]
    assert places == sorted(places)
    assert max(map(len, text.splitlines())) <= 120
    assert "component 1" in text
    assert all(finding.topic in text[places[-1] :] for finding in diagnosis.findings)


def test_a_diagnosis_is_json(diagnosis):
    stored = json.loads(json.dumps(diagnosis.to_dict(), allow_nan=False))
    assert stored["bound"]["bound"]["value"] == diagnosis.bound.bound.value
    assert stored["severity"] == diagnosis.severity
    assert len(stored["correlation"]["matrix"]) == 13
    assert {"severity", "topic", "text"} == set(stored["findings"][0])


def test_a_fitted_posterior_diagnoses_itself(deep_layout, plane):
    posterior = Posterior(affine(deep_layout, 4), Gaussian(0.5), Normal())
    assert posterior.diagnose(*plane, rng=seeded(), effort=CHEAP).to_dict() == (
        diagnose(posterior, *plane, rng=seeded(), effort=CHEAP).to_dict()
    )


def gap(value, error, effective=0.6):
    return {"gap": Estimate(value, error), "effective": effective, "bias": 0.0, "preimages": 1.0}


@pytest.mark.parametrize(
    ("measured", "severity", "words"),
    [
        (gap(0.8, 0.05), "warning", "at least 0.800 ± 0.050 nats"),
        (gap(0.8, 0.5), "ok", "no gap"),
        (gap(0.05, 0.001), "ok", "no gap"),
        (gap(-0.8, 0.05), "ok", "loose, not wrong"),
        (gap(0.0, 0.05, effective=0.02), "notice", "raise Effort.num_importance"),
    ],
)
def test_a_gap_counts_if_it_is_significant_and_not_small(diagnosis, measured, severity, words):
    density = replace(diagnosis.density, mean=replace(diagnosis.density.mean, **measured))
    [finding] = [f for f in verdict(replace(diagnosis, density=density)) if f.topic == "L' against the ELBO"]
    assert finding.severity == severity
    assert words in finding.text


@pytest.mark.parametrize(
    ("bound", "fit", "warned"),
    [
        ("Exact", "", ["Exact"]),
        ("Exact", "Lanczos", ["Exact", "Lanczos"]),
        ("Exact", "SmallestSingularValue", ["Exact", "SmallestSingularValue"]),
        ("Lanczos", "", ["Exact", "Lanczos"]),
    ],
)
@pytest.mark.parametrize("exact", [True, False])
def test_an_unconverged_estimator_is_a_warning_where_bound_or_fit_rest_on_it(diagnosis, bound, fit, warned, exact):
    methods = [replace(method, converged=0.5, remedy="Do this.") for method in diagnosis.log_det.methods]
    if not exact:
        methods = [replace(method, difference=None) for method in methods if method.name != "Exact"]
    found = replace(
        diagnosis,
        facts=replace(diagnosis.facts, fit_estimator=fit),
        bound=replace(diagnosis.bound, estimator=bound),
        log_det=replace(diagnosis.log_det, methods=tuple(methods)),
    )
    findings = [f for f in verdict(found) if f.topic.startswith("log-determinant")]
    assert len(findings) == len(methods)
    for finding in findings:
        name = finding.topic.removeprefix("log-determinant by ")
        assert finding.severity == ("warning" if name in warned else "ok")
        assert ("Do this." in finding.text) == (name in warned)
        assert finding.text.startswith("not used here") == (name not in warned)


def test_the_lines_of_an_estimator_that_was_not_used_say_so(deep_layout, plane):
    posterior = Posterior(affine(deep_layout, 4), Gaussian(0.5), Normal(), plan={"entropy": "Lanczos(num_probes=1)"})
    found = posterior.diagnose(*plane, rng=seeded(), effort=CHEAP)
    assert found.facts.fit_estimator == "Lanczos"
    text = str(found)
    assert "SmallestSingularValue (not used here)" in text
    assert "log-determinant by SmallestSingularValue: not used here; for comparison, -" in text
    assert "Lanczos (not used here)" not in text
    assert "log-determinant by Lanczos: converged" in text
    plain = str(diagnose(Fitted(affine(deep_layout, 4)), *plane, rng=seeded(), effort=CHEAP))
    assert "Lanczos (not used here)" in plain
    assert "Exact (not used here)" not in plain


def test_a_bound_that_is_not_finite_is_a_warning(deep_layout, plane):
    prior = FunctionPrior(lambda theta: torch.full((len(theta),), -torch.inf))
    found = diagnose(Fitted(affine(deep_layout), prior=prior), *plane, rng=seeded(), effort=CHEAP)
    assert any(f.topic == "bound" and "log_prior is not finite" in f.text for f in found.warnings)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["bound"]["log_prior"]["value"] is None


def test_an_rng_decides_everything_and_the_global_one_is_left_alone(deep_layout, plane):
    posterior = Fitted(affine(deep_layout, 4))
    before = torch.random.get_rng_state()
    one, two = (diagnose(posterior, *plane, rng=seeded(3), effort=CHEAP).to_dict() for _ in range(2))
    assert one == two
    assert torch.equal(before, torch.random.get_rng_state())
    assert one != diagnose(posterior, *plane, rng=seeded(4), effort=CHEAP).to_dict()


def test_single_precision_posteriors_can_be_diagnosed(deep_layout, plane):
    posterior = ImplicitPosterior(deep_layout, MLP(6, 31, hidden=(12,), skip=True), FixedNoise(0.05)).float()
    x, y = (tensor.float() for tensor in plane)
    found = diagnose(Fitted(posterior, Gaussian(0.5).float(), Normal().float()), x, y, rng=seeded(), effort=CHEAP)
    assert isinstance(found, Diagnosis)
    assert found.density.mean.gap.value < 0.1 + 4.0 * found.density.mean.gap.standard_error
    exact = Exact()(posterior.generators[0], gaussian(64, 6).float(), posterior.noises[0].std()).nats
    assert abs(found.bound.entropy.value - exact.mean()) < 5.0 * exact.std() / 4.0  # 16 latents


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"posterior": 3}, TypeError, "expected what livi.fit returns, got int without sampler, likelihood"),
        ({"targets": "train.csv"}, TypeError, "targets: expected a tensor, an array or a list of numbers, got str"),
        ({"targets": torch.zeros(())}, ValueError, "targets: expected at least one example"),
        ({"inputs": torch.zeros(3, 2)}, ValueError, r"inputs: expected a tensor with the targets' 20 rows.*\(3, 2\)"),
        ({"num_data": 5}, ValueError, "num_data: expected at least the 20 examples given, got 5"),
        ({"rng": 0}, TypeError, r"rng: expected a torch.Generator or None, got int 0"),
        ({"num_samples": 0}, ValueError, "num_samples: expected at least 1"),
        ({"weights": [31]}, ValueError, "weights: expected places in theta, 0 to 30, got 31"),
        ({"effort": "much"}, TypeError, "effort: expected a livi.posterior.diagnostics.Effort, got str"),
    ],
)
def test_bad_input_is_a_clear_error(deep_layout, plane, change, error, message):
    arguments = {"posterior": Fitted(affine(deep_layout)), "inputs": plane[0], "targets": plane[1]} | change
    with pytest.raises(error, match=message):
        diagnose(**arguments)


def test_bad_effort_and_bad_draws_are_clear_errors(deep_layout, plane):
    with pytest.raises(ValueError, match="num_starts: expected at least 1, got 0"):
        Effort(num_starts=0)
    members = gaussian(40, 31)
    members[3, 4] = float("nan")
    with pytest.raises(ValueError, match="expected finite weights, got NaN or inf"):
        diagnose(Fitted(Members(deep_layout, members)), *plane, rng=seeded())
    with pytest.raises(ValueError, match=r"expected samples of shape \(16, 31\), got \(16, 30\)"):
        diagnose(Fitted(Members(deep_layout, members[:, 1:])), *plane, rng=seeded())
    members[3, 4] = 0.0
    members[:, 7] = 1.0
    with pytest.raises(ValueError, match=r"weights: expected ones that vary, got 0.weight\[3, 1\], which is constant"):
        diagnose(Fitted(Members(deep_layout, members)), *plane, rng=seeded(), weights=[7])
    with pytest.raises(ValueError, match="expected numbers that differ"):
        kernel_density(torch.ones(5))
    with pytest.raises(ValueError, match="expected at least 2 numbers on one axis"):
        kernel_density(torch.ones(5, 2))
