"""What correlations and sizes buy: draws that are taken apart keep their marginals, and the command runs as a whole."""

import json
from types import SimpleNamespace

import pytest
import torch
from support.picture_files import few_steps, write_mnist
from torch import nn

from livi import cli
from livi.experiments.images.ablations import Ablations, IndependentLayers, IndependentWeights, correlations
from livi.experiments.images.text import ablations_text
from livi.network import Layout


class OneNumber:
    """All weights of a draw are the same standard normal number."""

    layout = Layout(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)))  # 6 and 3 weights

    def sample(self, num_samples, rng=None):
        return torch.randn(num_samples, 1, generator=rng).expand(-1, 9).clone()


def correlation(draws, one, other):
    return torch.corrcoef(draws[:, [one, other]].T)[0, 1].item()


def test_layers_apart_are_correlated_inside_and_not_with_each_other():
    draws = IndependentLayers(OneNumber()).sample(4000, torch.Generator().manual_seed(0))
    assert correlation(draws, 0, 5) == pytest.approx(1.0)
    assert correlation(draws, 6, 8) == pytest.approx(1.0)
    assert correlation(draws, 0, 6) == pytest.approx(0.0, abs=4 / 4000**0.5)


def test_weights_apart_keep_their_marginals_and_nothing_else():
    rng = torch.Generator().manual_seed(0)
    draws = IndependentWeights(OneNumber()).sample(4000, rng)
    assert correlation(draws, 0, 5) == pytest.approx(0.0, abs=4 / 4000**0.5)
    columns = draws.sort(0).values
    assert torch.equal(columns[:, 0], columns[:, 8])
    assert IndependentWeights(OneNumber()).sample(3, rng).shape == (3, 9)


def test_correlations_between_layers_are_found_and_ready_for_json():
    whole, apart = (
        correlations(SimpleNamespace(layout=OneNumber.layout, sample=sampler.sample), 0)
        for sampler in (OneNumber(), IndependentLayers(OneNumber()))
    )
    json.dumps(whole, allow_nan=False)
    assert whole["mean_square"][0][1] == pytest.approx(1.0, abs=0.02)
    assert apart["mean_square"][0][1] == pytest.approx(0.0, abs=6 * apart["noise"][0][1])
    assert apart["mean_square"][0][0] == pytest.approx(1.0, abs=0.02)


def test_the_command_runs_from_files_to_table_and_picture(tmp_path, monkeypatch, capsys):
    torch.set_default_dtype(torch.float32)
    few_steps(monkeypatch)
    write_mnist(tmp_path / "data")
    monkeypatch.setenv("LIVI_DATA_DIR", str(tmp_path / "data"))
    command = ["bench", "mnist", "--quick", "--ablations", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    document = json.loads((tmp_path / "mnist-quick-ablations.json").read_text())
    assert [row["variant"] for row in document["rows"]] == list(Ablations("mnist", quick=True).variants)
    assert all(row["error"] is None for row in document["rows"])
    assert document["rows"][3]["latent_dim"] == 16
    assert (tmp_path / "mnist-quick-ablations.png").is_file()
    printed = capsys.readouterr()
    assert "| layers apart | 1 |" in printed.out
    with pytest.raises(SystemExit):
        cli.main([*command, "--methods", "latents few"])


def test_a_variant_that_is_given_twice_is_an_error():
    with pytest.raises(ValueError, match="variants: expected different names, got 'as fitted,as fitted'"):
        Ablations("mnist", ("as fitted", "as fitted"))


def test_the_text_says_what_was_lost_seed_by_seed():
    def row(variant, seed, nll):
        found = {"accuracy": 0.9, "ece": 0.1, "others_mean": None, "bound": -5.0, "seconds": 1.0, "latent_dim": 64}
        told = {"problem": "mnist", "variant": variant, "seed": seed, "error": None, "warnings": []}
        return told | found | {"nll": nll}

    rows = [
        row("as fitted", 1, 0.10),
        row("as fitted", 2, 0.20),
        row("layers apart", 1, 0.13),
        row("layers apart", 2, 0.25),
    ]
    told = ablations_text({"experiment": "mnist ablations", "rows": rows, "notes": []})
    line = "| layers apart | 2 | 0.1900 ± 0.0600 | **90.00** ± 0.00 | **10.00** ± 0.00 | 64 ± 0 | -5 ± 0 | 1.0 ± 0.0 |"
    assert f"{line} 0.0400 ± 0.0100 |" in told
