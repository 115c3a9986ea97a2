"""Specs: objects from JSON, whoever wrote their class, and values back exactly."""

import copy
import json
import math
import pickle
import struct
from collections import Counter, OrderedDict, namedtuple
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

import livi
from livi import CMMNN, MLP, MMNN, Affine, Layout, PerLayer
from livi.family.generators import Generator, Head
from livi.model.likelihoods import Likelihood
from livi.spec import NotSpecifiedError, Specified, build, class_name, from_json, known_classes, spec_of, to_json


def rebuilt(specified, *classes):
    return build(json.loads(json.dumps(spec_of(specified))), known_classes(classes))


class Plain(Specified):
    def __init__(self, first, /, second, *rest, third=3, fourth=None, **others):
        self.call = first, second, rest, third, fourth, others


class Tuned(MLP):
    """A user's generator: other arguments than its base, which it calls with its own."""

    def __init__(self, num_params, gain=2.0, **extras):
        super().__init__(4, num_params, hidden=(int(3 * gain),), **extras)
        self.gain = gain


class Sine(nn.Module):
    def forward(self, x):
        return x.sin()


class Named:
    """Not a Specified; its __init__ comes first in `Mixed`."""

    def __init__(self, title, **others):
        super().__init__(**others)
        self.title = title


class Mixed(Named, Likelihood):
    pass


@dataclass(frozen=True)
class Options(Specified):
    size: int
    names: tuple[str, ...] = ("a",)


class Configured(Specified):
    def __init__(self, options, shape):
        self.options, self.shape = options, shape


# --- objects --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1, 2), {}),
        ((1,), {"second": 2}),
        ((1, 2, "x", "y"), {"third": None}),
        ((1, (2, [3.5])), {"fourth": True, "fifth": {"a": 1}}),
    ],
)
def test_every_way_of_passing_arguments_comes_back(args, kwargs):
    assert rebuilt(Plain(*args, **kwargs), Plain).call == Plain(*args, **kwargs).call


def test_defaults_are_written_down():
    arguments = spec_of(MLP(3, 4))["arguments"]
    assert arguments == {
        "latent_dim": 3,
        "num_params": 4,
        "hidden": {"tuple": [128]},
        "activation": {"class": "torch.nn.ELU"},
    }


def test_the_outermost_call_counts():
    generator = Tuned(8, gain=1.5, skip=True)
    assert spec_of(generator) == {
        "class": "custom.Tuned",
        "arguments": {"num_params": 8, "gain": 1.5, "skip": True},
    }
    again = rebuilt(generator, Tuned)
    assert (type(again), again.gain, again.skip.shape) == (Tuned, 1.5, (8, 4))
    assert [p.shape for p in again.parameters()] == [p.shape for p in generator.parameters()]


def test_an_init_from_elsewhere_in_the_bases_counts():
    again = rebuilt(Mixed("words"), Mixed)
    assert (type(again), again.title) == (Mixed, "words")


def test_a_class_without_an_init_needs_no_arguments():
    assert spec_of(livi.Bernoulli()) == {"class": "Bernoulli", "arguments": {}}
    assert type(rebuilt(livi.Bernoulli())) is livi.Bernoulli


def test_objects_in_arguments_come_back():
    heads = [Head((2, 2), ((3, 3),), (2, 4), keep=7), Head((1, 2), (), (1, 1))]
    generator = CMMNN((2, 2), 8, trunk=[(3, 3)], heads=heads, activation=nn.Tanh, offset=True)
    again = rebuilt(generator)
    assert again.head_shapes == tuple(heads)
    assert isinstance(again.activation, nn.Tanh)
    assert again.offset is not None
    nested = rebuilt(PerLayer([PerLayer([Affine(1, 2), MMNN((2, 2), 4, hidden=[(2, 2)])]), MLP(2, 3)]))
    assert [type(part) for part in nested.parts] == [PerLayer, MLP]
    assert [type(part) for part in nested.parts[0].parts] == [Affine, MMNN]
    again = rebuilt(Configured(Options(3, names=("b", "c")), torch.Size([2, 3])), Configured, Options)
    assert (again.options, again.shape) == (Options(3, ("b", "c")), (2, 3))


def test_an_activation_of_your_own_is_found_by_its_class():
    generator = MLP(3, 4, hidden=(5,), activation=Sine)
    assert isinstance(rebuilt(generator, Sine).body[1], Sine)
    with pytest.raises(ValueError, match=r"custom\.Sine: expected one of the known classes .*pass classes=\[Sine\]"):
        rebuilt(generator)


def test_tensors_come_back_by_shape_and_dtype():
    prior = livi.Normal(torch.full((5,), 3.0, dtype=torch.float32))
    assert spec_of(prior)["arguments"]["scale"] == {"tensor": {"shape": [5], "dtype": {"dtype": "float32"}}}
    again = rebuilt(prior)
    again.load_state_dict(prior.state_dict())
    torch.testing.assert_close(again.scale(), prior.scale(), rtol=0, atol=0)


def test_later_changes_to_an_argument_do_not_matter():
    sizes = [3, 4]
    noise = livi.LayerNoise(sizes)
    sizes.append(5)
    assert rebuilt(noise).sizes == (3, 4)


@pytest.mark.parametrize(
    "specified",
    [
        MLP(2, 3, activation=nn.Tanh),
        MLP(2, 3, activation=lambda: nn.LeakyReLU(0.3)),  # pickled without its activation's factory, as before
        PerLayer([Affine(1, 2), Affine(2, 2)]),
        livi.LayerNoise([1, 2]),
        livi.Laplace(torch.ones(2), learned=True),
        livi.Gaussian(0.5),
        livi.Categorical(ignore_index=3),
        Head((1, 2), (), (3, 4), keep=5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_copies_and_pickles_keep_the_spec(specified):
    for again in (copy.copy(specified), copy.deepcopy(specified), pickle.loads(pickle.dumps(specified))):
        assert type(again) is type(specified)
        assert again._spec == specified._spec
        if isinstance(specified, nn.Module):
            assert list(again.state_dict()) == list(specified.state_dict())


def test_a_replaced_dataclass_has_a_spec_of_its_own():
    head = replace(Head((1, 2), (), (3, 4)), keep=5)
    assert head == Head((1, 2), (), (3, 4), keep=5)
    assert rebuilt(head) == head
    assert hash(rebuilt(head)) == hash(head)


def test_a_wrong_call_gives_the_class_s_own_error():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'num_params'"):
        MLP(3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        livi.Gaussian(colour="red")


def test_building_says_which_class_refused_which_arguments():
    spec = spec_of(MLP(3, 4)) | {"arguments": {"latent_dim": 3, "num_params": 4, "colour": "red"}}
    with pytest.raises(ValueError, match=r"MLP: .*\['colour', 'latent_dim', 'num_params'\].*'colour'"):
        build(spec, known_classes())


def test_given_arguments_take_the_place_of_the_spec_s():
    posterior = livi.ImplicitPosterior(Layout(nn.Linear(2, 1)), Affine(2, 3), livi.LearnedNoise(0.5))
    spec = spec_of(posterior, without=("layout", "generators"))
    assert list(spec["arguments"]) == ["noises"]
    again = build(spec, known_classes(), layout=posterior.layout, generators=Affine(1, 3))
    assert again.generators[0].latent_dim == 1
    assert type(again.noises[0]) is livi.LearnedNoise


# --- what cannot be described ---------------------------------------------------------------------


def a_function(theta):
    return theta.sum(-1)


@pytest.mark.parametrize(
    ("specified", "argument", "match"),
    [
        (livi.FunctionPrior(a_function), "log_prob", r"FunctionPrior: argument log_prob: .*got function a_function"),
        (livi.FunctionLikelihood(lambda o, t: o - t), "log_prob", r"FunctionLikelihood: .*got function .*<lambda>"),
        (MLP(2, 3, activation=lambda: nn.ELU()), "activation", r"MLP: argument activation: "),
        (PerLayer([Affine(1, 1), MLP(1, 2, activation=nn.ELU)]), None, None),
        (PerLayer([Affine(1, 1), MLP(1, 2, activation=lambda: nn.ELU())]), "parts", r"MLP: argument activation: "),
        (Plain(1, {"key": (1, object())}), "second", r"custom\.Plain: argument second\.key\.1: .*got object"),
        (Plain(1, {object(): 1}), "second", r"argument second: .*got dict \(.*keys"),
        (Plain(1, namedtuple("Point", "x y")(1, 2)), "second", r"argument second: .*got Point"),
        (Plain(1, nn.ELU()), "second", r"argument second: .*got ELU"),
    ],
)
def test_a_value_without_a_json_form_is_named(specified, argument, match):
    if argument is None:
        assert spec_of(specified)["class"] == "PerLayer"
        return
    with pytest.raises(NotSpecifiedError, match=match) as caught:
        spec_of(specified)
    assert caught.value.argument == argument


def test_a_list_in_itself_is_found_out_when_described_only():
    circle = [1]
    circle.append(circle)
    with pytest.raises(NotSpecifiedError, match="second"):
        spec_of(Plain(1, circle))


# --- looking classes up ---------------------------------------------------------------------------


def test_names_tell_your_classes_from_the_package_s():
    mine = type("MLP", (MLP,), {})
    assert (class_name(MLP), class_name(mine), class_name(nn.ELU)) == ("MLP", "custom.MLP", "torch.nn.ELU")
    assert type(rebuilt(MLP(1, 2), mine)) is MLP
    assert type(rebuilt(mine(1, 2), mine)) is mine


def test_every_class_of_the_package_is_known():
    known = known_classes()
    for name in (*livi.family.generators.__all__, *livi.__all__):
        found = getattr(livi, name, None) or getattr(livi.family.generators, name)
        if isinstance(found, type) and issubclass(found, Specified):
            assert known[name] is found
    assert {"Affine", "CMMNN", "DiagonalNoise", "Head", "ImplicitPosterior", "Laplace", "Multilabel"} <= known.keys()


def test_two_classes_of_one_name_are_refused():
    with pytest.raises(ValueError, match="expected different names"):
        known_classes([type("Twin", (MLP,), {}), type("Twin", (MLP,), {})])
    with pytest.raises(TypeError, match="expected classes, got 'MLP'"):
        known_classes(["MLP"])


@pytest.mark.parametrize(
    "name", ["torch.nn.init", "torch.nn.functional", "torch.nn.Parameter", "torch.nn.Module.__init__", "os.system", ""]
)
def test_only_module_classes_are_looked_up_in_torch(name):
    with pytest.raises(ValueError, match="expected one of the known classes"):
        build({"class": "MLP", "arguments": {"activation": {"class": name}}}, known_classes())


def test_only_specified_classes_are_called():
    with pytest.raises(ValueError, match=r"expected a subclass of livi\.spec\.Specified"):
        build({"class": "torch.nn.Linear", "arguments": {"in_features": 2, "out_features": 3}}, {})
    with pytest.raises(ValueError, match="expected a known tag, got 'call'"):
        build({"class": "MLP", "arguments": {"activation": {"call": "os.system"}}}, known_classes())


def test_a_package_class_that_is_not_imported_says_so():
    with pytest.raises(ValueError, match="import the part of livi that defines it"):
        build({"class": "Nobody", "arguments": {}}, known_classes())


# --- values ---------------------------------------------------------------------------------------


def refuse(*values):
    raise TypeError(values)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {0: "int", "0": "str", 1.5: "float", (1, "a"): "tuple", None: "none", True: []},
        (1, (), [(2,)], {}),
        [10**30, -0.0, 5e-324, 1.7976931348623157e308, 0.1],
        OrderedDict(b=1, a=2),
        Counter([30, 60, 30]),
        {"unknown": [1], "tuple": [2], "object": {"class": 1}},
        torch.bfloat16,
        "\ud800 lone and \x00 odd",
    ],
)
def test_values_come_back_through_json(value):
    again = from_json(json.loads(json.dumps(to_json(value, refuse), allow_nan=False)), refuse)
    assert again == value
    assert repr(again) == repr(value)


@pytest.mark.parametrize("bits", ["7ff0000000000000", "fff0000000000000", "7ff8000000000000", "fff8000000000123"])
def test_infinite_and_undefined_floats_keep_every_bit(bits):
    [value] = struct.unpack(">d", bytes.fromhex(bits))
    assert not math.isfinite(value)
    again = from_json(json.loads(json.dumps(to_json(value, refuse), allow_nan=False)), refuse)
    assert struct.pack(">d", again).hex() == bits


@pytest.mark.parametrize("value", [{}, {"tuple": [], "float": ""}, {"dtype": "Tensor"}, {"dtype": "nn"}])
def test_json_from_elsewhere_is_refused(value):
    with pytest.raises(ValueError, match="expected"):
        from_json(value, refuse)


def test_a_users_generator_has_a_spec_without_a_line_of_its_own():
    class Constant(Generator):
        def branch(self, z):
            return z.new_zeros(z.shape[0], self.num_params)

    generator = Constant(2, 5, offset=True)
    assert rebuilt(generator, Constant)(torch.zeros(3, 2)).shape == (3, 5)


def test_numbers_of_groups_come_back_as_valid_ones():
    prior = livi.Relevance(torch.zeros(4, dtype=torch.long), torch.ones(1))
    again = build(spec_of(prior), known_classes())
    again.load_state_dict(prior.state_dict())
    assert torch.equal(again.groups, prior.groups)
