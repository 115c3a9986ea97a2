"""A variational autoencoder with an implicit encoder, compared with one that has a Gaussian encoder.

    python examples/vae.py                     # half a minute; scikit-learn's digits

The model is x ~ N(decoder(z), 0.2^2), z ~ N(0, I). The encoder gives a q(z | x) for each picture: a Gaussian with
independent latents, or an implicit one, z = mean(x) + std(x) * (e + bend(x, e)) with noise e, which can have
correlations and curved shapes but no known density. Its entropy is estimated as in livi, with the encoder linearised at
e. Both are scored on held-out pictures: ELBO, log p(x) by importance sampling, and for a few pictures the bound of the
best q(z) that `livi.fit_density` finds for each alone, which shows how much of the gap is due to the encoder.
"""

import argparse
import math
from collections.abc import Callable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.distributions import Normal

import livi
from livi.family.entropy import Oriented, importance_log_density

LATENTS, HIDDEN, BATCH = 4, 64, 128
OBS_STD = torch.tensor(0.2)  # of a pixel
NOISE = torch.tensor(0.01)  # of an implicit encoder


class Encoder(nn.Module):
    """q(z | x) = N(mean(x), std(x)^2); if `bent`, a network moves the draws of that Gaussian."""

    def __init__(self, size: int, bent: bool) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(size, HIDDEN), nn.ELU())
        self.gaussian = nn.Linear(HIDDEN, 2 * LATENTS)
        self.bend = nn.Sequential(nn.Linear(HIDDEN + LATENTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, LATENTS))
        self.bent = bent
        for parameter in self.bend[-1].parameters():
            nn.init.zeros_(parameter)  # starts as the Gaussian

    def sampler(self, x: Tensor) -> tuple[Callable[[Tensor], Tensor], Tensor]:
        """The map e -> z, with one e for each picture or many for one picture, and the Gaussian's log std."""
        seen = self.features(x)
        mean, log_std = self.gaussian(seen).chunk(2, 1)

        def sample(e: Tensor) -> Tensor:  # (S, latents) -> (S, latents)
            moved = self.bend(torch.cat([seen.expand(len(e), -1), e], 1)) if self.bent else 0.0
            return mean + log_std.exp() * (e + moved)

        return sample, log_std

    def draw(self, x: Tensor) -> tuple[Tensor, Tensor]:  # (B, latents), (B,)
        """One z for each picture, and the entropy of q(z | x) in nats, estimated there."""
        sample, log_std = self.sampler(x)
        e = torch.randn(len(x), LATENTS)
        if not self.bent:
            return sample(e), (log_std + 0.5 * math.log(2.0 * math.pi * math.e)).sum(1)
        z = sample(e) + NOISE * torch.randn_like(e)
        # e has as many dimensions as z, so that e -> z can fold: `Exact` would reward that, `Oriented` penalises it.
        return z, Oriented()(sample, e, NOISE).nats


def log_joint(decoder: nn.Module, x: Tensor, z: Tensor) -> Tensor:  # (B,)
    return Normal(decoder(z), OBS_STD).log_prob(x).sum(1) + Normal(0.0, 1.0).log_prob(z).sum(1)


def elbo(decoder: nn.Module, encoder: Encoder, x: Tensor) -> Tensor:  # (B,)
    z, entropy = encoder.draw(x)
    return log_joint(decoder, x, z) + entropy


def train(rows: Tensor, bent: bool, epochs: int) -> tuple[nn.Module, Encoder]:
    torch.manual_seed(0)
    decoder, encoder = livi.MLP(LATENTS, rows.shape[1], hidden=(HIDDEN,)), Encoder(rows.shape[1], bent)
    optimiser = torch.optim.Adam([*decoder.parameters(), *encoder.parameters()], 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(len(rows)).split(BATCH):
            loss = -elbo(decoder, encoder, rows[batch]).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
    return decoder.requires_grad_(False), encoder.requires_grad_(False)


def evidence(decoder: nn.Module, encoder: Encoder, x: Tensor) -> Tensor:  # (B,)
    """log p(x) by importance sampling around the modes of p(z | x) found from the encoder's draw and 3 others."""
    starts = torch.stack([encoder.draw(x)[0], *torch.randn(3, len(x), LATENTS)])
    return importance_log_density(decoder, x, OBS_STD, latent_dim=LATENTS, starts=starts).log_prob


def checked_elbo(decoder: nn.Module, encoder: Encoder, x: Tensor, draws: int = 64) -> float:
    """The ELBO of one picture with log q(z | x) by importance sampling over e, as a check of the linearised entropy."""
    sample, _ = encoder.sampler(x)
    e = torch.randn(draws, LATENTS)
    z = sample(e) + NOISE * torch.randn_like(e)
    starts = torch.stack([e, *torch.randn(3, draws, LATENTS)])
    log_q = importance_log_density(sample, z, NOISE, latent_dim=LATENTS, starts=starts).log_prob
    return float((log_joint(decoder, x, z) - log_q).mean())


def best_bound(decoder: nn.Module, encoder: Encoder, x: Tensor, steps: int) -> float:
    """The bound on log p(x) of the q(z) that is fitted to this picture alone."""
    start = encoder.draw(x)[0][0]
    q = livi.fit_density(
        lambda z: log_joint(decoder, x, z), LATENTS, start=start, spread=0.3, steps=steps, progress=False
    )
    return q.bound.value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument(
        "--pictures", type=int, default=5, help="pictures with a q(z) fitted to each (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=500, help="steps of each of these fits (default: %(default)s)")
    chosen = parser.parse_args()
    digits = torch.tensor(load_digits().data / 16.0, dtype=torch.float32)
    digits = digits[torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))]
    rows, held_out = digits[:1400], digits[1400:]
    print(f"{len(held_out)} held-out digits        ELBO   log p(x)   gap  | of {chosen.pictures} of them:")
    for name, bent in (("Gaussian encoder", False), ("implicit encoder", True)):
        decoder, encoder = train(rows, bent, chosen.epochs)
        bound = torch.stack([elbo(decoder, encoder, held_out) for _ in range(20)]).mean()
        exact = evidence(decoder, encoder, held_out).mean()
        line = f"{name:<23} {bound:8.2f}   {exact:8.2f}  {exact - bound:4.2f}  | "
        some = held_out[: chosen.pictures].split(1)
        if bent and some:
            linear = torch.stack([elbo(decoder, encoder, held_out[: len(some)]) for _ in range(64)]).mean()
            by_sampling = sum(checked_elbo(decoder, encoder, x) for x in some) / len(some)
            line += f"ELBO {linear:.2f}, by importance sampling {by_sampling:.2f}; "
        if some:
            alone = sum(best_bound(decoder, encoder, x, chosen.steps) for x in some) / len(some)
            known = evidence(decoder, encoder, held_out[: len(some)]).mean()
            line += f"fitted alone {alone:.2f}, log p(x) {known:.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
