"""Bayesian linear regression in a training loop of one's own, compared with the known posterior.

    python examples/linear_regression.py

The bound should reach the log evidence, and the standard deviation of f(x) its closed form.
"""

import torch
from torch import nn
from torch.distributions import MultivariateNormal

import livi

OBS_STD, PRIOR_STD, STEPS = 0.4, 1.5, 1000


def main() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=rng)
    y = x @ torch.tensor([1.0, -2.0, 0.5]) + 0.3 + OBS_STD * torch.randn(40, generator=rng)

    torch.manual_seed(0)
    layout = livi.Layout(nn.Linear(3, 1))
    print(layout.describe(), "\n")
    generator = livi.Affine.for_layout(layout).init_around(layout.flatten(), spread=0.05)
    posterior = livi.ImplicitPosterior(layout, generator, livi.FixedNoise(0.01))
    bound = livi.Bound(
        posterior,
        livi.Gaussian(OBS_STD),
        livi.Normal(PRIOR_STD),
        num_data=len(x),
        num_samples=16,
        num_entropy_samples=1,
    )
    optimiser = torch.optim.Adam(bound.parameters(), 0.05, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    for step in range(STEPS + 1):
        terms = bound(x, y, rng)
        if step % 200 == 0:
            print(
                f"step {step:4d}  bound {terms.bound:8.2f} = likelihood {terms.log_likelihood:8.2f} "
                f"+ prior {terms.log_prior:6.2f} + entropy {terms.entropy:6.2f}"
            )
        optimiser.zero_grad()
        (-terms.bound).backward()
        optimiser.step()
        schedule.step()

    bound.num_samples = 20_000
    with torch.no_grad():
        reached = bound(x, y, rng).bound
        outputs = livi.apply_many(layout, posterior.sample(20_000, rng), x[:5])[..., 0]
    design = torch.cat([x, torch.ones(40, 1)], 1)
    evidence = MultivariateNormal(torch.zeros(40), PRIOR_STD**2 * design @ design.T + OBS_STD**2 * torch.eye(40))
    covariance = torch.linalg.inv(design.T @ design / OBS_STD**2 + torch.eye(4) / PRIOR_STD**2)
    exact = (design[:5] @ covariance * design[:5]).sum(1).sqrt()
    print(f"\nbound        {reached:8.2f}    log evidence {evidence.log_prob(y):8.2f}")
    print("std of f(x) ", " ".join(f"{value:.4f}" for value in outputs.std(0)))
    print("closed form ", " ".join(f"{value:.4f}" for value in exact))


if __name__ == "__main__":
    main()
