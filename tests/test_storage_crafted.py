"""Edited model files: a right digest, and JSON that asks for too much memory or makes no sense."""

import copy
import json
import time
from pathlib import Path

import pytest
import torch
from support.crafted_files import write_text
from support.saved_posteriors import affine, network
from support.table_commands import run_python

import livi
from livi.posterior.storage import StorageError, load_parts, read, read_checkpoint, save_posterior, write_checkpoint
from livi.posterior.storage.allowance import Allowance
from livi.tables.model import load_model

FUZZ = """
import json, random, resource, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.crafted_files import mutated, write_text
from livi.posterior.storage import StorageError, read
from livi.tables.model import load_model

def rss():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

model, changed, rng, loaded = Path({model!r}), Path({model!r} + ".changed"), random.Random({seed}), 0
tensors, meta = read(model)
load_model(model)
taken = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (taken + 2**30, taken + 2**30))
before = rss()
for _ in range(150):
    text = json.dumps(mutated(meta, rng))
    write_text(changed, tensors, text)
    try:
        load_model(changed)
        loaded += 1
    except StorageError as error:
        assert "can't allocate" not in str(error) and "bad_alloc" not in str(error), (error, text)
print(loaded, rss() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to limit memory")
@pytest.mark.parametrize("which", [0, 1])
def test_changed_metadata_gives_a_storage_error_or_a_model_within_little_memory(tmp_path, home_models, which):
    (tmp_path / "m.livi").write_bytes(home_models[which])
    script = FUZZ.format(tests=str(Path(__file__).parent), model=str(tmp_path / "m.livi"), seed=which)
    done = run_python(script)
    assert done.returncode == 0, done.stderr[-3000:]
    loaded, megabytes = map(int, done.stdout.split())
    assert 5 < loaded < 100
    assert megabytes < 300


def changed(path, change):
    """The same file after a change of its JSON."""
    tensors, meta = read(path)
    change(meta)
    write_text(path, tensors, json.dumps(meta))
    return path


def refused(path, load):
    started = time.perf_counter()
    with pytest.raises(StorageError) as caught:
        load(path)
    assert time.perf_counter() - started < 5.0
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value)


def generators(meta):
    return meta["specs"]["sampler"]["arguments"]["generators"]


def load_small(path):
    return load_parts(path, network())


@pytest.mark.parametrize("name", ["latent_dim", "num_params"])
def test_sizes_in_a_spec_are_limited_by_the_tensors_of_the_file(tmp_path, name):
    path = tmp_path / "small.livi"
    save_posterior(path, affine())
    changed(path, lambda meta: generators(meta)["object"]["arguments"].update({name: 10**9}))
    said = refused(path, load_small)
    assert "expected parts as large as the tensors in the file" in said
    assert "asks for" in said


@pytest.mark.parametrize(
    "spec",
    [
        {"class": "MLP", "arguments": {"latent_dim": 3, "num_params": 17, "hidden": {"tuple": [10**9]}}},
        {"class": "MLP", "arguments": {"latent_dim": 3, "num_params": 17, "hidden": [3] * 100_000}},
        {
            "class": "MLP",
            "arguments": {"latent_dim": 3, "num_params": 17, "activation": {"class": "torch.nn.Transformer"}},
        },
        {"class": "MMNN", "arguments": {"latent": [2, 2], "num_params": 17, "hidden": [[10**5, 10**6]]}},
        {"class": "PerLayer", "arguments": {"parts": [{"object": {"class": "Affine", "arguments": {}}}]}},
    ],
)
def test_generators_that_do_not_fit_are_refused(tmp_path, spec):
    path = tmp_path / "small.livi"
    save_posterior(path, affine())
    changed(path, lambda meta: meta["specs"]["sampler"]["arguments"].update(generators={"object": spec}))
    refused(path, load_small)


def test_noise_that_would_be_spread_over_many_weights_is_refused(tmp_path):
    path = tmp_path / "small.livi"
    save_posterior(path, affine())
    noise = {"object": {"class": "LayerNoise", "arguments": {"sizes": [10**11], "noise_std": 0.1}}}
    changed(path, lambda meta: meta["specs"]["sampler"]["arguments"].update(noises=noise))
    assert "asks for" in refused(path, load_small)


@pytest.mark.parametrize("depth", [500, 5_000, 200_000])
@pytest.mark.parametrize("key", ["state", "specs", "layout", "left_out"])
def test_lists_within_lists_are_refused(tmp_path, depth, key):
    path = tmp_path / "small.livi"
    save_posterior(path, affine())
    tensors, meta = read(path)
    text = json.dumps(meta | {key: "here"}).replace('"here"', "[" * depth + "]" * depth)
    write_text(path, tensors, text)
    refused(path, load_small)


def test_generators_within_generators_are_refused(tmp_path):
    path = tmp_path / "small.livi"
    save_posterior(path, affine())
    tensors, meta = read(path)
    opening, closing = '{"object": {"class": "PerLayer", "arguments": {"parts": [', "]}}}"
    generators(meta)["object"]["arguments"]["latent_dim"] = "here"
    text = json.dumps(meta).replace('"here"', opening * 2_000 + closing * 2_000)
    write_text(path, tensors, text)
    refused(path, load_small)


@pytest.mark.parametrize("key", ["left_out", "learned", "specs", "state", "layout", "kind"])
def test_metadata_without_one_of_its_parts_is_refused(tmp_path, key):
    path = tmp_path / "small.livi"
    save_posterior(path, affine())
    said = refused(changed(path, lambda meta: meta.pop(key)), load_small)
    assert "expected" in said
    assert "got" in said


def facts(meta, *names):
    """The value under these names in the state's dicts, as a list of one pair."""
    found = meta["state"]
    for name in names:
        pair = next(pair for pair in found["dict"] if pair[0] == name)
        found = pair[1]
    return pair


@pytest.mark.parametrize(
    ("names", "value"),
    [
        (("network", "inputs"), 10**9),
        (("network", "hidden"), {"tuple": [10**6, 10**6]}),
        (("network", "activation"), "nothing"),
        (("params", "num_samples"), 10**12),
        (("params", "n_jobs"), 10**6),
        (("fitted", "n_features_in_"), 10**9),
        (("fitted", "classes_"), {"tuple": ["<U1000000000", ["a", "b"]]}),
        (("fitted", "seed_"), "x"),
        (("class",), "Estimator"),
    ],
)
def test_estimators_that_ask_for_too_much_are_refused(tmp_path, home_models, names, value):
    path = tmp_path / "m.livi"
    path.write_bytes(home_models[1])

    def change(meta):
        facts(meta, "extra", "estimator", *names)[1] = value

    refused(changed(path, change), load_model)


def test_an_error_leaves_the_network_as_it_was(tmp_path):
    path = tmp_path / "small.livi"
    save_posterior(path, affine())
    net = network()
    before = copy.deepcopy(net.state_dict())
    changed(path, lambda meta: meta["learned"].update(sampler=3))
    refused(path, lambda path: load_parts(path, net))
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_a_format_that_is_no_number_is_refused(tmp_path):
    path = tmp_path / "small.livi"
    save_posterior(path, affine())
    path.write_bytes(path.read_bytes().replace(b'"livi_format":"1"', b'"livi_format":"7"'))
    assert "expected format 1 or older" in refused(path, load_small)


def test_a_checkpoint_that_makes_no_sense_is_refused(tmp_path):
    path = tmp_path / "fit.ckpt"
    write_checkpoint(path, {"a": 1.0})
    changed(path, lambda meta: meta.update(state={"dict": [[["a"], 1]]}))
    assert "expected content as livi writes it" in refused(path, read_checkpoint)


def test_an_allowance_counts_what_is_made_and_not_views():
    with Allowance(stored=0) as allowance:
        small = torch.zeros(100)
        left = allowance.left
        small.expand(10**9, 100)[0].add_(1.0)
        assert allowance.left == left
        for make in (
            lambda: small.expand(10**9, 100).clone(),
            lambda: torch.randn(10**6, 10**6, generator=torch.Generator()),
            lambda: small.repeat(10**9),
            lambda: torch.arange(10**12),
        ):
            with pytest.raises(MemoryError, match="asks for"):
                make()
            allowance.left = left


def test_large_posteriors_fit_in_their_allowance(tmp_path):
    net = torch.nn.Sequential(*(torch.nn.Linear(300, 300) for _ in range(20)))
    layout = livi.Layout(net)
    family = livi.ImplicitPosterior(layout, livi.PerLayer.for_layout(layout), livi.LayerNoise(layout.group_sizes))
    save_posterior(tmp_path / "large.livi", type(affine())(family))
    assert (tmp_path / "large.livi").stat().st_size > 2**24
    load_parts(tmp_path / "large.livi", copy.deepcopy(net))
