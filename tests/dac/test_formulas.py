"""Every registered formula of DAC is true; what is registered as published and false is false."""

import itertools
import math
import random

import mpmath
import pytest
import sympy
import torch
from mpmath import mp, mpf
from sympy import Eq
from torch import nn
from torch.nn import functional as F

import companion
from companion.dac import reference
from companion.dac.study import constructions, formulas
from companion.dac.study.formulas import Activation, ActivationSlope, expected, written_out
from companion.study import symbolic
from companion.study.models import build
from companion.study.symbolic import Expected, Holds
from tests.cases import together
from tests.claims.dac.facts import network_flops, network_parameters, resnet, vgg

ALL = [formula for formula in symbolic.formulas("dac-") if not formula.definition]
RANGES = {formulas.i: formulas.n, formulas.j: formulas.m, formulas.k: formulas.K}

# What says what a name stands for; compared with torch below.
NAMES = {
    *("dac-standard-sum", "dac-standard-output", "dac-connection", "dac-dense", "dac-conv", "dac-row", "dac-mba"),
    *("dac-pad-after", "dac-pad-before", "dac-error-model", "dac-error-mean"),
}
TRUE = [formula for formula in ALL if formula.relation != "?" and formula.name not in NAMES]
FALSE = [formula for formula in ALL if formula.relation == "?"]

RELATIONS = {
    "=": lambda left, right: mpmath.almosteq(left, right, rel_eps=mpf(10) ** -25, abs_eps=mpf(10) ** -25),
    "≤": lambda left, right: left <= right + mpf(10) ** -25,
    "≥": lambda left, right: left >= right - mpf(10) ** -25,
}

# Activations with their slopes: with a kink, smooth, and neither monotone nor homogeneous.
ACTIVATIONS = {
    "relu": (lambda x: max(mpf(0), x), lambda x: mpf(x > 0)),
    "tanh": (mp.tanh, lambda x: 1 - mp.tanh(x) ** 2),
    "silu": (lambda x: x / (1 + mp.exp(-x)), lambda x: (1 + mp.exp(-x) + x * mp.exp(-x)) / (1 + mp.exp(-x)) ** 2),
}


def identifier(formula):
    return formula.name


def sides(formula):
    return [sympy.sympify(side) for side in (formula.lhs, *formula.steps, formula.rhs)]


def sizes(count):
    """So that over counts from 1 to 4 every size takes these four values, and no two are the same."""
    return {
        symbol: (count - 1 + shift) % 4 + 1
        for shift, symbol in enumerate((formulas.n, formulas.m, formulas.K, formulas.W))
    } | {formulas.N: (count + 1) % 4 + 1, formulas.P: 5 - count}


def elementary(expression, numbers, given=None):
    """An expression in numbers, elements and the activation alone."""
    written = None
    while written is not expression:  # a definition may hold sums, and a name a defined function
        written = written_out(expression, numbers, given=given)
        expression = symbolic.expand(written)
    expression = expression.replace(Expected, expected)
    return expression.replace(Holds, lambda relation: sympy.Piecewise((1, relation), (0, True)))


def allows(formula, numbers):
    """Whether the condition of a formula allows these sizes."""
    condition = formula.condition
    return condition is None or sympy.sympify(condition).subs(numbers) is not sympy.false


def evaluated(formula, count):
    """Yield all sides of a formula at random points that its condition allows, for every choice of free indices."""
    numbers = sizes(count)
    condition = formula.condition
    given = condition if isinstance(condition, Eq) and isinstance(condition.lhs, sympy.Indexed) else None
    same = {condition.lhs: condition.rhs} if isinstance(condition, Eq) and given is None else {}
    used = [index for index in RANGES if any(index in side.free_symbols for side in sides(formula))]
    generator = random.Random(f"{formula.name} {count}")
    for pairs in (dict.fromkeys(used, 1), {index: numbers[RANGES[index]] for index in used}):
        expressions = [elementary(side.subs(same).subs(pairs), numbers, given) for side in sides(formula)]
        atoms = set().union(*(each.atoms(sympy.Indexed, sympy.Symbol) for each in expressions))
        atoms |= condition.free_symbols if condition is not None and given is None and not same else set()
        labels = {element.base.label for element in atoms if isinstance(element, sympy.Indexed)}
        names = sorted((atom for atom in atoms - labels if not isinstance(atom, sympy.Idx)), key=str)
        slots = sympy.symbols(f"slot:{len(names)}")
        stand_ins = dict(zip(names, slots, strict=True))
        active = {}
        modules = [
            {
                "Activation": lambda x, active=active: active["phi"](x),
                "ActivationSlope": lambda x, active=active: active["slope"](x),
                "Heaviside": lambda x, *_: mpf(x > 0),
            },
            "mpmath",
        ]
        function = sympy.lambdify(slots, [each.xreplace(stand_ins) for each in expressions], modules, cse=True)
        for name in ACTIVATIONS if any(side.has(Activation, ActivationSlope) for side in expressions) else ["relu"]:
            active["phi"], active["slope"] = ACTIVATIONS[name]
            for point in points(names, condition if given is None and not same else None, numbers, generator):
                with mp.workdps(50):
                    yield f"{name}, {pairs}, {dict(zip(names, point, strict=True))}", function(*point)


def points(names, condition, numbers, generator, wanted=8):
    """Random numbers for names, such that a condition holds: small and large ones, and whole ones where asked."""
    found = 0
    while found < wanted:
        scale = generator.choice((0.3, 1, 4))
        values = [
            mpf(generator.randint(1, 6))
            if name.is_integer
            else mpf(generator.choice((0, 1)))
            if isinstance(name, sympy.Indexed) and name.base == formulas.o
            else abs(mpf(generator.gauss(0, scale)))
            if name.is_positive
            else mpf(generator.gauss(0, scale))
            for name in names
        ]
        if condition is not None:
            given = {name: sympy.Float(value, 50) for name, value in zip(names, values, strict=True)}
            if sympy.sympify(condition).subs(numbers).subs(given) is not sympy.true:
                continue
        found += 1
        yield values


def allowed(formula):
    """Those numbers of terms that the condition of a formula allows: at least one."""
    found = [count for count in range(1, 5) if allows(formula, sizes(count))]
    assert found, formula.name
    return found


@pytest.mark.parametrize("formula", TRUE, ids=identifier)
def test_a_formula_holds_at_random_points_for_one_to_four_terms(formula):
    for count in allowed(formula):
        for point, (left, *steps, right) in evaluated(formula, count):
            assert RELATIONS[formula.relation](left, right), (count, point)
            assert all(RELATIONS["="](left, step) for step in steps), (count, point)


@pytest.mark.parametrize("formula", FALSE, ids=identifier)
def test_what_is_registered_as_false_is_false(formula):
    differences = [
        abs(left - right) / (abs(left) + abs(right) + mpf(10) ** -30)
        for count in (2, 3, 4)
        for _, (left, right) in evaluated(formula, count)
    ]
    assert sum(difference > 1e-6 for difference in differences) > 0.6 * len(differences)


RATIOS = [formula for formula in ALL if "ratio" in formula.name and formula.relation == "="]


@pytest.mark.parametrize("formula", RATIOS, ids=identifier)
def test_sympy_proves_a_ratio_for_all_sizes(formula):
    given = {formula.condition.lhs: formula.condition.rhs} if formula.condition is not None else {}
    left, right = (symbolic.expand(side).subs(given) for side in sides(formula))
    assert sympy.simplify(left - right) == 0


@pytest.mark.parametrize("name", ["parameters-dense", "parameters-conv", "flops-dense", "flops"])
def test_the_papers_ratio_leaves_out_the_biases_of_the_standard_layer(name):
    """Its numerator over the weights (or their operations) alone; so it is above the true ratio where n > 1."""
    formula = symbolic.get(f"dac-{name}-ratio{'-equal' if name == 'flops' else ''}")
    n, m, kernel, here = formulas.n, formulas.m, formulas.L, formulas.A
    weights = {
        "parameters-dense": (2 * m * n - m, m * n),
        "parameters-conv": (m * n * kernel**2 + m * n - m, m * n * kernel**2),
        "flops-dense": (3 * m * n - m, 2 * m * n),
        "flops": (2 * m * n * kernel**2 * here + m * n * here - m * here, 2 * m * n * kernel**2 * here),
    }[name]
    assert sympy.simplify(weights[0] / weights[1] - formula.published) == 0
    gap = sympy.simplify(formula.published - formula.rhs)
    assert gap.subs(n, 1) == 0
    assert all(gap.subs({n: 1 + more, kernel: 3}) > 0 for more in range(1, 100))


# --- Proofs by SymPy ----------------------------------------------------------------------------------------

PROVED = [
    *("d-weight", "d-bias", "d-input", "d-output", "d-weight-deep", "d-bias-deep", "d-weight-batch", "d-bias-batch"),
    *("d-bias-patch", "d-shared-input", "layer", "shared", "pad-difference", "batch-norm", "output-bias"),
    *("error-first", "error-direct"),
]


@pytest.mark.parametrize("formula", [symbolic.get(f"dac-{name}") for name in PROVED], ids=identifier)
def test_sympy_proves_a_step_for_every_activation(formula):
    # By symmetry the first indices, and the last ones, stand for all.
    for numbers, last in itertools.product(map(sizes, allowed(formula)), (False, True)):
        pairs = {index: numbers[size] if last else 1 for index, size in RANGES.items()}
        left, *others = (elementary(side.subs(pairs), numbers, formula.condition) for side in sides(formula))
        for other in others:
            # o is 0 or 1: φ(b + o x) = o φ(b + x) + (1 − o) φ(b)
            difference = sympy.expand(left - other).replace(Activation, unmasked)
            assert sympy.simplify(sympy.expand(difference)) == 0, (numbers, pairs)


def unmasked(argument):
    masks = [element for element in argument.atoms(sympy.Indexed) if element.base == formulas.o]
    if not masks:
        return Activation(argument)
    [mask] = masks
    return mask * Activation(argument.subs(mask, 1)) + (1 - mask) * Activation(argument.subs(mask, 0))


# --- Autograd -----------------------------------------------------------------------------------------------

TORCH = {"relu": torch.relu, "tanh": torch.tanh, "silu": F.silu}


def compiled(name, numbers, chosen, activation):
    """A function from values of elements to the right-hand side of a formula."""
    expression = elementary(symbolic.get(name).rhs.subs(chosen), numbers)
    atoms = sorted(expression.atoms(sympy.Indexed), key=str)
    slots = sympy.symbols(f"slot:{len(atoms)}")
    phi, slope = ACTIVATIONS[activation]
    function = sympy.lambdify(
        slots,
        expression.xreplace(dict(zip(atoms, slots, strict=True))),
        [{"Activation": phi, "ActivationSlope": slope}, "mpmath"],
    )

    def evaluate(tensors):
        values = [tensors[str(atom.base.label)][tuple(int(index) - 1 for index in atom.indices)] for atom in atoms]
        return float(function(*(mpf(value.item()) for value in values)))

    return evaluate


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@together("outputs, inputs", [(1, 3), (3, 2), (4, 4)])
def test_the_layer_and_its_gradients_equal_autograd(outputs, inputs, activation):
    numbers = {formulas.n: outputs, formulas.m: inputs}
    w, b, z, g = double(outputs, inputs), double(outputs, inputs), double(inputs), double(outputs)
    leaves = [tensor.requires_grad_() for tensor in (w, b, z)]
    output = (w * TORCH[activation](z + b)).sum(-1)
    torch.testing.assert_close(output[None], reference.linear(z[None], w, b, TORCH[activation]))
    gradients = torch.autograd.grad(output, leaves, g)
    tensors = {"w": w, "b": b, "z": z, "g": g}
    for one, other in itertools.product(range(outputs), range(inputs)):
        chosen = {formulas.i: one + 1, formulas.j: other + 1}
        for name, theirs in (
            ("dac-dense", output[one]),
            ("dac-d-weight", gradients[0][one, other]),
            ("dac-d-bias", gradients[1][one, other]),
            ("dac-d-input", gradients[2][other]),
        ):
            own = compiled(name, numbers, chosen, activation)(tensors)
            assert own == pytest.approx(float(theirs), rel=1e-12, abs=1e-12), name


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_gradients_through_two_layers_equal_autograd(activation):
    """Eq. 7 in a network whose three widths differ: 2 inputs, 4 units, 3 units."""
    inputs, units, outputs = 2, 4, 3
    phi = TORCH[activation]
    tensors = {"w": double(units, inputs), "b": double(units, inputs), "z": double(inputs)}
    tensors |= {"w^{*}": double(outputs, units), "b^{*}": double(outputs, units), "g^{*}": double(outputs)}
    for name in ("w", "b"):
        tensors[name].requires_grad_()
    hidden = (tensors["w"] * phi(tensors["z"] + tensors["b"])).sum(-1)
    output = (tensors["w^{*}"] * phi(hidden + tensors["b^{*}"])).sum(-1)
    by_w, by_b, by_hidden = torch.autograd.grad(output, [tensors["w"], tensors["b"], hidden], tensors["g^{*}"])
    numbers = {formulas.m: inputs, formulas.n: units, formulas.K: outputs}
    for one, other in itertools.product(range(units), range(inputs)):
        chosen = {formulas.i: one + 1, formulas.j: other + 1}
        for name, theirs in (
            ("dac-d-output", by_hidden[one]),
            ("dac-d-weight-deep", by_w[one, other]),
            ("dac-d-bias-deep", by_b[one, other]),
        ):
            own = compiled(name, numbers, chosen, activation)(tensors)
            assert own == pytest.approx(float(theirs), rel=1e-10, abs=1e-12), name


def test_a_batch_adds_the_gradients_of_its_samples():
    samples, outputs, inputs = 3, 2, 4
    w, b, z, g = double(outputs, inputs), double(outputs, inputs), double(samples, inputs), double(samples, outputs)
    output = reference.linear(z, w.requires_grad_(), b.requires_grad_(), torch.tanh)
    gradients = torch.autograd.grad(output, [w, b], g)
    numbers = {formulas.n: outputs, formulas.m: inputs, formulas.N: samples}
    for one, other in itertools.product(range(outputs), range(inputs)):
        chosen = {formulas.i: one + 1, formulas.j: other + 1}
        for name, theirs in zip(("dac-d-weight-batch", "dac-d-bias-batch"), gradients, strict=True):
            own = compiled(name, numbers, chosen, "tanh")({"w": w, "b": b, "z": z, "g": g})
            assert own == pytest.approx(float(theirs[one, other]), rel=1e-12)


def test_at_the_kink_torch_takes_the_slope_zero_as_the_formulas_do():
    z = torch.tensor([-0.5, 0.25], requires_grad=True)
    bias = torch.tensor([[0.5, 1.0]], requires_grad=True)  # b + z is 0 and 1.25
    reference.linear(z[None], torch.tensor([[2.0, 3.0]]), bias, torch.relu).sum().backward()
    assert z.grad.tolist() == [0.0, 3.0]
    assert bias.grad.tolist() == [[0.0, 3.0]]
    mask = symbolic.get("dac-relu-slope").rhs
    assert [mask.subs(sympy.Symbol("x", real=True), value).doit() for value in (-1, 0, 1)] == [0, 0, 1]


# --- Convolution --------------------------------------------------------------------------------------------

GEOMETRIES = [
    # image, kernel, stride, padding, dilation: what the paper uses; and what moves every term of the formulas
    (6, 3, 1, 1, 1),
    (6, 3, 2, 1, 1),
    (5, 1, 1, 0, 1),
    (5, 1, 2, 0, 1),
    (7, 2, 3, 1, 2),
    (8, 3, 1, 2, 2),
    (9, 4, 2, 0, 2),
]


def evaluate(name, lhs, values):
    """One side of a formula of whole numbers, at whole numbers."""
    formula = symbolic.get(name)
    expression = formula.lhs if lhs else formula.rhs
    return expression.subs({symbol: values[str(symbol)] for symbol in expression.free_symbols})


def test_the_papers_convolution_is_a_sum_of_convolutions_of_activated_channels():
    """Eq. 5 at the inner positions of an image, with two units, three channels and a 3 × 3 kernel."""
    outputs, channels, half, image = 2, 3, 1, 4
    w, b = double(outputs, channels, 3, 3), double(outputs, channels)
    z = double(channels, image, image)
    expected = torch.stack(
        [F.conv2d(torch.tanh(z + b[unit][:, None, None])[None], w[unit][None])[0, 0] for unit in range(outputs)]
    )
    rhs = symbolic.get("dac-conv").rhs
    half_width, row, column, unit = (sympy.Symbol("l", integer=True), formulas.h, formulas.v, formulas.i)
    for one, top, left in itertools.product(range(outputs), range(1, image - 1), range(1, image - 1)):
        written = rhs.subs({formulas.m: channels, half_width: half, row: top, column: left, unit: one}).doit()
        total = 0.0
        for term in sympy.Add.make_args(written):
            [call] = term.atoms(Activation)
            weight = next(atom for atom in term.args if isinstance(atom, sympy.Indexed))
            bias, value = sorted(call.args[0].args, key=str)
            channel = int(bias.indices[1]) - 1
            _, _, down, across = (int(index) for index in weight.indices)
            assert [int(index) for index in value.indices] == [channel + 1, top + down, left + across]
            total += float(
                w[one, channel, down + half, across + half]
                * torch.tanh(b[one, channel] + z[channel, top + down, left + across])
            )
        assert total == pytest.approx(float(expected[one, top - 1, left - 1]))


def grouped(z, w, b, phi, stride, padding, dilation, before):
    """A DAC convolution as torch's own grouped convolution, over channels that are activated once per pair."""
    outputs = len(b)
    z = F.pad(z, (padding,) * 4) if before else z
    activated = phi(z[:, None] + b[None, :, :, None, None]).flatten(1, 2)
    return F.conv2d(activated, w, None, stride, 0 if before else padding, dilation, groups=outputs)


@together("geometry, before", itertools.product(GEOMETRIES, [False, True]))
def test_patches_and_padding_are_those_of_a_grouped_convolution(geometry, before):
    image, kernel, stride, padding, dilation = geometry
    outputs, channels = 2, 2
    w, b, z = double(outputs, channels, kernel, kernel), double(outputs, channels), double(1, channels, image, image)
    theirs = grouped(z, w, b, torch.sigmoid, stride, padding, dilation, before)
    own = reference.conv2d(
        z, w, b, torch.sigmoid, reference.Geometry((stride,) * 2, (padding,) * 2, (dilation,) * 2, 1, before)
    )
    torch.testing.assert_close(own, theirs)
    positions = kernel * kernel
    formula = symbolic.get("dac-pad-before" if before else "dac-pad-after")
    written = written_out(formula.rhs.subs(formulas.i, 1), {formulas.m: channels, formulas.P: positions})
    atoms = sorted(written.atoms(sympy.Indexed), key=str)
    slots = [sympy.Dummy() for _ in atoms]
    function = sympy.lambdify(
        slots,
        written.xreplace(dict(zip(atoms, slots, strict=True))),
        [{"Activation": lambda x: 1 / (1 + math.exp(-x))}],
    )
    corners = itertools.product((0, theirs.shape[2] // 2, theirs.shape[2] - 1), repeat=2)
    for top, left in corners:
        numbers = {"b": lambda i, j: b[i - 1, j - 1]}
        places = []
        for down, across in itertools.product(range(kernel), repeat=2):
            rows = [
                int(evaluate("dac-row", False, {"q": stride, "h": at, "d": dilation, "a": move, "p": padding}))
                for at, move in ((top, down), (left, across))
            ]
            places.append((rows, all(0 <= row < image for row in rows)))
        numbers["o"] = lambda c, places=places: float(places[c - 1][1])
        numbers["x"] = lambda j, c, places=places: z[0, j - 1][tuple(places[c - 1][0])] if places[c - 1][1] else 7.0
        numbers["w"] = lambda i, j, c: w[i - 1, j - 1].flatten()[c - 1]
        values = [float(numbers[str(atom.base.label)](*map(int, atom.indices))) for atom in atoms]
        assert function(*values) == pytest.approx(float(theirs[0, 0, top, left]))


def test_before_and_after_agree_without_positive_biases_and_differ_with_them():
    w, z = double(2, 3, 3, 3), double(1, 3, 5, 5)
    for sign, same in ((-1, True), (1, False)):
        b = sign * double(2, 3).abs()
        one, other = (grouped(z, w, b, torch.relu, 1, 1, 1, before) for before in (False, True))
        assert torch.allclose(one, other) == same
        torch.testing.assert_close(one[..., 1:-1, 1:-1], other[..., 1:-1, 1:-1])


def touched(image, kernel, stride, padding, dilation):
    """Positions of the image that some output looks at, and how often one looks: brute force."""
    size = (image + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    looks = [
        (stride * h + dilation * a - padding, stride * v + dilation * c - padding)
        for h, v in itertools.product(range(size), repeat=2)
        for a, c in itertools.product(range(kernel), repeat=2)
    ]
    inside = [place for place in looks if all(0 <= each < image for each in place)]
    return size**2, len(set(inside)), len(looks)


@together("geometry", GEOMETRIES)
def test_additions_of_biases_are_one_per_pair_of_channels_and_position_of_the_input(geometry):
    image, kernel, *_ = geometry
    out_positions, distinct, looks = touched(*geometry)
    counts = {
        name: symbolic.get(name).rhs.subs(
            {
                formulas.n: 5,
                formulas.m: 3,
                formulas.L: kernel,
                sympy.Symbol("A", integer=True, positive=True): out_positions,
                sympy.Symbol("B", integer=True, positive=True): image**2,
            }
        )
        for name in ("dac-flops", "dac-flops-standard", "dac-flops-uncached")
    }
    multiplications = 15 * looks
    assert counts["dac-flops-uncached"] - 2 * multiplications == 15 * looks
    assert counts["dac-flops"] - 2 * multiplications == 15 * image**2 >= 15 * distinct
    assert counts["dac-flops-standard"] - 2 * multiplications == 3 * image**2
    _, _, stride, padding, dilation = geometry
    if kernel >= stride and dilation == 1 and (image + 2 * padding - kernel) % stride == 0:
        assert distinct == image**2  # every position is needed


# --- Counted on real layers and networks ---------------------------------------------------------------------


def closed(name, outputs, inputs, kernel, out_positions, in_positions):
    """A registered count at whole numbers."""
    values = {"n": outputs, "m": inputs, "L": kernel, "A": out_positions, "B": in_positions}
    rhs = symbolic.get(name).rhs
    return int(rhs.subs({symbol: values[symbol.name] for symbol in rhs.free_symbols}))


@together("geometry", GEOMETRIES)
def test_the_closed_forms_are_what_is_counted_on_convolutions(geometry):
    image, kernel, stride, padding, dilation = geometry
    outputs, inputs, shape = 5, 3, (3, image, image)
    size = touched(*geometry)[0]
    numbers = {"stride": stride, "padding": padding, "dilation": dilation}
    for before, inside in ((False, image), (True, image + 2 * padding)):
        layer = companion.DACConv2d(inputs, outputs, kernel, pad_order="before" if before else "after", **numbers)
        found = companion.count(layer, shape)
        assert found.flops == closed("dac-flops", outputs, inputs, kernel, size, inside**2)
        assert found.parameters == closed("dac-parameters-conv", outputs, inputs, kernel, size, inside**2)
    found = companion.count(companion.DACConv2d(inputs, outputs, kernel, per_weight=True, **numbers), shape)
    assert found.flops == closed("dac-flops-uncached", outputs, inputs, kernel, size, 0)
    assert found.parameters == closed("dac-parameters-conv-per-weight", outputs, inputs, kernel, size, 0)
    # The standard layer, and one addition for each element of its input.
    standard = companion.count(nn.Conv2d(inputs, outputs, kernel, bias=False, **numbers), shape)
    expected = closed("dac-flops-standard", outputs, inputs, kernel, size, image**2)
    assert standard.flops + inputs * image**2 == expected
    assert standard.parameters + inputs == closed("dac-parameters-conv-standard", outputs, inputs, kernel, size, 0)


@pytest.mark.parametrize(("outputs", "inputs"), [(1, 4), (7, 3), (16, 16)])
def test_the_closed_forms_are_what_is_counted_on_dense_layers(outputs, inputs):
    dac = companion.count(companion.DACLinear(inputs, outputs), (inputs,))
    standard = companion.count(nn.Linear(inputs, outputs, bias=False), (inputs,))
    assert dac.flops == closed("dac-flops", outputs, inputs, 1, 1, 1)
    assert dac.parameters == closed("dac-parameters-dense", outputs, inputs, 1, 1, 1)
    assert standard.flops + inputs == closed("dac-flops-standard", outputs, inputs, 1, 1, 1)
    assert standard.parameters + inputs == closed("dac-parameters-dense-standard", outputs, inputs, 1, 1, 1)


NETWORKS = {
    "resnet20": (resnet(3, 32), True),
    "resnet32": (resnet(5, 32), True),
    "resnet20_v2_wide4": (resnet(3, 32, 64), True),
    "vgg20_16": (vgg((7, 6, 6), 16, 32, strided=True), False),
    "vgg14_32": (vgg((5, 4, 4), 32, 32, strided=True), False),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_ledgers_counts_of_networks_are_those_of_real_ones(name):
    convs, skips = NETWORKS[name]
    network = build(name, (3, 32, 32), 10, nn.ReLU)
    base, dac = (companion.count(model, (3, 32, 32)) for model in (network, companion.to_dac(network)))
    assert base.parameters == network_parameters(convs, 10, dac=False)
    # What stands before the pooling of a ResNet v1 keeps biases of its own there.
    kept = convs[-1].n if name in ("resnet20", "resnet32") else 0
    assert dac.parameters == network_parameters(convs, 10, dac=True) + kept
    # The ledger leaves out the ten biases of the output.
    assert base.flops == network_flops(convs, 10, "base", skips=skips) + 10
    assert dac.flops == network_flops(convs, 10, "input", skips=skips) + 10 + kept * convs[-1].result ** 2


# --- MBA ----------------------------------------------------------------------------------------------------


def test_mba_is_a_standard_layer_on_biased_copies_and_dac_is_mba_with_a_copy_per_output():
    outputs, inputs, copies = 2, 3, 4
    z, w, b = double(inputs), double(outputs, inputs, copies), double(inputs, copies)
    theirs = F.linear(torch.tanh(z[:, None] + b).flatten(), w.flatten(1))
    numbers = {formulas.n: outputs, formulas.m: inputs, formulas.K: copies}
    for one in range(outputs):
        own = compiled("dac-mba", numbers, {formulas.i: one + 1}, "tanh")({"w": w, "b": b, "z": z})
        assert own == pytest.approx(float(theirs[one]))
    w, b = double(outputs, inputs), double(outputs, inputs)
    sparse = torch.eye(outputs, dtype=torch.float64)[:, None, :] * w[:, :, None]
    as_mba = F.linear(torch.tanh(z[:, None] + b.T).flatten(), sparse.flatten(1))
    torch.testing.assert_close(as_mba[None], reference.linear(z[None], w, b, torch.tanh))


# --- Powers -------------------------------------------------------------------------------------------------

GRID = torch.linspace(-3, 3, 61, dtype=torch.float64)
PLANE = torch.cartesian_prod(GRID, GRID)


@pytest.mark.parametrize("name", ["middle", "separator", "three_units"])
def test_a_construction_is_its_formula(name):
    formula = symbolic.get(f"dac-{name.replace('_', '-')}")
    x, y = (sympy.Symbol(letter, real=True) for letter in "xy")
    function = sympy.lambdify([x, y], symbolic.expand(formula.rhs), "math")
    sample = PLANE[::7]
    theirs = torch.tensor([function(*point) for point in sample.tolist()], dtype=torch.float64)
    torch.testing.assert_close(getattr(constructions, name)(sample), theirs)


def test_a_unit_of_more_terms_than_pieces_is_any_piecewise_linear_function_on_an_interval():
    generator = random.Random(0)
    for pieces in (1, 2, 3, 8):
        knots = sorted(generator.uniform(-2, 2) for _ in range(pieces + 1))
        values = [generator.gauss(0, 1) for _ in knots]
        weight, bias = constructions.interpolant(knots, values)
        assert len(weight) == len(bias) == pieces + 1
        found = constructions.replicated(torch.tensor(knots, dtype=torch.float64), weight, bias)
        torch.testing.assert_close(found, torch.tensor(values, dtype=torch.float64), rtol=1e-6, atol=1e-9)
        halves = torch.tensor([(a + b) / 2 for a, b in itertools.pairwise(knots)], dtype=torch.float64)
        means = torch.tensor([(a + b) / 2 for a, b in itertools.pairwise(values)], dtype=torch.float64)
        torch.testing.assert_close(constructions.replicated(halves, weight, bias), means, rtol=1e-6, atol=1e-9)
        far = torch.tensor([knots[0] - 100.0], dtype=torch.float64)
        assert constructions.replicated(far, weight, bias).item() == 0


@pytest.mark.parametrize(
    ("knots", "values", "message"),
    [
        ([0.0], [1.0], "1 knots and 1 values"),
        ([0.0, 1.0], [1.0], "2 knots and 1 values"),
        ([0.0, 0.0], [1.0, 2.0], "must increase"),
    ],
)
def test_an_interpolant_is_refused_that_has_no_pieces(knots, values, message):
    with pytest.raises(ValueError, match=message):
        constructions.interpolant(knots, values)


def test_three_standard_units_separate_the_square_and_the_papers_unit_is_zero_on_two_rays_outside():
    inside = PLANE.abs().sum(-1) < 1 - 1e-9
    outside = PLANE.abs().sum(-1) > 1 + 1e-9
    ours, papers = constructions.three_units(PLANE), constructions.separator(PLANE)
    assert (ours[inside] > 0).all()
    assert (ours[outside] < 0).all()
    assert (papers[inside] > 0).all()
    zero = PLANE[outside & (papers.abs() < 1e-12)]
    assert len(zero) == 2 * sum(GRID < -1 - 1e-9)
    assert all(max(x, y) == 0 > -1 > min(x, y) for x, y in zero.round(decimals=9).tolist())
    assert (constructions.separator(PLANE, 1.01)[outside] < 0).all()
    assert (constructions.separator(PLANE, 1.01) > 0).any()
