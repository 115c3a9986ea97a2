"""Likelihoods of labels against torch's own, and labels that they must refuse."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, distributions
from torch.nn import functional as F

import livi

S, B = 3, 4


def summed(log_prob: Tensor) -> Tensor:
    """Over the axes behind (S, B)."""
    return log_prob.reshape(*log_prob.shape[:2], -1).sum(2)


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
        (
            (S, B, 3),
            torch.tensor([1, 2, 3, 1]),
            "got 3 in 1 of 4 rows .*; number the classes from 0, and give the network an output",
        ),
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
    with pytest.raises(
        ValueError, match=r"got -1 in \d of \d rows .*; labels -1 and 1 become 0 and 1 by `\(y \+ 1\) / 2`"
    ):
        livi.Bernoulli().log_prob(torch.zeros(S, 2), torch.tensor([-1.0, 1.0]))
    with pytest.raises(ValueError, match=r"got 2 in 1 of 3 rows .* more than two classes want Categorical\(\)"):
        livi.Bernoulli().log_prob(torch.zeros(S, 3), torch.tensor([0, 1, 2]))


@pytest.mark.parametrize("likelihood", [livi.Gaussian(), livi.Bernoulli(), livi.Categorical()], ids=repr)
@pytest.mark.parametrize(
    ("outputs", "match"),
    [
        ((torch.zeros(S, B, 2),) * 2, r"got tuple; choose one with forward=lambda net, x: net\(x\)\[0\]"),
        (
            (torch.zeros(S, B, 2),) * 2,
            r"got tuple; .*, join them with forward=lambda net, x: torch.cat\(net\(x\), -1\), or use",
        ),
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
