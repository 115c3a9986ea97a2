"""Likelihoods against torch.distributions, and the mistakes that they must refuse."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, distributions
from torch.nn import functional as F

import livi
from livi.model.likelihoods import Likelihood, aligned
from livi.spec import build, known_classes, spec_of

S, B = 3, 4


def summed(log_prob: Tensor) -> Tensor:
    """Over the axes behind (S, B)."""
    return log_prob.reshape(*log_prob.shape[:2], -1).sum(2)


# --- Gaussian -------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [(), (1,), (2,), (3, 5), (2, 1)])
def test_gaussian_is_torchs_normal_summed_over_the_event(event):
    outputs, targets = torch.randn(S, B, *event), torch.randn(B, *event)
    found = livi.Gaussian(0.7).log_prob(outputs, targets)
    assert found.shape == (S, B)
    torch.testing.assert_close(found, summed(distributions.Normal(outputs, 0.7).log_prob(targets)))


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [((S, B, 1), (B,)), ((S, B), (B, 1)), ((S, B, 2, 1), (B, 2)), ((S, B, 2), (B, 2, 1)), ((S, 1, 1), (1,))],
)
@pytest.mark.parametrize("likelihood", [livi.Gaussian(0.5), livi.Bernoulli()], ids=["Gaussian", "Bernoulli"])
def test_trailing_axis_of_one_on_either_side_is_dropped_and_never_broadcast(likelihood, outputs, targets):
    out, y = torch.randn(outputs), torch.rand(targets)
    expected = likelihood.log_prob(out.reshape(S, targets[0], -1), y.reshape(targets[0], -1))
    found = likelihood.log_prob(out, y)
    assert found.shape == (S, targets[0])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        ((S, B, 2), (B,)),
        ((S, B), (B, 2)),
        ((S, B + 1), (B,)),
        ((S, 1), (B,)),
        ((S, B, 1), (B, 2)),
        ((S, B, 2, 3), (B, 3, 2)),
        ((B,), (B,)),
        ((B, 1), (B,)),
    ],
)
@pytest.mark.parametrize(
    "likelihood", [livi.Gaussian(0.5), livi.Gaussian(), livi.Bernoulli()], ids=["fixed", "learned", "Bernoulli"]
)
def test_shapes_that_do_not_match_are_an_error(likelihood, outputs, targets):
    with pytest.raises(ValueError, match=r"outputs: expected \(num_samples, \*targets\.shape\) = \(S, 4"):
        likelihood.log_prob(torch.zeros(outputs), torch.zeros(targets))


def test_aligned_gives_a_view():
    outputs = torch.randn(S, B, 1)
    for found in (aligned(outputs, torch.zeros(B)), aligned(outputs, torch.zeros(B, 1))):
        assert found.data_ptr() == outputs.data_ptr()


def test_integer_targets_may_be_regressed_on():
    outputs, targets = torch.randn(S, B), torch.arange(B)
    torch.testing.assert_close(
        livi.Gaussian(0.5).log_prob(outputs, targets), distributions.Normal(outputs, 0.5).log_prob(targets)
    )


@pytest.mark.parametrize(
    ("likelihood", "start", "is_learned"),
    [
        (lambda: livi.Gaussian(), 1.0, True),
        (lambda: livi.Gaussian(0.2), 0.2, False),
        (lambda: livi.Gaussian(0.2, learned=True), 0.2, True),
        (lambda: livi.Gaussian(learned=False), 1.0, False),
    ],
)
def test_noise_is_learned_where_it_is_not_given_or_where_asked(likelihood, start, is_learned):
    gaussian = likelihood()
    torch.testing.assert_close(gaussian.obs_std().detach(), torch.tensor(start))
    assert [name for name, _ in gaussian.named_parameters()] == ["log_std"] * is_learned
    assert list(gaussian.state_dict()) == ["log_std"]


def test_learned_noise_reaches_its_maximum_likelihood_value(rng):
    outputs, targets = torch.randn(S, 50, 2, generator=rng), torch.randn(50, 2, generator=rng)
    gaussian = livi.Gaussian()
    optimiser = torch.optim.LBFGS(
        gaussian.parameters(), max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-12, tolerance_change=1e-16
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = -gaussian.log_prob(outputs, targets).mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    torch.testing.assert_close(gaussian.obs_std().detach(), (targets - outputs).square().mean().sqrt())


@pytest.mark.parametrize(
    ("obs_std", "error"), [(0.0, ValueError), (-1.0, ValueError), (math.nan, ValueError), ("1", TypeError)]
)
def test_noise_must_be_a_positive_number(obs_std, error):
    with pytest.raises(error, match="obs_std: expected a"):
        livi.Gaussian(obs_std)


@pytest.mark.parametrize("obs_std", [[0.1, 2.0], (0.1, 2.0), torch.tensor([0.1, 2.0], dtype=torch.float64)])
@pytest.mark.parametrize("event", [(2,), (3, 2)])
def test_each_output_may_have_its_own_noise(obs_std, event):
    outputs, targets = torch.randn(S, B, *event), torch.randn(B, *event)
    likelihood = livi.Gaussian(obs_std)
    expected = distributions.Normal(outputs, torch.tensor([0.1, 2.0])).log_prob(targets)
    torch.testing.assert_close(likelihood.log_prob(outputs, targets), summed(expected))
    mean, std = likelihood.moments(outputs)
    assert mean.shape == std.shape
    assert list(likelihood.parameters()) == []
    assert len(list(livi.Gaussian(obs_std, learned=True).parameters())) == 1


@pytest.mark.parametrize("outputs", [(S, B), (S, B, 1), (S, B, 3)])
def test_there_are_as_many_noises_as_outputs(outputs):
    with pytest.raises(ValueError, match="expected a last axis of 2, one output per value of obs_std"):
        livi.Gaussian([0.1, 2.0]).log_prob(torch.zeros(outputs), torch.zeros(outputs[1:]))


@pytest.mark.parametrize("outputs", [(S, B), (S, B, 1)])
@pytest.mark.parametrize("obs_std", [[0.3], torch.tensor(0.3, dtype=torch.float64)])
def test_one_noise_may_stand_in_a_list_or_tensor(obs_std, outputs):
    out, targets = torch.randn(outputs), torch.randn(B)
    expected = livi.Gaussian(0.3).log_prob(out, targets)
    torch.testing.assert_close(livi.Gaussian(obs_std).log_prob(out, targets), expected)


@pytest.mark.parametrize("obs_std", [[], [0.1, -1.0], [0.1, math.inf], torch.ones(2, 2), torch.tensor([1, 2])])
def test_noises_must_be_positive_numbers(obs_std):
    with pytest.raises(ValueError, match="obs_std: expected a positive number, or one per output"):
        livi.Gaussian(obs_std)


@pytest.mark.parametrize("event", [(1,), (2,), (3, 2)])
def test_heteroscedastic_gaussian_is_torchs_normal(event):
    mean, raw, targets = torch.randn(S, B, *event), torch.randn(S, B, *event), torch.randn(B, *event)
    likelihood = livi.HeteroscedasticGaussian(floor=0.1)
    outputs = torch.cat([mean, raw], -1)
    expected = distributions.Normal(mean, 0.1 + F.softplus(raw))
    torch.testing.assert_close(likelihood.log_prob(outputs, targets), summed(expected.log_prob(targets)))
    torch.testing.assert_close(likelihood.moments(outputs), (expected.mean, expected.stddev))


def test_heteroscedastic_gaussian_takes_targets_without_a_trailing_axis():
    outputs, targets = torch.randn(S, B, 2), torch.randn(B)
    likelihood = livi.HeteroscedasticGaussian()
    torch.testing.assert_close(likelihood.log_prob(outputs, targets), likelihood.log_prob(outputs, targets[:, None]))


def test_heteroscedastic_standard_deviation_never_falls_below_the_floor():
    _, std = livi.HeteroscedasticGaussian(floor=0.25).moments(torch.full((1, 1, 2), -1e4))
    assert std.item() == 0.25


@pytest.mark.parametrize("shape", [(S, B), (S, B, 1), (S, B, 3)])
def test_heteroscedastic_gaussian_needs_two_outputs_for_each_target(shape):
    with pytest.raises(ValueError, match=r"expected an even last axis.*two outputs for each target"):
        livi.HeteroscedasticGaussian().log_prob(torch.zeros(shape), torch.zeros(B))


def test_heteroscedastic_gaussian_refuses_targets_of_another_width():
    with pytest.raises(ValueError, match=r"outputs: expected \(num_samples, \*targets\.shape\)"):
        livi.HeteroscedasticGaussian().log_prob(torch.zeros(S, B, 4), torch.zeros(B, 4))


def test_floor_must_be_positive():
    with pytest.raises(ValueError, match="floor: expected a positive"):
        livi.HeteroscedasticGaussian(0.0)


# --- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [(), (1,), (3,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.uint8, torch.bool])
def test_bernoulli_is_torchs_and_takes_labels_of_any_dtype(event, dtype):
    logits, labels = torch.randn(S, B, *event), torch.randint(0, 2, (B, *event))
    expected = summed(distributions.Bernoulli(logits=logits).log_prob(labels.double().expand(logits.shape)))
    found = livi.Bernoulli().log_prob(logits, labels.to(dtype))
    assert found.shape == (S, B)
    torch.testing.assert_close(found, expected)


def test_soft_labels_are_mixtures_of_hard_ones():
    logits, share = torch.randn(S, B), torch.rand(B)
    one, zero = (livi.Bernoulli().log_prob(logits, torch.full((B,), label)) for label in (1.0, 0.0))
    torch.testing.assert_close(livi.Bernoulli().log_prob(logits, share), share * one + (1 - share) * zero)


def test_extreme_logits_stay_finite():
    logits = torch.tensor([[1e4, -1e4]])
    found = livi.Bernoulli().log_prob(logits, torch.tensor([0.0, 0.0]))
    torch.testing.assert_close(found, torch.tensor([[-1e4, 0.0]]))
    found = livi.Categorical().log_prob(torch.tensor([[[1e4, 0.0], [0.0, 1e4]]]), torch.tensor([1, 1]))
    torch.testing.assert_close(found, torch.tensor([[-1e4, 0.0]]))


@pytest.mark.parametrize("targets", [[0.0, 2.0], [-1.0, 1.0], [0.0, math.nan]])
@pytest.mark.parametrize("likelihood", [livi.Bernoulli(), livi.Multilabel()], ids=["Bernoulli", "Multilabel"])
def test_labels_outside_zero_and_one_are_an_error(likelihood, targets):
    with pytest.raises(ValueError, match=r"targets: expected values in \[0, 1\], got"):
        likelihood.log_prob(torch.zeros(S, 2, 1), torch.tensor(targets)[:, None])


def test_multilabel_is_independent_bernoullis():
    logits, labels = torch.randn(S, B, 5), torch.randint(0, 2, (B, 5)).double()
    expected = distributions.Independent(distributions.Bernoulli(logits=logits), 1).log_prob(labels.expand(S, B, 5))
    torch.testing.assert_close(livi.Multilabel().log_prob(logits, labels), expected)


def test_multilabel_needs_an_axis_of_labels():
    with pytest.raises(ValueError, match=r"targets: expected shape \(B, L\), got \(4,\); one label is Bernoulli"):
        livi.Multilabel().log_prob(torch.zeros(S, B, 1), torch.zeros(B))


@pytest.mark.parametrize("event", [(), (5,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
def test_categorical_is_torchs_summed_over_dense_targets(event, dtype):
    logits, labels = torch.randn(S, B, 7, *event), torch.randint(0, 7, (B, *event))
    expected = distributions.Categorical(logits=logits.movedim(2, -1)).log_prob(labels.expand(S, *labels.shape))
    found = livi.Categorical().log_prob(logits, labels.to(dtype))
    assert found.shape == (S, B)
    torch.testing.assert_close(found, summed(expected))


def test_byte_labels_work_beyond_the_range_of_bytes():
    logits, labels = torch.randn(S, 3, 300), torch.tensor([50, 156, 255])
    found = livi.Categorical().log_prob(logits, labels.to(torch.uint8))
    torch.testing.assert_close(found, livi.Categorical().log_prob(logits, labels))
    with pytest.raises(ValueError, match="expected labels 0 to 9, got 156"):  # 156 is -100 in a byte
        livi.Categorical().log_prob(torch.zeros(S, 1, 10), torch.tensor([156], dtype=torch.uint8))


@pytest.mark.parametrize("ignore_index", [-100, -1, 255])
def test_ignored_targets_count_as_zero_and_pass_no_gradient(ignore_index):
    logits, labels = torch.randn(S, B, 7, 5, requires_grad=True), torch.randint(0, 7, (B, 5))
    likelihood = livi.Categorical(ignore_index=ignore_index)
    ignored = torch.rand(B, 5) < 0.5
    ignored[0] = True
    # (S, B, 5): position by position, without any ignored
    each = torch.stack([likelihood.log_prob(logits[..., i], labels[:, i]) for i in range(5)], 2)
    found = likelihood.log_prob(logits, labels.masked_fill(ignored, ignore_index))
    torch.testing.assert_close(found, each.masked_fill(ignored, 0.0).sum(2))
    assert torch.equal(found[:, 0], torch.zeros(S))
    [slope] = torch.autograd.grad(found.sum(), logits)
    assert torch.equal(slope.movedim(2, -1)[:, ignored], torch.zeros(S, int(ignored.sum()), 7))


@pytest.mark.parametrize(
    ("outputs", "targets", "error", "message"),
    [
        ((S, B, 3), torch.zeros(B), TypeError, r"integer class labels, got torch\.float32; convert with `\.long\(\)`"),
        ((S, B, 3), torch.zeros(B, dtype=torch.bool), TypeError, "got torch.bool"),
        ((S, B, 3), torch.tensor([0, 1, 2, 3]), ValueError, "expected labels 0 to 2, got 3"),
        ((S, B, 3), torch.tensor([0, 1, 2, -1]), ValueError, "expected labels 0 to 2, got -1"),
        ((S, B, 3), torch.zeros(B, 1, dtype=torch.long), ValueError, r"got \(3, 4, 3\) and \(4, 1\)"),
        ((S, B, 3), torch.zeros(B + 1, dtype=torch.long), ValueError, r"expected \(S, B, C, \.\.\.\)"),
        ((S, B), torch.zeros(B, dtype=torch.long), ValueError, r"expected \(S, B, C, \.\.\.\)"),
        ((S, B, 5, 3), torch.zeros(B, 5, dtype=torch.long), ValueError, r"expected \(S, B, C, \.\.\.\)"),
    ],
)
def test_categorical_refuses_wrong_labels_shapes_and_dtypes(outputs, targets, error, message):
    with pytest.raises(error, match=message):
        livi.Categorical().log_prob(torch.zeros(outputs), targets)


@pytest.mark.parametrize(
    ("outputs", "targets", "remedy"),
    [
        ((S, B, 3), F.one_hot(torch.tensor([0, 1, 2, 1])), r"of one-hot targets pass class indices: `y\.argmax\(1\)`"),
        ((S, B, 3), F.one_hot(torch.tensor([0, 1, 2, 1])).float(), r"pass class indices: `y\.argmax\(1\)`"),
        ((S, B, 3, 5), torch.zeros(B, 3, 5), r"pass class indices: `y\.argmax\(1\)`"),
        ((S, B, 3), torch.zeros(B, 1, dtype=torch.long), r"of a column of labels pass `y\.squeeze\(-1\)`"),
        ((S, B, 3), torch.zeros(B, 1), r"pass `y\.squeeze\(-1\)`"),
        ((S, B, 5, 3), torch.zeros(B, 5, dtype=torch.long), r"forward=lambda net, x: net\(x\)\.movedim\(-1, 1\)"),
        ((S, B), torch.zeros(B, dtype=torch.long), r"use livi\.Bernoulli\(\)"),
        ((S, B, 1), torch.ones(B, dtype=torch.long), r"use livi\.Bernoulli\(\)"),
        ((S, B, 1), torch.ones(B), r"use livi\.Bernoulli\(\)"),
        ((S,), torch.ones(B), r"use livi\.Bernoulli\(\)"),
        ((S, B, 3), torch.tensor([1, 2, 3, 1]), "got 3; number the classes from 0, and give the network an output"),
        ((S, B, 3), torch.zeros(B, 2, 2).long(), "each example one label"),
    ],
)
def test_the_usual_mistakes_with_classes_come_with_their_remedy(outputs, targets, remedy):
    with pytest.raises(ValueError, match=remedy):
        livi.Categorical().log_prob(torch.zeros(outputs), targets)


def test_the_remedies_for_classes_work():
    labels = torch.tensor([0, 1, 2, 1])
    logits = torch.randn(S, B, 3)
    expected = livi.Categorical().log_prob(logits, labels)
    assert torch.equal(livi.Categorical().log_prob(logits, F.one_hot(labels).argmax(1)), expected)
    assert torch.equal(livi.Categorical().log_prob(logits, labels[:, None].squeeze(-1)), expected)
    tokens, words = torch.randn(B, 5, 3), torch.randint(0, 3, (B, 5))
    found = livi.Categorical().log_prob(tokens.movedim(-1, 1)[None], words)
    reference = distributions.Categorical(logits=tokens).log_prob(words).sum(1)
    torch.testing.assert_close(found[0], reference)


def test_labels_of_minus_one_and_one_and_further_classes_have_their_remedies_too():
    with pytest.raises(ValueError, match=r"got -1.0 to 1.0; labels -1 and 1 become 0 and 1 by `\(y \+ 1\) / 2`"):
        livi.Bernoulli().log_prob(torch.zeros(S, 2), torch.tensor([-1.0, 1.0]))
    with pytest.raises(ValueError, match=r"got 0 to 2; .* more than two classes want Categorical\(\)"):
        livi.Bernoulli().log_prob(torch.zeros(S, 3), torch.tensor([0, 1, 2]))


@pytest.mark.parametrize("likelihood", [livi.Gaussian(), livi.Bernoulli(), livi.Categorical()], ids=repr)
@pytest.mark.parametrize(
    ("outputs", "match"),
    [
        ((torch.zeros(S, B, 2),) * 2, r"got tuple; choose one with forward=lambda net, x: net\(x\)\[0\]"),
        ({"logits": torch.zeros(S, B, 2)}, r"got dict; choose one with forward=lambda net, x: net\(x\)\['logits'\]"),
        ({}, r"got dict; choose one with forward="),
        (None, "got NoneType; choose one with forward="),
    ],
)
def test_several_outputs_want_a_forward_that_chooses_one(likelihood, outputs, match):
    with pytest.raises(TypeError, match=f"outputs: expected one tensor from the network, {match}"):
        likelihood.log_prob(outputs, torch.zeros(B))


def test_probabilities_are_those_of_the_density():
    logits = torch.randn(S, B, 7, 2)
    classes = livi.Categorical().probabilities(logits)
    torch.testing.assert_close(classes.sum(2), torch.ones(S, B, 2))
    for label in range(7):
        log_prob = livi.Categorical().log_prob(logits[..., 0], torch.full((B,), label))
        torch.testing.assert_close(classes[:, :, label, 0].log(), log_prob)
    binary = livi.Bernoulli().probabilities(logits)
    torch.testing.assert_close(binary, distributions.Bernoulli(logits=logits).probs)


# --- any likelihood -------------------------------------------------------------------------------

LIKELIHOODS = {
    "Gaussian": (lambda: livi.Gaussian(0.5), (S, B, 2), lambda: torch.randn(B, 2)),
    "learned Gaussian": (lambda: livi.Gaussian(), (S, B, 2), lambda: torch.randn(B, 2)),
    "HeteroscedasticGaussian": (lambda: livi.HeteroscedasticGaussian(), (S, B, 4), lambda: torch.randn(B, 2)),
    "Bernoulli": (lambda: livi.Bernoulli(), (S, B), lambda: torch.randint(0, 2, (B,))),
    "Multilabel": (lambda: livi.Multilabel(), (S, B, 3), lambda: torch.randint(0, 2, (B, 3))),
    "Categorical": (lambda: livi.Categorical(), (S, B, 3), lambda: torch.randint(0, 3, (B,))),
}
every_likelihood = pytest.mark.parametrize(("build", "shape", "draw"), LIKELIHOODS.values(), ids=LIKELIHOODS.keys())


@every_likelihood
def test_samples_and_examples_do_not_mix(build, shape, draw):
    likelihood, outputs, targets = build(), torch.randn(shape), draw()
    found = likelihood.log_prob(outputs, targets)
    assert found.shape == (S, B)
    for s in range(S):
        for b in range(B):
            single = likelihood.log_prob(outputs[s : s + 1, b : b + 1], targets[b : b + 1])
            torch.testing.assert_close(found[s : s + 1, b : b + 1], single)


@every_likelihood
def test_gradients_agree_with_differences(build, shape, draw):
    likelihood, targets = build(), draw()
    outputs = torch.randn(shape, requires_grad=True)
    assert torch.autograd.gradcheck(lambda outputs: likelihood.log_prob(outputs, targets), (outputs,))


@every_likelihood
def test_single_precision_outputs_give_single_precision_values(build, shape, draw):
    likelihood, targets = build().float(), draw()
    targets = targets.float() if targets.is_floating_point() else targets
    assert likelihood.log_prob(torch.randn(shape, dtype=torch.float32), targets).dtype == torch.float32


def test_users_function_gets_the_modules_outputs_as_they_are():
    outputs = {"rate": torch.rand(S, B), "unused": (torch.zeros(S, 2),)}
    counts = torch.tensor([0.0, 1.0, 2.0, 5.0])
    likelihood = livi.FunctionLikelihood(lambda out, y: distributions.Poisson(out["rate"]).log_prob(y.expand(S, B)))
    expected = distributions.Poisson(outputs["rate"]).log_prob(counts.expand(S, B))
    torch.testing.assert_close(likelihood.log_prob(outputs, counts), expected)


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda out, _: out.sum(), r"\(\)"),
        (lambda out, _: out.mean(0), r"\(4,\)"),
        (lambda out, _: out[..., None], r"\(3, 4, 1\)"),
        (lambda _out, _targets: 1.0, "float"),
    ],
)
def test_users_function_of_another_shape_is_an_error(function, got):
    with pytest.raises(ValueError, match=rf"log_prob: expected shape \(num_samples, batch\), got {got}"):
        livi.FunctionLikelihood(function).log_prob(torch.zeros(S, B), torch.zeros(B))


def test_base_class_has_no_density():
    with pytest.raises(NotImplementedError):
        Likelihood().log_prob(torch.zeros(S, B), torch.zeros(B))


# --- before a fit ---------------------------------------------------------------------------------


def test_a_learned_noise_starts_at_the_spread_of_the_targets():
    before = livi.Gaussian()
    likelihood = before.started_from(torch.tensor([1.0, 3.0, 5.0]))
    torch.testing.assert_close(likelihood.obs_std().detach(), torch.tensor(2.0))
    assert likelihood.log_std.requires_grad
    assert before.obs_std().item() == 1.0


def test_each_of_several_outputs_starts_at_the_spread_of_its_own_targets():
    targets = torch.tensor([[100.0, 3.0, 7.0], [102.0, 5.0, 7.0], [104.0, 7.0, 7.0]]) * torch.tensor([1.0, 2.0, 1.0])
    likelihood = livi.Gaussian().started_from(targets)
    torch.testing.assert_close(likelihood.obs_std().detach(), torch.tensor([2.0, 4.0, 1.0]))
    assert likelihood.log_std.requires_grad
    again = build(spec_of(likelihood), known_classes())
    again.load_state_dict(likelihood.state_dict())
    assert torch.equal(again.obs_std(), likelihood.obs_std())


@pytest.mark.parametrize("shape", [(3, 1), (3, 2, 2)])
def test_other_targets_share_one_noise(shape):
    targets = torch.tensor([1.0, 3.0, 5.0]).reshape(3, *[1] * (len(shape) - 1)).expand(shape)
    likelihood = livi.Gaussian().started_from(targets)
    torch.testing.assert_close(likelihood.obs_std().detach(), torch.tensor(2.0))


@pytest.mark.parametrize("targets", [torch.ones(5), torch.ones(1), torch.ones(0), torch.tensor([1, 1])])
def test_targets_without_a_spread_leave_the_noise_as_it_was(targets):
    assert livi.Gaussian().started_from(targets).obs_std().item() == 1.0


@pytest.mark.parametrize(
    ("likelihood", "expected"),
    [(livi.Gaussian(1.0, learned=True), 1.0), (livi.Gaussian(0.5, learned=True), 0.5), (livi.Gaussian(0.5), 0.5)],
)
def test_a_given_noise_stays_as_given(likelihood, expected):
    assert likelihood.started_from(torch.tensor([1.0, 3.0, 5.0])) is likelihood
    assert likelihood.obs_std().item() == pytest.approx(expected)


@pytest.mark.parametrize("columns", [(3,), (3, 2)])
def test_a_noise_learned_before_is_kept(columns):
    first, second = (torch.randn(columns) * scale for scale in (1.0, 10.0))
    likelihood = livi.Gaussian().started_from(first)
    assert likelihood.started_from(second) is likelihood


def test_the_lower_limit_of_a_learned_noise_is_a_tenth_of_it():
    likelihood = livi.Gaussian(0.5, learned=True)
    [(parameter, limit)] = likelihood.lower_limits()
    assert parameter is likelihood.log_std
    assert math.exp(limit) == pytest.approx(0.05)


def test_each_learned_noise_has_its_own_lower_limit():
    likelihood = livi.Gaussian([0.5, 2.0], learned=True)
    [(parameter, limit)] = likelihood.lower_limits()
    assert parameter is likelihood.log_std
    torch.testing.assert_close(limit.exp(), torch.tensor([0.05, 0.2]))


@pytest.mark.parametrize(
    "likelihood", [livi.Gaussian(0.5), livi.HeteroscedasticGaussian(), livi.Bernoulli(), livi.Categorical()]
)
def test_other_likelihoods_have_no_limits_and_start_from_nothing(likelihood):
    before = {name: value.clone() for name, value in likelihood.state_dict().items()}
    assert likelihood.started_from(torch.tensor([1, 0, 1])) is likelihood
    assert likelihood.lower_limits() == []
    assert likelihood.state_dict() == before


def test_a_wrapper_can_pass_both_on():
    class Tempered(Likelihood):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def started_from(self, targets):
            return Tempered(self.inner.started_from(targets))

        def lower_limits(self):
            return self.inner.lower_limits()

    likelihood = Tempered(livi.Gaussian()).started_from(torch.tensor([1.0, 3.0, 5.0]))
    [(parameter, limit)] = likelihood.lower_limits()
    assert parameter is likelihood.inner.log_std
    assert math.exp(limit) == pytest.approx(0.2)
