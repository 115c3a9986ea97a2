"""The entropy of a VAE's decoder: estimates where it is known, and a miniature of the benchmark."""

import json
import math
import runpy
import sys
from pathlib import Path

import pytest
import torch

import livi
from livi import cli
from livi.experiments import entropy_bench
from livi.experiments.entropy_bench import Config, controls, encoder_log_density, estimates, measured
from livi.experiments.vae import VAE, train
from livi.report.entropy import draw

TINY = {"epochs": 2, "latent_dim": 3, "hidden": 8, "draws": 32, "importance": 16}


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def affine():
    """A VAE with an affine decoder, whose q is a Gaussian, and that Gaussian."""
    torch.manual_seed(0)
    vae = VAE(6, 3, 8, 0.1)
    vae.decoder = livi.Affine(3, 6)
    with torch.no_grad():
        vae.decoder.skip.copy_(torch.randn(6, 3) * torch.tensor([1.0, 0.5, 0.05]))
        vae.decoder.offset.copy_(torch.randn(6))
    covariance = vae.decoder.skip @ vae.decoder.skip.T + 0.01 * torch.eye(6)
    return vae, torch.distributions.MultivariateNormal(vae.decoder.offset.detach(), covariance.detach())


def test_of_an_affine_decoder_every_estimate_but_the_bound_is_the_known_entropy(affine):
    vae, exact = affine
    found = estimates(vae, Config(data=("digits",), latent_dim=3, draws=2000), 0)
    for name in ("importance", "exact-terms"):
        assert found[name]["nats"] == pytest.approx(float(exact.entropy()), abs=0.02), name
    # In the limit of small noise alone: one singular value is not large against it.
    assert found["exact"]["error_nats"] == pytest.approx(0.0, abs=0.02)
    assert found["lanczos"]["error_nats"] == pytest.approx(0.0, abs=0.1)
    assert found["smallest"]["error_nats"] < -1.0
    assert found["encoder"]["error_nats"] > 0.0  # not trained, and a log of too few draws lies below


def test_what_is_subtracted_from_log_densities_has_mean_zero():
    torch.manual_seed(0)
    vae, count = VAE(6, 3, 8, 0.1), 20_000
    for values in controls(vae, torch.randn(count, 3), torch.randn(count, 6)):
        assert abs(float(values.mean())) < 4.0 * float(values.std()) / math.sqrt(count)
        assert float(values.std()) > 0.1


def test_the_encoder_as_a_proposal_finds_the_density_where_it_is_good(affine):
    vae, exact = affine
    x = exact.sample((50,))
    with torch.no_grad():  # p(z | x) has a mean that is linear in x, and a covariance that is not diagonal
        mean = (x - exact.loc) @ torch.linalg.inv(exact.covariance_matrix) @ vae.decoder.skip
        root = torch.linalg.inv(torch.eye(3) + vae.decoder.skip.T @ vae.decoder.skip / 0.01).diagonal().sqrt()
    vae.encoded = lambda _: (mean, 2.0 * root.expand_as(mean))
    with torch.no_grad():
        log_q, effective = encoder_log_density(vae, x, 4000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(log_q.float(), exact.log_prob(x), rtol=0, atol=0.4)
    assert (effective > 20).all()


def test_training_raises_the_elbo():
    rows = torch.rand(300, 2) @ torch.rand(2, 6)
    torch.manual_seed(0)
    vae, rng = VAE(6, 2, 16, 0.1), torch.Generator().manual_seed(0)
    before = float(vae.elbo(rows, rng).mean().detach())
    assert list(train(vae, rows, 30, rng)) == list(range(31))
    assert float(vae.elbo(rows, rng).mean().detach()) > before + 3.0


def test_looks_begin_at_the_start_and_end_at_the_end():
    assert measured(1) == [0, 1]
    assert measured(100)[0] == 0
    assert measured(100)[-1] == 100
    assert len(measured(100)) <= 17


def test_the_benchmark_in_miniature(tmp_path, capsys):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    small = ["--only", "digits", "--seeds", "0,1", "--epochs", "1", "--draws", "8", "--out", str(tmp_path)]
    assert cli.main(["bench", "entropy", *small, "--figure", str(tmp_path / "curves.png")]) == 0
    out = capsys.readouterr().out
    assert "Importance sampling, the truth, takes " in out
    assert "| digits | smallest | 2 | " in out
    document = json.loads((tmp_path / "entropy.json").read_text())
    assert [row["seed"] for row in document["rows"]] == [0, 1]
    assert [point["epoch"] for point in document["rows"][0]["curve"]] == [0, 1]
    assert {"config", "versions", "machine", "summary"} <= document.keys()
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    assert cli.main(["bench", "entropy", *small]) == 0
    assert "going on after 2 of 2" in capsys.readouterr().err


def test_a_training_that_fails_is_a_row_and_the_table_has_the_others(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")

    def failing(vae, config, seed):
        if seed == 1:
            raise ArithmeticError("no luck")
        return estimates(vae, config, seed)

    monkeypatch.setattr(entropy_bench, "estimates", failing)
    config = Config(data=("digits",), seeds=(1, 0), **TINY)
    document = entropy_bench.bench(config, tmp_path, say=lambda _: None)
    assert [row["error"] for row in document["rows"]] == ["ArithmeticError: no luck", None]
    told = entropy_bench.text(document)
    assert "| digits | smallest | 1 | " in told
    assert "| digits | every | 0, 1 failed | " in told
    pytest.importorskip("matplotlib")
    assert draw([tmp_path / "entropy.json"], tmp_path / "curves.png") == [tmp_path / "curves.png"]


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="data: expected some of weights, digits, mnist, got 'faces'"):
        Config(data=("faces",))
    with pytest.raises(ValueError, match="methods: expected"):
        Config(data=("digits",), methods=("guess",))
    with pytest.raises(ValueError, match="seeds: expected different numbers"):
        Config(data=("digits",), seeds=(1, 1))


def test_the_example_of_an_implicit_encoder_runs(monkeypatch, capsys):
    pytest.importorskip("sklearn")
    example = Path(__file__).resolve().parents[1] / "examples" / "vae.py"
    monkeypatch.setattr(sys, "argv", ["vae.py", "--epochs", "2", "--pictures", "1", "--steps", "10"])
    runpy.run_path(str(example), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line[:16] for line in lines[1:]] == ["Gaussian encoder", "implicit encoder"]
    assert "by importance sampling" in lines[2]


def test_settings_of_rivals_and_densities_are_compared_by_one_command():
    from benchmarks.choose_rivals import DENSITIES, SETTINGS, run, table

    assert DENSITIES["ring"][2] == pytest.approx(
        math.log(2.0 * math.pi * 2.0 * 0.4 * math.sqrt(2.0 * math.pi)), abs=1e-3
    )
    rows = [run(("mnf", setting, "rings", 0), 3) for setting in ("default", "1 step")]
    rows.append(rows[0] | {"seed": 1, "score": None})
    rows += [rows[1] | {"setting": setting} for setting in list(SETTINGS["mnf"])[2:]]
    lines = table(rows, "mnf").splitlines()
    assert lines[0] == "| mnf | rings |"
    assert lines[2].endswith(", 1 failed |")
    assert len(lines) == 2 + len(SETTINGS["mnf"])
    assert math.isfinite(run(("density", "cold", "curve", 0), 3)["score"])
