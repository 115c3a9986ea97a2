"""Files: what comes back, what damage is found, and what survives a failure in the middle of a write."""

import ast
import copy
import json
import os
import pickle
import random
import stat
import struct
import subprocess
import sys
import textwrap
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import livi
from livi import ImplicitPosterior, Layout, storage
from livi.generators import Generator
from livi.likelihoods import Gaussian, Likelihood
from livi.noise import Noise
from livi.priors import Prior
from livi.spec import Specified
from livi.storage import StorageError, file, flatten_state, load_parts, read, save_posterior, unflatten_state, write


@dataclass
class Fitted:
    """The smallest thing that can be saved."""

    sampler: object
    likelihood: Likelihood = field(default_factory=lambda: Gaussian(0.3))
    prior: Prior | None = None
    buffers: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)
    plan: dict = field(default_factory=dict)


def network(width=4):
    return nn.Sequential(nn.Linear(2, width), nn.ELU(), nn.Linear(width, 1))  # 17 weights


def affine(net=None, **options):
    layout = Layout(network() if net is None else net, **options)
    return Fitted(ImplicitPosterior(layout, livi.Affine(3, layout.num_params)))


def perturbed(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module


def draws(sampler):
    return sampler.sample(5, torch.Generator().manual_seed(7)).detach()


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "posterior.safetensors"


# --- tensors and JSON in a file -------------------------------------------------------------------

TENSORS = {
    "scalar": torch.tensor(1.5),
    "empty": torch.zeros(0, 3),
    "flags": torch.tensor([True, False, True]),
    "counts": torch.tensor([2**62, -1]),
    "bytes": torch.arange(7, dtype=torch.uint8),
    "short": torch.randn(3, dtype=torch.float32).bfloat16(),
    "half": torch.randn(3, dtype=torch.float32).half(),
    "wave": torch.randn(2, dtype=torch.complex64).conj(),
    "strided": torch.arange(12.0).reshape(3, 4).T[::2],
    "odd": torch.tensor([float("nan"), float("-inf"), -0.0]),
    "ключ/key": torch.ones(1),
}


def test_tensors_and_json_come_back(path):
    meta = {"text": "öäü\ud800", "numbers": [1, 2.5, None, True], "nested": {"a": {}}}
    shared = torch.arange(6.0)
    tensors = TENSORS | {"tied": shared, "tied too": shared, "part": shared[2:], "weight": nn.Parameter(shared)}
    write(path, tensors, meta)
    again, found = read(path)
    assert found == meta
    assert again.keys() == tensors.keys()
    for name, tensor in tensors.items():
        torch.testing.assert_close(again[name], tensor.detach(), rtol=0, atol=0, equal_nan=True)
        assert again[name].dtype == tensor.dtype
    assert again["tied"].data_ptr() != again["tied too"].data_ptr()


@pytest.mark.parametrize("dtype", file._CODES, ids=str)
def test_other_readers_of_safetensors_agree(path, dtype):
    tensors = {"a": torch.arange(6).reshape(2, 3).to(dtype), "b": torch.ones(1).to(dtype), "c": torch.ones(3)}
    write(path, tensors, {})
    for name, tensor in safetensors.torch.load_file(path).items():
        assert tensor.dtype == tensors[name].dtype
        same(tensor.view(torch.uint8), tensors[name].view(torch.uint8))


def test_what_was_read_does_not_change_with_the_file(path):
    write(path, {"a": torch.ones(4)}, {})
    tensors, _ = read(path)
    with open(path, "r+b") as handle:
        handle.seek(-8, os.SEEK_END)
        handle.write(struct.pack("<d", 5.0))
    same(tensors["a"], torch.ones(4))


def test_long_json_does_not_burst_the_header(path, monkeypatch):
    monkeypatch.setattr(file, "_LONG", 1000)
    meta = {"history": [{"step": i, "name": "ö"} for i in range(500)]}
    write(path, {"a": torch.ones(2)}, meta)
    tensors, found = read(path)
    assert found == meta
    assert list(tensors) == ["a"]
    with open(path, "rb") as handle:
        assert int.from_bytes(handle.read(8), "little") < 1000


def test_an_existing_file_is_replaced_and_a_link_followed(path, tmp_path):
    write(path, {"a": torch.ones(1)}, {"version": 1})
    link = tmp_path / "latest"
    link.symlink_to(path.name)
    write(link, {"b": torch.ones(2)}, {"version": 2})
    assert link.is_symlink()
    tensors, meta = read(path)
    assert (list(tensors), meta) == (["b"], {"version": 2})
    assert sorted(os.listdir(tmp_path)) == ["latest", "posterior.safetensors"]


def test_a_new_file_has_the_usual_permissions(path, tmp_path):
    (tmp_path / "usual").touch()
    write(path, {}, {})
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)


@pytest.mark.parametrize(
    ("tensors", "meta", "match"),
    [
        (
            {"a": torch.ones(1, dtype=torch.complex128)},
            {},
            "dtype that safetensors has, got .*complex128.*view_as_real",
        ),
        ({"a": torch.ones(2).to_sparse()}, {}, "expected a dense tensor"),
        ({"a": torch.ones(2, device="meta")}, {}, "got meta"),
        ({"__metadata__": torch.ones(2)}, {}, "rename it"),
        ({"livi_meta": torch.ones(2)}, {}, "rename it"),
        ({"a\ud800": torch.ones(2)}, {}, "rename it"),
        ({}, {"a": float("nan")}, "plain JSON, got .*flatten_state"),
        ({}, {"a": object()}, "plain JSON, got .*flatten_state"),
        ({}, {"a": (1, 2)}, "str keys and lists, got .*flatten_state"),
        ({}, {"a": {1: 2}}, "str keys and lists, got .*flatten_state"),
    ],
)
def test_what_the_format_cannot_hold_is_refused_before_writing(path, tensors, meta, match):
    with pytest.raises(StorageError, match=match):
        write(path, tensors, meta)
    assert not path.exists()


def test_a_value_that_is_no_tensor_is_refused(path):
    with pytest.raises(TypeError, match=r"tensors\['a'\]: expected a torch.Tensor, got float"):
        write(path, {"a": 1.0}, {})


def test_a_place_that_cannot_hold_a_file_is_refused(tmp_path, path):
    with pytest.raises(StorageError, match=r"expected an existing folder, got .*nowhere; create it first"):
        write(tmp_path / "nowhere" / "a", {}, {})
    with pytest.raises(StorageError, match="expected the name of a file, got a folder"):
        write(tmp_path, {}, {})
    with pytest.raises(StorageError, match="expected the name of a file, got a folder or a device"):
        write(os.devnull, {}, {})  # replaced by a plain file, it would be missed


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="Permission denied"):
            write(tmp_path / "a", {}, {})
    finally:
        tmp_path.chmod(0o700)


# --- damage ---------------------------------------------------------------------------------------


@pytest.fixture
def sound(path):
    """The bytes of a sound file."""
    write(path, {"a": torch.arange(20.0), "b": torch.tensor(3)}, {"history": [{"step": 1.0, "bound": -12.5}]})
    return path.read_bytes()


def header_length(content):
    return 8 + int.from_bytes(content[:8], "little")


def complaint(path, content):
    path.write_bytes(content)
    with pytest.raises(StorageError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_file_cut_short_anywhere_is_found(path, sound):
    for length in range(len(sound)):
        message = complaint(path, sound[:length])
        assert "expected a complete file" in message or length < 9, (length, message)


def test_a_changed_byte_anywhere_is_found(path, sound):
    rng = random.Random(0)
    for position in range(len(sound)):
        changed = bytearray(sound)
        changed[position] ^= 1 << rng.randrange(8)
        message = complaint(path, bytes(changed))
        assert "expected" in message


def test_bytes_at_the_end_are_found(path, sound):
    assert "damaged" in complaint(path, sound + b"\0")


def pickled():
    return pickle.dumps({"a": list(range(100))})


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "got an empty file of 0 bytes"),
        (b"\x80", "got a pickle or an archive of 1 bytes"),
        (pickled(), "got a pickle or an archive"),
        (b"PK\x03\x04" + bytes(200), "got a pickle or an archive"),
        (b"step,bound\n1,2\n" * 20, "got something else"),
        (b'{"a": 1}' * 20, "got something else"),
        (struct.pack("<Q", 2) + b"{}", "safetensors without livi's metadata"),
        (struct.pack("<Q", 2) + b"{]", "damaged"),
        (struct.pack("<Q", 60_000) + b'{"a":' * 12_000, "damaged"),
        (struct.pack("<Q", 2**63) + b"{}", "got something else"),
    ],
    ids=["empty", "a byte", "pickle", "archive", "text", "json", "bare", "no json", "deep", "huge"],
)
def test_a_foreign_file_is_told_apart(path, content, match):
    assert match in complaint(path, content)


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    with pytest.raises(StorageError, match="expected a file, got none of that name; check the path"):
        read(tmp_path / "none")
    with pytest.raises(StorageError, match="expected a file, got a folder"):
        read(tmp_path)


def test_weights_from_another_library_are_told_apart(path):
    safetensors.torch.save_file({"a": torch.ones(2)}, path, {"format": "pt"})
    with pytest.raises(StorageError, match="without livi's metadata; for bare weights, use safetensors"):
        read(path)


def test_a_newer_format_names_the_livi_that_wrote_it(path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(file, "FORMAT", 7)
        patch.setattr(file, "_version", lambda: "9.1.2")
        write(path, {}, {})
    with pytest.raises(
        StorageError, match=r"format 1 or older, got 7 written by livi 9\.1\.2; this is livi .*upgrade it"
    ):
        read(path)


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 100_000])
def test_json_that_is_none_is_found(path, monkeypatch, text):
    monkeypatch.setattr(file, "_plain", lambda _: text)
    write(path, {}, {})
    with pytest.raises(StorageError, match=r"expected (a JSON object|JSON) in livi_meta"):
        read(path)


def test_no_code_can_come_out_of_a_file():
    """Neither pickle nor anything built on it, no eval, no import by name."""
    folder = Path(storage.__file__).parent
    sources = [*folder.glob("*.py"), folder.parent / "spec.py"]
    assert len(sources) >= 5
    banned = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "importlib.import_module", "runpy"}
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & banned, source
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in {
                    "torch.load",
                    "torch.save",
                    "eval",
                    "exec",
                    "__import__",
                    "importlib.import_module",
                }, source


# --- failures while writing -----------------------------------------------------------------------


class Full:
    """A file on a disk with room for the first bytes only."""

    def __init__(self, handle):
        self.handle, self.room = handle, 300

    def write(self, content):
        self.room -= len(content)
        if self.room < 0:
            raise OSError(28, "No space left on device")
        return self.handle.write(content)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.handle.close()

    def __getattr__(self, name):
        return getattr(self.handle, name)


def fail(*args, **kwargs):
    raise OSError(5, "Input/output error")


def interrupt(*args, **kwargs):
    raise KeyboardInterrupt


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize(
    ("name", "replacement", "expected"),
    [
        ("os.replace", fail, "Input/output error"),
        ("os.fsync", fail, "Input/output error"),
        ("os.listdir", fail, "Input/output error"),
        ("builtins.open", lambda path, mode: Full(open_file(path, mode)), "No space left on device"),
        ("builtins.open", fail, "Input/output error"),
        ("os.fsync", interrupt, None),
        ("os.replace", interrupt, None),
    ],
)
def test_nothing_is_lost_when_a_write_fails(path, tmp_path, monkeypatch, name, replacement, expected, existing):
    if existing:
        write(path, {"a": torch.ones(100)}, {"version": 1})
    before = {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(name, replacement)
        with pytest.raises(KeyboardInterrupt if expected is None else StorageError, match=expected):
            write(path, {"a": torch.zeros(100)}, {"version": 2})
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == before
    write(path, {"a": torch.zeros(100)}, {"version": 2})
    assert read(path)[1] == {"version": 2}


open_file = open


def test_a_folder_that_cannot_be_synchronised_does_no_harm(path, monkeypatch):
    original = os.open

    def refuse(target, flags, *rest, **kwargs):
        if Path(target).is_dir():
            raise OSError(22, "Invalid argument")
        return original(target, flags, *rest, **kwargs)

    monkeypatch.setattr("os.open", refuse)
    write(path, {}, {"version": 1})
    assert read(path)[1] == {"version": 1}


def test_leftovers_of_the_dead_are_removed_and_those_of_the_living_and_others_kept(path, tmp_path):
    dead = tmp_path / f".{path.name}.{'0' * 16}.tmp"
    dead.write_bytes(b"half")
    others = [tmp_path / f".other.{'0' * 16}.tmp", tmp_path / f".{path.name}.notes.tmp", tmp_path / f"{path.name}.tmp"]
    for other in others:
        other.touch()
    with file._temporary(path) as living:
        write(path, {}, {})
        assert not dead.exists()
        assert Path(living.name).exists()
    assert not Path(living.name).exists()
    assert all(other.exists() for other in others)


KILLED_AT_RANDOM = """
import os, random, signal, sys, time
import torch
from livi.storage import read, write

path, folder = sys.argv[1], os.path.dirname(sys.argv[1])
rng = random.Random(int(sys.argv[2]))

def version_of(path):
    tensors, meta = read(path)
    assert all(bool((tensor == meta["version"]).all()) for tensor in tensors.values())
    assert len(tensors) == 4
    return meta["version"]

def go_on_writing(version):
    while True:
        version += 1
        write(path, {str(i): torch.full((500_000,), float(version)) for i in range(4)}, {"version": version})

write(path, {str(i): torch.zeros(500_000) for i in range(4)}, {"version": 0})
last, leftovers, grown = 0, 0, 0
for _ in range(int(sys.argv[3])):
    child = os.fork()
    if child == 0:
        go_on_writing(last)
    time.sleep(rng.uniform(0.0, 0.12))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = version_of(path)
    assert found >= last, (found, last)
    grown += found > last
    last = found
    leftovers += len(os.listdir(folder)) > 1
write(path, {str(i): torch.zeros(500_000) for i in range(4)}, {"version": 0})
assert os.listdir(folder) == [os.path.basename(path)], os.listdir(folder)
print(grown, leftovers)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and kill")
def test_a_writer_killed_at_any_moment_leaves_a_complete_file(path):
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED_AT_RANDOM), str(path), "0", "40"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    grown, leftovers = map(int, result.stdout.split())
    assert grown > 0  # some were written
    assert leftovers > 0  # some were caught in the act


# --- nested state ---------------------------------------------------------------------------------

TENSOR_KINDS = st.sampled_from(
    [
        torch.tensor(1.5),
        torch.arange(3),
        torch.zeros(0, 2),
        torch.tensor([True]),
        torch.tensor([1.0, float("nan")]).bfloat16(),
        torch.Generator().manual_seed(3).get_state(),
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text()) | st.booleans() | st.none()
STATES = st.recursive(
    SCALARS | TENSOR_KINDS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=3).map(OrderedDict)
    ),
    max_leaves=12,
)


def assert_identical(a, b):
    assert type(a) is type(b)
    if isinstance(a, Tensor):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    elif isinstance(a, dict):
        assert list(map(repr, a)) == list(map(repr, b))
        for x, y in zip(a.values(), b.values(), strict=True):
            assert_identical(x, y)
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_identical(x, y)
    elif isinstance(a, float):
        assert struct.pack(">d", a) == struct.pack(">d", b)
    else:
        assert a == b


@settings(max_examples=200, deadline=None)
@given(prefix=st.text(max_size=5), state=STATES)
def test_nested_state_comes_back_exactly(prefix, state):
    tensors, skeleton = flatten_state(prefix, state)
    text = json.dumps(skeleton, allow_nan=False)
    assert all(name.isascii() and name.isprintable() for name in tensors)
    assert_identical(unflatten_state(tensors, json.loads(text)), state)


@settings(max_examples=25, deadline=None)
@given(state=STATES)
def test_nested_state_comes_back_exactly_from_a_file(tmp_path_factory, state):
    path = tmp_path_factory.getbasetemp() / "checkpoint"
    storage.write_checkpoint(path, state)
    assert_identical(storage.read_checkpoint(path), state)


def test_tensors_have_readable_and_different_names():
    one = torch.ones(1)
    tensors, _ = flatten_state("adam", {"state": {0: {"step": one}, "0": {"step": one}}, "state.0": [one], "ä b": one})
    assert list(tensors) == ["adam.state.0.step", "adam.state.0.step~2", "adam.state.0.0", "adam.__b"]


@pytest.mark.parametrize(
    ("state", "match"),
    [
        ({"a": [0, {1}]}, r"run\.a\.1: expected None, numbers, .*got set; convert or drop it"),
        ({"optimiser": {torch.ones(1): 2}}, r"run\.optimiser: expected keys that are .*got Tensor"),
        (lambda: 1, "run: expected .*got function"),
    ],
)
def test_state_of_another_kind_is_named(state, match):
    with pytest.raises(TypeError, match=match):
        flatten_state("run", state)


def test_a_skeleton_without_its_tensors_is_refused():
    _, skeleton = flatten_state("a", {"b": torch.ones(1)})
    with pytest.raises(ValueError, match=r"got tensor 'a.b'; pass all of its tensors"):
        unflatten_state({}, skeleton)
    with pytest.raises(ValueError, match="got object"):
        unflatten_state({}, {"object": {"class": "MLP", "arguments": {}}})


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "NAdam"])
def test_an_interrupted_optimisation_goes_on_bit_for_bit(path, name):
    def start():
        net = network()
        options = {"momentum": 0.9} if name == "SGD" else {}
        optimiser = getattr(torch.optim, name)(net.parameters(), lr=0.01, **options)
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimiser, [2, 3, 3], gamma=0.3)
        return net, optimiser, scheduler, torch.Generator().manual_seed(1)

    def run(net, optimiser, scheduler, rng, steps):
        for _ in range(steps):
            optimiser.zero_grad()
            net(torch.randn(8, 2, generator=rng)).square().mean().backward()
            optimiser.step()
            scheduler.step()

    torch.manual_seed(0)
    net, *rest = start()
    run(net, *rest, 3)
    optimiser, scheduler, rng = rest
    assert isinstance(scheduler.state_dict()["milestones"], Counter)
    parts = {"net": net.state_dict(), "optimiser": optimiser.state_dict(), "scheduler": scheduler.state_dict()}
    storage.write_checkpoint(path, parts | {"rng": rng.get_state()})
    run(net, *rest, 4)

    torch.manual_seed(99)
    again, optimiser, scheduler, rng = start()
    state = storage.read_checkpoint(path)
    again.load_state_dict(state["net"])
    optimiser.load_state_dict(state["optimiser"])
    scheduler.load_state_dict(state["scheduler"])
    rng.set_state(state["rng"])
    run(again, optimiser, scheduler, rng, 4)
    for one, other in zip(net.parameters(), again.parameters(), strict=True):
        same(one, other)
    assert scheduler.state_dict() == rest[1].state_dict()


def test_kinds_of_files_are_told_apart(path):
    storage.write_checkpoint(path, {"step": 1})
    with pytest.raises(StorageError, match="expected a posterior, got a checkpoint"):
        load_parts(path, network())
    save_posterior(path, affine())
    with pytest.raises(StorageError, match="expected a checkpoint, got a posterior"):
        storage.read_checkpoint(path)


# --- posteriors -----------------------------------------------------------------------------------

GENERATORS = {
    "Affine": lambda layout: livi.Affine.for_layout(layout, latent_dim=7),
    "MLP": lambda layout: livi.MLP.for_layout(layout, budget=15.0, latent_dim=4),
    "MLP with skip": lambda layout: livi.MLP.for_layout(layout, activation=nn.Tanh, skip=True, offset=True),
    "MMNN": lambda layout: livi.MMNN.for_layout(layout, budget=12.0, latent_dim=4),
    "MMNN with scale": lambda layout: livi.MMNN.for_layout(
        layout, budget=12.0, latent_dim=4, offset=True, scale_sizes=layout.group_sizes
    ),
    "CMMNN": lambda layout: livi.CMMNN.for_layout(layout, budget=24.0, latent_dim=4),
    "PerLayer": lambda layout: livi.PerLayer.for_layout(layout, budget=24.0),
    "nested": lambda layout: livi.PerLayer(
        [
            livi.PerLayer([livi.Affine(2, 3), livi.MLP(2, 4, hidden=(3,))]),
            livi.MMNN((2, 2), layout.num_params - 7, hidden=[(2, 3)]),
        ]
    ),
}
NOISES = {
    "FixedNoise": lambda layout: livi.FixedNoise(0.1),  # noqa: ARG005
    "LearnedNoise": lambda layout: livi.LearnedNoise(0.1),  # noqa: ARG005
    "LayerNoise": lambda layout: livi.LayerNoise(layout.group_sizes, 0.1),
    "DiagonalNoise": lambda layout: livi.DiagonalNoise(layout.num_params, 0.1),
}
PRIORS = {
    "none": lambda layout: None,  # noqa: ARG005
    "Normal": lambda layout: livi.Normal(0.7),  # noqa: ARG005
    "Normal per layer": lambda layout: livi.Normal.for_layout(layout, per_layer=True, learned=True),
    "Normal by fan-in": lambda layout: livi.Normal.for_layout(layout, fan_in=True),
    "Laplace": lambda layout: livi.Laplace([0.5, 2.0], sizes=layout.group_sizes),
}
LIKELIHOODS = {
    "Gaussian": lambda: livi.Gaussian(0.3),
    "Gaussian, learned": lambda: livi.Gaussian(),
    "HeteroscedasticGaussian": lambda: livi.HeteroscedasticGaussian(0.01),
    "Bernoulli": lambda: livi.Bernoulli(),
    "Multilabel": lambda: livi.Multilabel(),
    "Categorical": lambda: livi.Categorical(ignore_index=3),
    "Weighted": lambda: livi.Weighted(livi.Gaussian()),
}


def test_the_sweeps_below_cover_every_class_of_the_package():
    covered = {name.split(" ")[0].rstrip(",") for name in (*GENERATORS, *NOISES, *PRIORS, *LIKELIHOODS)}
    bases = (Generator, Noise, Prior, Likelihood)
    public = {name for name, value in vars(livi).items() if isinstance(value, type) and issubclass(value, bases)} - {
        "FunctionPrior",
        "FunctionLikelihood",
    }  # these cannot be described
    assert public <= covered


def assert_parts_agree(parts, fitted, theta):
    same(draws(parts.sampler), draws(fitted.sampler))
    for one, other in ((parts.likelihood, fitted.likelihood), (parts.prior, fitted.prior)):
        assert type(one) is type(other)
        if other is not None:
            assert one._spec == other._spec
            assert_identical(dict(one.state_dict()), dict(other.state_dict()))
    if fitted.prior is not None:
        same(parts.prior.log_prob(theta), fitted.prior.log_prob(theta).detach())


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("generator", GENERATORS)
def test_a_posterior_draws_the_same_after_loading(path, generator, prior, likelihood):
    for noise in NOISES.values():
        layout = Layout(network())
        sampler = perturbed(ImplicitPosterior(layout, GENERATORS[generator](layout), noise(layout)))
        made = PRIORS[prior](layout)
        fitted = Fitted(sampler, perturbed(LIKELIHOODS[likelihood]()), made and perturbed(made))
        save_posterior(path, fitted)
        net, before = network(), torch.random.get_rng_state()
        parts = load_parts(path, net)
        same(torch.random.get_rng_state(), before)
        assert_parts_agree(parts, fitted, draws(sampler))


@pytest.mark.parametrize("generator", GENERATORS)
def test_what_was_frozen_stays_frozen(path, generator):
    # Not for its own sake alone: torch rounds products differently where a gradient is required.
    layout = Layout(network())
    sampler = ImplicitPosterior(layout, GENERATORS[generator](layout), livi.LearnedNoise())
    for learned in (True, False):
        save_posterior(path, Fitted(sampler.requires_grad_(learned)))
        again = load_parts(path, network()).sampler
        assert all(parameter.requires_grad is learned for parameter in again.parameters())
        same(draws(again), draws(sampler))
    sampler.noises.requires_grad_(True)
    save_posterior(path, Fitted(sampler))
    found = dict(load_parts(path, network()).sampler.named_parameters())
    assert [name for name, parameter in found.items() if parameter.requires_grad] == ["noises.0.log_std"]


def test_everything_else_comes_back_too(path):
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    fitted = affine(net)
    fitted.buffers = {"1.running_mean": torch.randn(4, 3), "1.running_var": torch.rand(4, 3)}
    fitted.history = [{"step": 1.0, "bound": float("-inf")}, {"step": 2.0, "bound": float("nan")}]
    fitted.plan = {"recipe": {"betas": (0.9, 0.99), "steps": 100}, "entropy": "Exact()", "seed": None}
    save_posterior(path, fitted)
    parts = load_parts(path, copy.deepcopy(net))
    assert_identical(parts.buffers, fitted.buffers)
    assert_identical(parts.history, fitted.history)
    assert_identical(parts.plan, fitted.plan)
    _, meta = read(path)
    assert meta["torch"] == torch.__version__


def test_an_extra_comes_back_and_can_make_the_network(path):
    extra = {"columns": ["a", "b"], "limits": {0: (1.0, float("inf"))}, "table": torch.arange(3)}
    save_posterior(path, affine(), extra=extra)
    asked = []

    def made(found):
        asked.append(found)
        return network()

    parts = load_parts(path, made)
    assert_identical(parts.extra, extra)
    assert_identical(asked, [extra])
    save_posterior(path, affine())
    assert load_parts(path, network()).extra == {}
    with pytest.raises(StorageError, match=r"extra\.columns\.0: expected None, numbers"):
        save_posterior(path, affine(), extra={"columns": [object()]})


def test_mixtures_and_precisions_come_back(path):
    layout = Layout(network().float())
    generators = [livi.Affine(2, 17), livi.MLP(3, 17, hidden=(4,))]
    sampler = ImplicitPosterior(layout, generators, [livi.LearnedNoise(), livi.DiagonalNoise(17)])
    fitted = Fitted(perturbed(sampler), Gaussian(0.1 + 0.2), livi.Normal(1 / 3).double())
    save_posterior(path, fitted)
    torch.set_default_dtype(torch.float32)  # whatever the new process has set
    parts = load_parts(path, network())
    assert_parts_agree(parts, fitted, draws(sampler))
    assert parts.sampler.num_components == 2
    assert parts.likelihood.log_std.dtype == torch.float64


def test_predictions_do_not_depend_on_the_fixed_weights_of_the_network_given(path):
    def made():
        return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))

    torch.manual_seed(1)
    net = made()
    net(torch.randn(50, 2))  # moves the running statistics
    fitted = affine(net, exclude="0.*")
    save_posterior(path, fitted)
    other = made()
    kept = other[2].weight.detach().clone()
    parts = load_parts(path, other)
    theta, x = draws(parts.sampler), torch.randn(4, 2)
    same(parts.sampler.layout.apply(theta[0], x), fitted.sampler.layout.apply(theta[0], x))
    same(other[0].weight, net[0].weight)
    same(other[1].running_var, net[1].running_var)
    same(other[1].num_batches_tracked, net[1].num_batches_tracked)
    same(other[2].weight, kept)  # sampled, so none of our business
    assert other[0].weight.requires_grad

    small = path.with_name("small")
    save_posterior(small, fitted, fixed_weights=False)
    assert small.stat().st_size < path.stat().st_size
    third = made()
    before = copy.deepcopy(third.state_dict())
    load_parts(small, third)
    assert_identical(dict(third.state_dict()), dict(before))


@pytest.mark.parametrize("frozen", [False, True])
def test_what_is_sampled_does_not_depend_on_what_is_frozen_in_the_network_given(path, frozen):
    net = network()
    net[0].requires_grad_(False)  # so that only the head is sampled
    fitted = affine(net)
    save_posterior(path, fitted)
    parts = load_parts(path, network().requires_grad_(not frozen))
    assert parts.sampler.layout.slots == fitted.sampler.layout.slots
    assert parts.sampler.layout.fixed == ("0.weight", "0.bias")
    assert read(path)[1]["layout"]["include"] == ["*"]


def test_everything_goes_to_the_device_of_the_network(path):
    save_posterior(path, affine())
    parts = load_parts(path, network(), device="cpu")
    assert parts.sampler.layout.device == torch.device("cpu")
    net = network()
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(ValueError, match=r"device: expected one that torch can use here, got 'cuda:99' \(.*\); pass"):
        load_parts(path, net, device="cuda:99")
    assert_identical(dict(net.state_dict()), dict(before))


@pytest.mark.parametrize("device", ["mps:7", "gpu", torch.device("cuda", 99)])
def test_a_device_that_is_not_there_is_named(device):
    with pytest.raises(ValueError, match=rf"got '{device}' \(.*\); pass device='cpu', or install"):
        livi.checks.device(device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("saved", "loaded"), [("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")])
def test_a_posterior_moves_between_devices(path, saved, loaded):
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).to(saved)
    fitted = affine(net, exclude="0.*")
    fitted.buffers = {"1.running_mean": torch.zeros(3, device=saved)}
    save_posterior(path, fitted)
    for other, device in ((copy.deepcopy(net).to(loaded), None), (copy.deepcopy(net).cpu(), loaded)):
        parts = load_parts(path, other, device=device)
        tensors = [
            *other.state_dict().values(),
            *parts.sampler.state_dict().values(),
            *parts.likelihood.state_dict().values(),
            *parts.buffers.values(),
            draws(parts.sampler),
        ]
        assert {tensor.device.type for tensor in tensors} == {loaded}
        torch.testing.assert_close(draws(parts.sampler).to(saved), draws(fitted.sampler))


# --- classes of your own --------------------------------------------------------------------------


class Wide(livi.MLP):
    def __init__(self, num_params, *, gain=2):
        super().__init__(gain, num_params, hidden=(3 * gain,), offset=True)


class Rough(livi.FixedNoise):
    pass


class Student(Likelihood):
    def __init__(self, freedom: float) -> None:
        super().__init__()
        self.freedom = nn.Parameter(torch.tensor(freedom))


class Ensemble(Specified, nn.Module):
    """Another kind of sampler: a set of weight vectors."""

    def __init__(self, layout, num_members):
        super().__init__()
        self.layout = layout
        self.register_buffer("members", torch.zeros(num_members, layout.num_params))

    def sample(self, num_samples, rng=None):
        return self.members[torch.randint(len(self.members), (num_samples,), generator=rng)]


def test_classes_of_your_own_come_back(path):
    layout = Layout(network())
    fitted = Fitted(perturbed(ImplicitPosterior(layout, Wide(17, gain=3), Rough(0.2))), Student(3.5))
    save_posterior(path, fitted)
    parts = load_parts(path, network(), classes=[Wide, Rough, Student])
    same(draws(parts.sampler), draws(fitted.sampler))
    assert type(parts.sampler.generators[0]) is Wide
    same(parts.likelihood.freedom, torch.tensor(3.5))
    with pytest.raises(
        StorageError, match=r"custom\.Rough: expected one of the known classes .*pass classes=\[Rough\]"
    ):
        load_parts(path, network(), classes=[Wide, Student])


def test_a_class_of_your_own_is_not_taken_for_livi_s_of_the_same_name(path):
    mine = type("Affine", (livi.Affine,), {})
    layout = Layout(network())
    save_posterior(path, Fitted(ImplicitPosterior(layout, mine(2, 17))))
    with pytest.raises(StorageError, match=r"custom\.Affine: .*pass classes=\[Affine\]"):
        load_parts(path, network())
    assert type(load_parts(path, network(), classes=[mine]).sampler.generators[0]) is mine


def test_another_kind_of_sampler_comes_back(path):
    layout = Layout(network(), exclude="0.bias")
    ensemble = Ensemble(layout, 4)
    ensemble.members.normal_()
    save_posterior(path, Fitted(ensemble))
    parts = load_parts(path, network(), classes=[Ensemble])
    assert type(parts.sampler) is Ensemble
    same(draws(parts.sampler), draws(ensemble))
    assert parts.sampler.layout.slots == layout.slots


def test_a_sampler_without_a_spec_is_refused(path):
    class Bare(nn.Module):
        layout = Layout(network())

    with pytest.raises(StorageError, match=r"sampler: expected an nn\.Module that is a livi.spec.Specified, got Bare"):
        save_posterior(path, Fitted(Bare()))


# --- what cannot be described ---------------------------------------------------------------------


def test_functions_are_left_out_and_passed_again(path):
    layout = Layout(network())

    def likelihood():
        return livi.FunctionLikelihood(lambda outputs, targets: -(outputs.squeeze(-1) - targets).square())

    def prior():
        return livi.FunctionPrior(lambda theta: -theta.square().sum(-1))

    def generator():
        return livi.MLP(3, 17, hidden=(4,), activation=lambda: nn.LeakyReLU(0.3))

    fitted = Fitted(perturbed(ImplicitPosterior(layout, generator())), likelihood(), prior())
    for left_out, match in [
        ([], r"MLP: argument activation: .*leave_out=\['generators'\] and pass generators="),
        (["generators"], r"FunctionLikelihood: argument log_prob: .*leave_out=\['likelihood'\]"),
        (["generators", "likelihood"], r"FunctionPrior: argument log_prob: .*leave_out=\['prior'\] and pass prior="),
    ]:
        with pytest.raises(StorageError, match=match):
            save_posterior(path, fitted, leave_out=left_out)
        assert not path.exists()
    save_posterior(path, fitted, leave_out=["generators", "likelihood", "prior"])
    given = {"generators": generator(), "likelihood": likelihood(), "prior": prior()}
    for name in given:
        with pytest.raises(StorageError, match=f"expected {name}=..., left out when it was saved, got none"):
            load_parts(path, network(), **{other: part for other, part in given.items() if other != name})
    parts = load_parts(path, network(), **given)
    same(draws(parts.sampler), draws(fitted.sampler))
    assert parts.likelihood is given["likelihood"]
    assert parts.prior is given["prior"]


def test_an_object_given_takes_its_weights_from_the_file(path):
    fitted = affine()
    fitted.likelihood = perturbed(Gaussian())
    save_posterior(path, fitted)
    mine = Gaussian(learned=True)
    same(load_parts(path, network(), likelihood=mine).likelihood.log_std, fitted.likelihood.log_std)
    with pytest.raises(StorageError, match=r"weight of the likelihood 'log_std' \(\), got \(no more\)"):
        load_parts(path, network(), likelihood=livi.Bernoulli())
    with pytest.raises(StorageError, match="expected no prior=, since none was saved"):
        load_parts(path, network(), prior=livi.Normal())


@pytest.mark.parametrize("name", ["generator", "sampler", "prior"])
def test_leaving_out_what_is_not_there_is_refused(path, name):
    with pytest.raises(StorageError, match=f"leave_out: expected .*, got .*{name}"):
        save_posterior(path, affine(), leave_out=[name])


def test_an_argument_that_the_sampler_does_not_have_is_refused(path):
    save_posterior(path, affine())
    with pytest.raises(StorageError, match=r"ImplicitPosterior: .*colour"):
        load_parts(path, network(), colour="red")


def test_a_plan_with_an_object_in_it_is_refused(path):
    fitted = affine()
    fitted.plan = {"entropy": livi.Exact()}
    with pytest.raises(StorageError, match=r"plan\.entropy: expected .*got Exact"):
        save_posterior(path, fitted)


def test_a_forward_is_passed_again(path):
    def forward(module, x):
        return 2.0 * module(x)

    fitted = affine(forward=forward)
    save_posterior(path, fitted)
    with pytest.raises(StorageError, match="forward: expected forward=, as when it was fitted, got none"):
        load_parts(path, network())
    layout = load_parts(path, network(), forward=forward).sampler.layout
    theta, x = draws(fitted.sampler)[0], torch.randn(3, 2)
    same(layout.apply(theta, x), fitted.sampler.layout.apply(theta, x))
    save_posterior(path, affine())
    with pytest.raises(StorageError, match="forward: expected no forward=, got one"):
        load_parts(path, network(), forward=forward)


# --- another network ------------------------------------------------------------------------------


class Swapped(nn.Module):
    """Two layers of one shape: names and shapes say nothing if only their order differs."""

    def __init__(self, first, second):
        super().__init__()
        setattr(self, first, nn.Linear(2, 2))
        setattr(self, second, nn.Linear(2, 2))


def tied():
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    return net


def untied():
    return nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))


def normed(affine=True):
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, affine=False, track_running_stats=affine))


@pytest.mark.parametrize(
    ("saved", "given", "options", "match"),
    [
        (network, lambda: network(5), {}, r"parameter '0.weight' \(4, 2\), got '0.weight' \(5, 2\)"),
        (network, lambda: network()[:1], {}, r"parameter '2.weight' \(1, 4\), got \(no more\)"),
        (
            network,
            lambda: nn.Sequential(*network(), nn.Linear(1, 1)),
            {},
            r"parameter \(no more\), got '3.weight' \(1, 1\)",
        ),
        (
            network,
            lambda: nn.Sequential(nn.Identity(), *network()),
            {},
            r"'0.weight' \(4, 2\), got '1.weight' \(4, 2\)",
        ),
        (lambda: Swapped("a", "b"), lambda: Swapped("b", "a"), {}, r"'a.weight' \(2, 2\), got 'b.weight' \(2, 2\)"),
        (tied, untied, {}, r"\(no more\), got '1.weight' \(2, 2\)"),
        (
            network,
            lambda: network().float(),
            {},
            r"expected parameters of torch.float64, got torch.float32; use `net.to",
        ),
        (
            network,
            lambda: nn.Sequential(network()[0].float(), *network()[1:]),
            {"exclude": "0.*"},
            r"fixed weight '0.weight' \(4, 2\) torch.float64, got '0.weight' \(4, 2\) torch.float32",
        ),
        (normed, lambda: normed(False), {}, r"buffer '1.running_mean' \(3,\) torch.float64, got \(no more\)"),
    ],
)
def test_the_first_difference_of_another_network_is_named_and_the_network_left_alone(
    path, saved, given, options, match
):
    save_posterior(path, affine(saved(), **options))
    net = given()
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(StorageError, match=match):
        load_parts(path, net)
    assert_identical(dict(net.state_dict()), dict(before))


class Renamed(nn.Sequential):
    pass


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (lambda: nn.Sequential(network()[0], nn.Tanh(), network()[2]), r"layer 1 ELU\(alpha=1.0\), got 1 Tanh\(\)"),
        (lambda: nn.Sequential(network()[0], nn.ELU(0.5), network()[2]), r"1 ELU\(alpha=1.0\), got 1 ELU\(alpha=0.5\)"),
        (lambda: nn.Sequential(*network(), nn.Sigmoid()), r"layer \(no more\), got 3 Sigmoid\(\)"),
        (lambda: Renamed(*network()), r"layer Sequential\(\), got Renamed\(\)"),
    ],
)
def test_a_layer_of_another_kind_is_named_unless_that_is_meant(path, given, match):
    save_posterior(path, affine())
    with pytest.raises(StorageError, match=f"{match}; pass a network like the one saved, or strict=False"):
        load_parts(path, given())
    load_parts(path, given(), strict=False)


class Talkative(nn.Module):
    """Says of itself what changes no prediction."""

    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(1))])
        self.shared = nn.ReLU()
        self.again = self.shared
        self.drop = nn.Dropout(0.1)
        self.rnn = nn.LSTM(1, 1, num_layers=2, dropout=0.2)

    def extra_repr(self):
        place = self.scales[0].device
        return f"width=1, training={self.training}, device={place}, {place}, at {object()}"


def test_differences_that_change_no_prediction_are_none(path):
    save_posterior(path, affine(Talkative()))
    net = Talkative().eval().requires_grad_(False)
    net.again, net.drop, net.rnn.dropout = nn.ReLU(inplace=True), nn.Dropout(0.9), 0.5
    load_parts(path, net)
    moved = storage.network.layers(Talkative().to("meta"))
    assert moved == storage.network.layers(Talkative())
    assert moved[0] == "Talkative(width=1)"


def test_a_file_from_before_layers_were_stored_is_loaded(path):
    save_posterior(path, affine())
    tensors, meta = read(path)
    del meta["layout"]["layers"]
    write(path, tensors, meta)
    load_parts(path, nn.Sequential(network()[0], nn.Tanh(), network()[2]))


def test_a_network_is_left_alone_when_a_part_cannot_be_built(path):
    layout = Layout(network(), exclude="0.*")
    save_posterior(path, Fitted(ImplicitPosterior(layout, Wide(layout.num_params))))
    net = network()
    before = copy.deepcopy(net.state_dict())
    for options in ({}, {"classes": [Wide], "likelihood": livi.Bernoulli()}, {"generators": livi.Affine(1, 5)}):
        with pytest.raises(StorageError):
            load_parts(path, net, **options)
        assert_identical(dict(net.state_dict()), dict(before))


def test_a_posterior_can_be_saved_in_place_of_the_one_it_was_loaded_from(path):
    fitted = affine()
    save_posterior(path, fitted)
    parts = load_parts(path, network())
    save_posterior(path, parts)
    same(draws(load_parts(path, network()).sampler), draws(fitted.sampler))
