"""Written-out products with a generator's Jacobian, against autograd in float64."""

import pytest
import torch
from torch import nn

from livi import CMMNN, MLP, MMNN, Affine, Lanczos, Layout, PerLayer, SmallestSingularValue
from livi.family.entropy.estimate import Whitened, whitened
from livi.family.generators import Generator, Head, matrices
from livi.family.jacobian import Jacobian, linearised
from livi.family.products import Products, Zero
from livi.network.elementwise import with_slope

M = 60
EXTRAS = {
    "plain": {},
    "skip": {"skip": True},
    "scale": {"scale_sizes": (10, 35, 15)},
    "offset": {"offset": True},
    "everything": {"skip": True, "offset": True, "scale_sizes": (10, 35, 15)},
}
HEADS = [
    Head((2, 3), ((4, 3),), (5, 4)),
    Head((2, 2), ((4, 3), (3, 5)), (3, 3), keep=7),
    Head((2, 3), ((4, 3),), (5, 4), keep=15),
    Head((1, 2), (), (7, 3)),
]  # the first and the third are alike; 63 outputs are kept, three too many, and a part of the trunk is not dealt out
ACTIVATIONS = {
    "ELU": nn.ELU,
    "ELU, alpha": lambda: nn.ELU(0.3),
    "CELU": lambda: nn.CELU(0.5),  # torch keeps 1 / alpha in float32
    "SELU": nn.SELU,
    "ReLU": nn.ReLU,
    "LeakyReLU": lambda: nn.LeakyReLU(0.2),
    "Tanh": nn.Tanh,
    "Sigmoid": nn.Sigmoid,
    "Softplus": nn.Softplus,
    "Softplus, sharp": lambda: nn.Softplus(beta=3.0, threshold=1.5),
    "SiLU": nn.SiLU,
    "GELU": nn.GELU,
    "GELU, tanh": lambda: nn.GELU("tanh"),
    "Identity": nn.Identity,
    "in place": lambda: nn.SiLU(inplace=True),
}


def build(kind, extras=None, activation=nn.ELU):
    extras = EXTRAS[extras or "plain"]
    if kind == "MLP":
        generator = MLP(6, M, hidden=(9, 7), activation=activation, **extras)
    elif kind == "MLP without a body":
        generator = MLP(6, M, hidden=(), activation=activation, **extras)
    elif kind == "MMNN":
        generator = MMNN((3, 2), M, hidden=((4, 5), (6, 3)), output=(8, 9), activation=activation, **extras)
    else:
        generator = CMMNN((3, 2), M, trunk=((3, 4), (5, 5)), heads=HEADS, activation=activation, **extras)
    return shaken(generator)


def per_layer(**extras):
    alike = [MMNN((2, 2), 10, hidden=((3, 4),), **extras) for _ in range(2)]
    return shaken(PerLayer([alike[0], MLP(3, 8, hidden=(5,), skip=True), alike[1], Affine(2, 7)]))


def shaken(generator):
    """Biases, offsets and scales that start at zero would hide mistakes."""
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return generator


CASES = {
    f"{kind}, {extras}": lambda kind=kind, extras=extras: build(kind, extras)
    for kind in ("MLP", "MLP without a body", "MMNN", "CMMNN")
    for extras in EXTRAS
} | {
    "Affine": lambda: shaken(Affine(6, M)),
    "PerLayer": per_layer,
    "PerLayer, offset": lambda: per_layer(offset=True),
    "PerLayer, scale": lambda: per_layer(scale_sizes=(4, 6)),
    "PerLayer, alike": lambda: shaken(PerLayer([MMNN((2, 2), 10, hidden=((3, 4),)) for _ in range(3)])),
}


def close(a, b):
    """Within 1e-10 of the largest entry."""
    assert a.shape == b.shape
    assert (a - b).abs().max() <= 1e-10 * b.abs().max().clamp_min(1e-3)


def gradients(value, parameters):
    found = torch.autograd.grad(value, parameters, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters, strict=True)]


def check_against_autograd(generator, samples=3, stack=None):
    d, m = generator.latent_dim, generator.num_params
    axes = (samples,) if stack is None else (stack, samples)
    z, v, u = torch.randn(samples, d), torch.randn(*axes, d), torch.randn(*axes, m)
    written, automatic = linearised(generator, z), Jacobian(generator, z)
    assert isinstance(written, Products)
    assert written.shape == automatic.shape == (samples, m, d)
    close(written.value, automatic.value)
    close(written.matvec(v), automatic.matvec(v))
    close(written.rmatvec(u), automatic.rmatvec(u))
    parameters = list(generator.parameters())
    for std in (torch.tensor(0.3), torch.linspace(0.1, 0.9, m)):
        both = [*parameters, std.requires_grad_()]
        forms = [Whitened(jacobian, std).bilinear(u, v) for jacobian in (written, automatic)]
        close(*forms)
        weights = torch.randn(axes)
        pairs = [gradients((form * weights).sum(), both) for form in forms]
        for found, expected in zip(*pairs, strict=True):
            close(found, expected)


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_products_and_gradients_are_those_of_autograd(name, samples):
    check_against_autograd(CASES[name](), samples)


@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("name", ["MLP, everything", "MMNN, everything", "CMMNN, everything", "PerLayer", "Affine"])
def test_stacks_of_vectors_take_one_call(name, stack):
    check_against_autograd(CASES[name](), samples=2, stack=stack)


@pytest.mark.parametrize("kind", ["MLP", "MMNN", "CMMNN"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_known_activation(name, kind):
    if name == "in place":  # autograd cannot differentiate it twice: compare with the same activation, out of place
        generator = build(kind, activation=ACTIVATIONS[name])
        plain = build(kind, activation=nn.SiLU)
        plain.load_state_dict(generator.state_dict())
        z, v = torch.randn(2, 6), torch.randn(2, 6)
        close(linearised(generator, z).matvec(v), Jacobian(plain, z).matvec(v))
        return
    check_against_autograd(build(kind, activation=ACTIVATIONS[name]))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_slopes_hold_far_out_and_at_kinks(name):
    activation = ACTIVATIONS[name]()
    x = torch.tensor([-800.0, -30.0, -1.0, -1e-9, 0.0, 1e-9, 0.4, 1.0, 30.0, 800.0], requires_grad=True)
    y = activation(x.clone())
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    found, written = with_slope(activation, x)
    torch.testing.assert_close(found, y)
    torch.testing.assert_close(written, slope, rtol=1e-12, atol=1e-12)
    if slope.requires_grad:
        again = gradients(written.sum(), [x]) if written.requires_grad else [torch.zeros_like(x)]
        smooth = x != 0.0  # in a kink there is no second derivative
        expected = gradients(slope.sum(), [x])[0]
        torch.testing.assert_close(again[0][smooth], expected[smooth], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("together", [0, 10**9])
@pytest.mark.parametrize("name", ["CMMNN, everything", "PerLayer", "PerLayer, alike"])
def test_equal_heads_give_the_same_in_one_product_or_one_by_one(monkeypatch, name, together):
    monkeypatch.setitem(matrices.TOGETHER, "cpu", together)
    check_against_autograd(CASES[name](), samples=2, stack=3)


def test_heads_go_together_by_shape_activation_and_size():
    stacks = build("CMMNN")._stacks()
    assert matrices._groups(stacks, 60) == [(0, 2), (1,), (3,)]  # 5 x 3 x 4 is the largest product of the first
    assert matrices._groups(stacks, 59) == [(0,), (1,), (2,), (3,)]
    shapes = [(2, 2), (3, 3), (4, 4)]
    bent = [matrices.MatrixStack(shapes, lambda alpha=alpha: nn.ELU(alpha)) for alpha in (1.0, 0.5, 1.0)]
    assert matrices._groups(bent, 10**9) == [(0, 2), (1,)]


# --- where autograd stays -------------------------------------------------------------------------


class OwnBranch(MMNN):
    def branch(self, z):
        return super().branch(z) ** 2


class OwnForward(MLP):
    def forward(self, z):
        return super().forward(z).sin()


class OwnPerLayer(PerLayer):
    def forward(self, z):
        return super().forward(z) ** 2


class Twice(nn.ELU):
    def forward(self, x):
        return 2.0 * super().forward(x)


class FromScratch(Generator):
    def branch(self, z):
        return z.sin()


class OwnProducts(OwnBranch):
    def branch(self, z):
        return z.new_ones(len(z), self.num_params)

    def linearised_branch(self, z):
        return matrices.Linearised(lambda: self.branch(z), Zero(self.latent_dim, self.num_params))


def hooked():
    generator = build("MMNN")
    generator.stack[1].register_forward_hook(lambda *call: 2.0 * call[-1])
    return generator


def hooked_from_outside():
    generator = build("MMNN")
    generator.register_forward_hook(lambda *call: 2.0 * call[-1])
    return generator


def replaced():
    generator = build("MMNN")
    generator.stack = nn.Sequential(generator.stack, nn.Softmax(1))
    return generator


def shared_weight():
    generator = build("MLP")
    nn.utils.parametrizations.weight_norm(generator.body[0])
    return generator


UNKNOWN = {
    "a branch of its own": lambda: OwnBranch((3, 2), 20, hidden=((4, 4),)),
    "a forward of its own": lambda: OwnForward(4, 20, hidden=(5,)),
    "parts with a forward of its own": lambda: OwnPerLayer([MLP(3, 8, hidden=(4,))]),
    "one unknown part": lambda: PerLayer([MLP(3, 8, hidden=(4,)), OwnForward(4, 20, hidden=(5,))]),
    "from scratch": lambda: FromScratch(5, 5),
    "activation that mixes, MLP": lambda: build("MLP", activation=lambda: nn.Softmax(-1)),
    "activation that mixes, MMNN": lambda: build("MMNN", activation=lambda: nn.Softmax(-1)),
    "activation that mixes, CMMNN": lambda: build("CMMNN", activation=lambda: nn.Softmax(-1)),
    "activation with parameters": lambda: build("MMNN", activation=nn.PReLU),
    "activation of the user's own": lambda: build("MLP", activation=Twice),
    "a hook inside": hooked,
    "a hook outside": hooked_from_outside,
    "a stack replaced": replaced,
    "a parametrised weight": shared_weight,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_is_left_to_autograd(name):
    generator = UNKNOWN[name]()
    z = torch.randn(2, generator.latent_dim)
    jacobian = linearised(generator, z)
    assert isinstance(jacobian, Jacobian)
    dense = torch.func.vmap(torch.func.jacfwd(lambda row: generator(row[None])[0]))(z)
    v = torch.randn(2, generator.latent_dim)
    torch.testing.assert_close(jacobian.matvec(v), torch.einsum("smd,sd->sm", dense, v))


def test_a_subclass_that_changes_nothing_or_both_is_written_out():
    class Named(MMNN):
        """Only a name."""

    z = torch.randn(2, 6)
    assert isinstance(linearised(Named((3, 2), 20, hidden=((4, 4),)), z), Products)
    own = linearised(OwnProducts((3, 2), 20, hidden=((4, 4),)), z)
    assert isinstance(own, Products)
    assert own.matvec(z).eq(0).all()
    assert own.rmatvec(own.value).eq(0).all()


def test_plain_functions_are_left_to_autograd():
    assert isinstance(linearised(nn.Linear(3, 4), torch.randn(2, 3)), Jacobian)
    assert isinstance(linearised(torch.sin, torch.randn(2, 3)), Jacobian)


def test_latents_of_the_wrong_shape_are_an_error():
    with pytest.raises(ValueError, match=r"z: expected shape \(num_samples, 6\), got \(2, 5\)"):
        linearised(build("MMNN"), torch.randn(2, 5))


# --- what is recorded -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["MLP, everything", "MMNN, everything", "CMMNN, everything", "PerLayer", "Affine"])
@pytest.mark.parametrize("shared", [True, False])
def test_products_record_nothing_and_forms_do(name, shared):
    generator = CASES[name]()
    z = torch.randn(2, generator.latent_dim)
    std = torch.tensor(0.1) if shared else torch.linspace(0.1, 0.3, generator.num_params)
    a = whitened(generator, z, std.requires_grad_())
    image = a.matvec(z)
    assert not image.requires_grad
    assert not a.rmatvec(image).requires_grad
    assert not a.gram(z).requires_grad
    torch.testing.assert_close(a.gram(z), a.rmatvec(image))
    assert a.bilinear(image, z).requires_grad
    with torch.no_grad():
        assert not linearised(generator, z).bilinear(image, z).requires_grad


SOLVERS = [Lanczos(num_probes=2, tolerance=0.0, max_iterations=4), SmallestSingularValue()]


@pytest.mark.parametrize("estimator", SOLVERS, ids=repr)
@pytest.mark.parametrize("name", ["MLP, everything", "MMNN, everything", "CMMNN, everything", "PerLayer"])
def test_estimators_ask_autograd_for_nothing_before_the_backward_pass(monkeypatch, name, estimator):
    generator = CASES[name]()
    z, std = torch.randn(2, generator.latent_dim), torch.tensor(0.2, requires_grad=True)
    parameters = [*generator.parameters(), std]
    with monkeypatch.context() as patched:
        patched.setattr(Generator, "linearised", lambda self, z: Jacobian(self, z))
        expected = estimator(generator, z, std, torch.Generator().manual_seed(3)).nats
        slopes = gradients(expected.sum(), parameters)
    calls = []
    ask = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *args, **kwargs: calls.append(1) or ask(*args, **kwargs))
    found = estimator(generator, z, std, torch.Generator().manual_seed(3)).nats
    assert calls == []
    monkeypatch.undo()
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    for one, other in zip(gradients(found.sum(), parameters), slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_the_solve_keeps_no_graph_alive():
    generator = build("MMNN", "everything")
    z, saved = torch.randn(1, 6), []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        counts = []
        for iterations in (1, 20):
            saved.clear()
            Lanczos(num_probes=1, tolerance=0.0, max_iterations=iterations)(generator, z, torch.tensor(0.1))
            counts.append(len(saved))
    assert counts[0] == counts[1] > 0


def test_layouts_make_generators_that_are_written_out():
    layout = Layout(nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 20)))
    built = [
        MMNN.for_layout(layout, budget=4.0, offset=True, scale_sizes=layout.group_sizes),
        CMMNN.for_layout(layout, budget=6.0),
        PerLayer.for_layout(layout, budget=6.0, offset=True),
        MLP.for_layout(layout, latent_dim=5, budget=20.0),
    ]
    for generator in built:
        check_against_autograd(shaken(generator), samples=2)


def test_written_out_products_agree_in_float32():
    for name in ("MMNN, everything", "CMMNN, everything", "MLP, everything"):
        generator = CASES[name]()
        z, v = torch.randn(2, 6), torch.randn(2, 6)
        double = linearised(generator, z).matvec(v)
        single = linearised(generator.float(), z.float()).matvec(v.float())
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-4)
