"""Networks with a last linear layer, or something similar to one, with data, plans and short fits."""

import torch
from torch import nn

import livi
from livi.inference import Recipe

QUICK = Recipe(steps=60, map_steps=60, map_restarts=2, num_samples=8, num_entropy_samples=2)


def data(count=20, outputs=None):
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(count, 2, generator=rng, dtype=torch.float64)
    y = torch.sin(2 * x[:, 0]) + 0.1 * torch.randn(count, generator=rng, dtype=torch.float64)
    return x, y if outputs is None else torch.stack([(k + 1) * y for k in range(outputs)], 1)


def planned(net, rows=None, likelihood=None, **options):
    return livi.plan(net, rows or data(), likelihood or livi.Gaussian(0.2), **{"recipe": QUICK} | options)


def fitted(net=None, rows=None, likelihood=None, **options):
    options = {"recipe": QUICK, "progress": False, "last_layer": "exact"} | options
    return livi.fit(net or network(), rows or data(), likelihood or livi.Gaussian(0.2), **options)


def made(make):
    torch.manual_seed(0)
    return make()


def sequential(*layers, outputs=1):
    return nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, outputs), *layers)


def network(outputs=1):
    return made(lambda: sequential(outputs=outputs))


class Headed(nn.Module):
    """The last layer to run is defined first, and activations are functions."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(3, 1)
        self.body = nn.ModuleDict({"first": nn.Linear(2, 3)})

    def features(self, x):
        return torch.relu(self.body["first"](x))

    def forward(self, x):
        return self.last(self.features(x))


class Shifted(Headed):
    """Changes the output of the last layer in place: the output is the same tensor object as the layer's."""

    def forward(self, x):
        out = super().forward(x)
        out += 3.0 * x[:, :1]
        return out


class Scaled(Headed):
    def forward(self, x):
        return 2.0 * super().forward(x)


class Pair(Headed):
    def forward(self, left, right):
        return super().forward(torch.stack([left, right], 1))


class Named(Headed):
    def forward(self, x):
        return {"mean": super().forward(x)}


class TwoHeads(Headed):
    """A mean from the last layer, and a raw scale from another layer."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(2, 1)

    def forward(self, x):
        return torch.cat([super().forward(x), self.scale(x)], 1)
