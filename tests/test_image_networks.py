"""Networks of the image experiments: how many weights, and what their norms depend on."""

import pytest
import torch

from livi.experiments.networks import Norm, ResponseNorm, lenet, resnet20, wide_resnet


def weights(net):
    return sum(parameter.numel() for parameter in net.parameters())


@pytest.mark.parametrize(
    ("make", "shape", "count"),
    [
        (lenet, (1, 28, 28), 61_706),
        (lambda: lenet(padding=0), (1, 28, 28), 44_426),  # the paper's
        (resnet20, (3, 32, 32), 269_722),
        (lambda: resnet20(norm="group"), (3, 32, 32), 269_722),
        (lambda: resnet20(norm="response"), (3, 32, 32), 269_722 + 688),  # a threshold for each of 688 channels
        (wide_resnet, (3, 32, 32), 2_748_890),
        (lambda: wide_resnet(norm="group"), (3, 32, 32), 2_748_890),
        (lambda: wide_resnet(norm="response"), (3, 32, 32), 2_748_890 + 1_808),
        (lambda: wide_resnet(28, 10, classes=100), None, 36_536_884),  # 36,518,932 without those of BatchNorm
    ],
)
def test_parameter_counts(make, shape, count):
    net = make()
    assert weights(net) == count
    if shape is not None:
        assert net(torch.randn(2, *shape)).shape == (2, 10)


@pytest.mark.parametrize("make", [resnet20, lambda norm: wide_resnet(10, 1, norm=norm)])
@pytest.mark.parametrize("norm", ["group", "response"])
def test_without_batch_norm_a_picture_is_answered_by_itself(make, norm):
    torch.manual_seed(0)
    net, pictures = make(norm=norm).double().train(), torch.randn(3, 3, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(net(pictures)[:1], net(pictures[:1]))


def test_response_norm_has_a_root_mean_square_of_one_and_its_threshold_begins_as_relu():
    layer, x = ResponseNorm(4).double(), 5.0 * torch.randn(2, 4, 6, 6, dtype=torch.float64) + 3.0
    torch.testing.assert_close(layer(x).square().mean((2, 3)), torch.ones(2, 4, dtype=torch.float64))
    torch.testing.assert_close(Norm.named("response").active(4).double()(x), layer(x).relu())


def test_an_unknown_norm_is_an_error():
    with pytest.raises(ValueError, match="norm: expected one of batch, group, response, got 'layer'"):
        resnet20(norm="layer")
