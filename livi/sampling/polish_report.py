"""How a polish by Markov chains went."""

from __future__ import annotations

from dataclasses import dataclass

from livi.posterior.posterior import Posterior


@dataclass(frozen=True)
class PolishReport:
    """How a polish went; `print` it. R-hat and effective sizes are of the draws that were kept.

    Predictions are followed at up to 32 training inputs (means and standard deviations, or probabilities). Weights are
    not: networks with their units in another order are the same, and chains need not agree on the order.

    Attributes:
        gradients: of the log joint density on all data, for each chain.
        energy_error: mean squared energy error of a step per weight, median over chains.
        step_size: median over chains.
        failed: share of steps that were not taken, for their error was hopeless.
        dropped: what became of the chains that are left out.
        rhat: of the predictions, median and worst; 1 where all chains say the same.
        effective: sample size of the predictions, median and least.
        weights: of the chains that were kept, where they are stacked; () where they are equal.
        temperatures, ancestors, log_evidence: where chains came from the prior, through how many temperatures, from how
            many of its draws, and the estimate of log p(D) that it gives, scales and noise being what they are.
    """

    chains: int
    draws: int
    steps: int
    gradients: int
    seconds: float
    energy_error: float
    step_size: float
    length: float
    failed: float
    dropped: list[str]
    rhat: tuple[float, float]
    effective: tuple[float, float]
    rhat_log_joint: float
    effective_log_joint: float
    log_joint: float
    weights: tuple[float, ...] = ()
    temperatures: int = 0
    ancestors: int = 0
    log_evidence: float | None = None

    @classmethod
    def of(cls, posterior: Posterior) -> PolishReport:
        """The report on a polished posterior, which its file keeps too."""
        if "polish" not in posterior.plan:
            raise ValueError("posterior: expected one that livi.polish returned, got one that is not polished.")
        facts = dict(posterior.plan["polish"])
        pairs = {name: tuple(facts.get(name, ())) for name in ("rhat", "effective", "weights")}
        return cls(**facts | pairs)

    def __str__(self) -> str:
        lines = [
            f"{self.draws} draws of {self.chains} microcanonical Langevin chains, {self.steps:,} steps each, in "
            f"{self.seconds:.1f} s",
            f"  predictions   R-hat {self.rhat[0]:.2f} (worst {self.rhat[1]:.2f}), effective draws "
            f"{self.effective[0]:.0f} (least {self.effective[1]:.0f})",
            f"  log joint     {self.log_joint:.1f} nats, R-hat {self.rhat_log_joint:.2f}, effective draws "
            f"{self.effective_log_joint:.0f}",
            f"  steps         of {self.step_size:.2g}, squared energy error per weight {self.energy_error:.1e}, "
            f"{self.failed:.1%} not taken",
        ]
        if self.log_evidence is not None:
            lines.append(
                f"  from the prior through {self.temperatures} temperatures, of {self.ancestors} draws; log evidence "
                f"{self.log_evidence:.1f} nats"
            )
        if self.weights:
            counted = 1.0 / sum(weight**2 for weight in self.weights)
            lines.append(
                f"  chains        stacked, worth {counted:.1f} equal ones; the largest weight {max(self.weights):.2f}"
            )
        return "\n".join(lines + [f"  left out      {text}" for text in self.dropped])
