"""ISM3Loss against plain NumPy, against PyTorch's cross entropy and against `ism3`; its derivatives; the example."""

import importlib.util
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import marginlinear as ml

ROOT = Path(__file__).resolve().parent.parent


def python(code, *options):
    return subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True)


def test_the_package_does_not_import_torch():
    code = "import sys, marginlinear.api, marginlinear.cli.train; print('torch' in sys.modules)"
    assert python(code).stdout == "False\n"


def test_without_torch_the_extra_is_named():
    run = python("import sys; sys.modules['torch'] = None; import marginlinear.torch")
    assert run.returncode == 1 and "pip install 'marginlinear[torch]'" in run.stderr


torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'marginlinear[torch]'")

from marginlinear import torch as ours  # noqa: E402
from marginlinear.torch import ISM3Loss  # noqa: E402

NORMS = (1, 1.5, 2, 3, 4, 8)
LOSSES = ("logistic", "softmax")


def problem(n=9, k=5, d=4, seed=0, dtype=torch.float64):
    """Features, targets, weight and bias."""
    rng = np.random.default_rng(seed)
    arrays = rng.normal(size=(n, d)), rng.integers(k, size=n), rng.normal(size=(k, d)), rng.normal(size=k)
    X, y, W, b = (torch.from_numpy(a) for a in arrays)
    return X.to(dtype), y, W.to(dtype), b.to(dtype)


def distances(W, p):
    """sum_{j<l} ||w_j - w_l||^p, pair by pair."""
    return sum(np.linalg.norm(u - v) ** p for u, v in itertools.combinations(np.asarray(W), 2))


def slow(logits, y, W, b, p, lam, eps, loss):
    """The formula in NumPy: the losses of the rows, and the regulariser."""
    losses = []
    for s, own in zip(np.asarray(logits), np.asarray(y), strict=True):
        t = np.delete(s[own] - s, own)
        terms = np.logaddexp(0, -t)
        losses.append(terms.sum() if loss == "logistic" else np.logaddexp.reduce([0, *-t]))
    return np.array(losses), lam * distances(W, p) + eps * (np.sum(np.asarray(W) ** 2) + np.sum(np.asarray(b) ** 2))


# values


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("p", NORMS)
def test_value_is_the_formula(p, loss):
    X, y, W, b = problem()
    logits = 8 * (X @ W.T + b)  # steep enough for both tails of the loss
    losses, regulariser = slow(logits, y, W, b, p, 0.3, 0.01, loss)
    for reduction, rows in (("sum", losses.sum()), ("mean", losses.mean())):
        value = ISM3Loss(p, 0.3, 0.01, loss=loss, reduction=reduction)(logits, y, W, b)
        assert value.shape == () and value.item() == pytest.approx(rows + regulariser, rel=1e-12)
    alone = ISM3Loss(p, 0.3, 0.01, loss=loss)
    assert alone.regulariser(W, b).item() == pytest.approx(regulariser, rel=1e-12)
    assert alone(logits, y, W).item() == pytest.approx(losses.mean() + slow(logits, y, W, 0, p, 0.3, 0.01, loss)[1],
                                                       rel=1e-12)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("shift, apart", [(1e8, 1.0), (0, 1e-3), (0, 1e-9), (1e3, 1e-6)])
def test_classes_nearly_equal_and_far_from_zero(p, shift, apart):
    _, _, W, _ = problem(k=6)
    W[1:4] = W[0] + apart * W[1:4]
    W = W + shift
    value = ISM3Loss(p, 1.0, 0).regulariser(W)
    # The distances of W as it is rounded; what taking the mean away rounds is relative to the largest part of W.
    assert value.item() == pytest.approx(distances(W, p), rel=1e-12 + 1e-15 * shift / apart)
    close = W[:4].clone().requires_grad_()
    ISM3Loss(p, 1.0, 0).regulariser(close).backward()
    slow_gradient = np.zeros(close.shape)
    for j, l in itertools.permutations(range(4), 2):
        difference = (close[j] - close[l]).detach().numpy()
        slow_gradient[j] += p * np.linalg.norm(difference) ** (p - 2) * difference
    scale = np.abs(slow_gradient).max()
    np.testing.assert_allclose(close.grad / scale, slow_gradient / scale, atol=1e-11 + 1e-14 * shift / apart)


def test_differences_are_taken_in_blocks(monkeypatch):
    _, _, W, _ = problem(k=40)
    W = 1e-5 * W
    W[20:] += 1
    W.requires_grad_()
    (one,) = torch.autograd.grad(ISM3Loss(3).regulariser(W), W)
    monkeypatch.setattr(ours, "BLOCK", 28)
    value = ISM3Loss(3).regulariser(W)
    (several,) = torch.autograd.grad(value, W)
    assert value.item() == ISM3Loss(3).regulariser(W).item()
    torch.testing.assert_close(one, several, rtol=1e-12, atol=0)


def test_memory_does_not_grow_with_classes_times_classes_times_features():
    W = torch.ones(400, 4000, requires_grad=True)  # k k d is 2.6 GB in float32
    with torch.no_grad():
        W[:, 0] += 1e-2 * torch.arange(400)
        W[:, 1:] += 10.0 * (torch.arange(400) % 40)[:, None]
    sizes = []

    def pack(tensor):
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        value = ISM3Loss().regulariser(W)
    value.backward()
    assert max(sizes) <= 400 * 4000 and sum(sizes) < 30 * (400 * 400 + 400 * 4000)
    assert W.grad.isfinite().all()


@pytest.mark.parametrize("options", [{}, {"ignore_index": 2}, {"class_weight": [0.5, 2, 0, 1, 3.25]},
                                     {"ignore_index": -1, "class_weight": [1, 2, 3, 4, 5]}])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_softmax_is_the_cross_entropy(options, reduction):
    X, y, W, b = problem(n=40)
    y[::7] = options.get("ignore_index", 2)
    logits = X @ W.T + b
    theirs = dict(options)
    if "class_weight" in options:
        theirs["weight"] = torch.tensor(theirs.pop("class_weight"), dtype=torch.float64)
    criterion = ISM3Loss(loss="softmax", reduction=reduction, **options)
    value = criterion(logits, y, W, b) - criterion.regulariser(W, b)
    expected = torch.nn.CrossEntropyLoss(reduction=reduction, **theirs)(logits, y)
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_mean_over_minibatches_is_the_value_on_all_rows(loss):
    X, y, W, b = problem(n=24)
    logits = X @ W.T + b
    criterion = ISM3Loss(loss=loss)
    parts = [criterion(logits[i : i + 6], y[i : i + 6], W, b) for i in range(0, 24, 6)]
    whole = criterion(logits, y, W, b)
    assert torch.stack(parts).mean().item() == pytest.approx(whole.item(), rel=1e-12)
    scaled = ISM3Loss(lam=24 * criterion.lam, eps=24 * criterion.eps, loss=loss, reduction="sum")
    assert scaled(logits, y, W, b).item() == pytest.approx(24 * whole.item(), rel=1e-12)


def test_no_row_that_counts():
    X, y, W, b = problem(n=3)
    y[:] = -100
    sums, means = ISM3Loss(reduction="sum"), ISM3Loss()
    assert sums(X @ W.T, y, W, b).item() == sums.regulariser(W, b).item()
    assert means(X @ W.T, y, W, b).isnan() and torch.nn.CrossEntropyLoss()(X @ W.T, y).isnan()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("p", [1.5, 2, 4])
def test_value_is_the_objective_of_ism3(p, loss):
    X, y = ml.load_libsvm(ROOT / "data" / "glass")
    model = ml.train(X, y, solver="ism3", norm=p, lambda_=0.01, eps=1e-3, loss=loss, bias=1)
    W, b = torch.tensor(model.coef), torch.tensor(np.broadcast_to(model.intercept, len(model.coef)).copy())
    targets = torch.tensor(np.searchsorted(model.classes, y))
    assert (model.classes[targets] == y).all()
    value = ISM3Loss(p, 0.01, 1e-3, loss=loss, reduction="sum")(torch.tensor(X.toarray()) @ W.T + b, targets, W, b)
    assert value.item() == pytest.approx(model.info.objective, rel=1e-12)


# derivatives


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("p", [1.5, 2, 4, 8])
@pytest.mark.parametrize("near", [False, True])
def test_derivatives(p, loss, reduction, near):
    X, y, W, b = problem(n=6, d=3)
    if near:
        W[1] = W[0] + 1e-2 * W[1]
        assert (W[0] - W[1]).square().sum() < ours.NEAR * W[0].square().sum()
    y[2] = -100
    criterion = ISM3Loss(p, 0.1, 0.01, loss=loss, reduction=reduction, class_weight=[1.0, 2, 0.5, 1, 1])
    inputs = [a.detach().requires_grad_() for a in (X @ W.T + b, W, b)]

    def value(logits, weight, bias):
        return criterion(logits, y, weight, bias)

    assert torch.autograd.gradcheck(value, inputs)
    assert torch.autograd.gradgradcheck(value, inputs)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_classes_have_a_gradient(p, dtype):
    X, y, W, b = problem(dtype=dtype)
    for start in (torch.zeros_like(W), W[:1].expand(5, 4).clone(), torch.cat((W[:3], W[:2]))):
        weight = start.requires_grad_()
        criterion = ISM3Loss(p, 1.0, 0)
        (gradient,) = torch.autograd.grad(criterion.regulariser(weight), weight, create_graph=True)
        (second,) = torch.autograd.grad(gradient.sum(), weight)
        assert gradient.isfinite().all() and second.isfinite().all()
        criterion(X @ weight.T + b, y, weight, b).backward()
        assert weight.grad.isfinite().all()
    # Pairs of equal classes pull at nothing: the gradient is that of the pairs that differ.
    weight = torch.cat((W[:1], W[:1], W[1:2])).requires_grad_()
    ISM3Loss(p, 1.0, 0).regulariser(weight).backward()
    difference = W[0] - W[1]
    pull = p * difference.norm() ** (p - 2) * difference
    torch.testing.assert_close(weight.grad, torch.stack((pull, pull, -2 * pull)), rtol=1e-4, atol=1e-5 * pull.norm())


@pytest.mark.parametrize("loss", LOSSES)
def test_extreme_logits(loss):
    _, _, W, b = problem(k=3)
    y = torch.tensor([0, 0])
    logits = torch.tensor([[0, 900.0, -torch.inf], [900, 0, -torch.inf]], dtype=torch.float64, requires_grad=True)
    criterion = ISM3Loss(loss=loss, reduction="sum")
    value = criterion(logits, y, W[:3], b[:3]) - criterion.regulariser(W[:3], b[:3])
    assert value.item() == 900
    value.backward()
    np.testing.assert_array_equal(logits.grad, [[-1, 1, 0], [0, 0, 0]])
    # The smallest losses keep their digits.
    small = torch.tensor([[50.0, 0.0]], dtype=torch.float64)
    value = ISM3Loss(loss=loss)._losses(small, y[:1])
    assert value.item() == pytest.approx(np.exp(-50), rel=1e-14)


# precision and devices


def test_single_precision_and_half_precision():
    X, y, W, b = problem(n=30)
    exact = ISM3Loss()(X @ W.T + b, y, W, b).item()
    single = ISM3Loss()(*(a.float() if a.is_floating_point() else a for a in (X @ W.T + b, y, W, b)))
    assert single.dtype == torch.float32 and single.item() == pytest.approx(exact, rel=1e-5)
    half = ISM3Loss()((X @ W.T + b).half(), y, W.float(), b.float())
    assert half.dtype == torch.float32 and half.item() == pytest.approx(exact, rel=1e-2)
    weight = W.bfloat16().requires_grad_()
    ISM3Loss()(X.bfloat16() @ weight.T, y, weight).backward()
    assert weight.grad.dtype == torch.bfloat16 and weight.grad.isfinite().all()


def test_autocast_leaves_the_regulariser_in_single_precision():
    X, y, W, b = problem(n=30, dtype=torch.float32)
    criterion = ISM3Loss()
    layer = torch.nn.Linear(4, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = layer(X)
        assert logits.dtype == torch.bfloat16
        value, regulariser = criterion(logits, y, layer.weight, layer.bias), criterion.regulariser(W, b)
    value.backward()
    assert layer.weight.grad.isfinite().all()
    assert regulariser.item() == criterion.regulariser(W, b).item()


def test_module():
    criterion = ISM3Loss(3, 0.1, class_weight=[1, 2])
    assert str(criterion) == "ISM3Loss(p=3.0, lam=0.1, eps=1e-06, loss='logistic', reduction='mean')"
    assert list(criterion.state_dict()) == ["class_weight"] and not list(criterion.parameters())
    _, y, W, b = problem(k=2)
    for device in {"cpu", torch.get_default_device().type, "cuda" if torch.cuda.is_available() else "cpu"}:
        args = [a.to(device) for a in (torch.ones(9, 2), y, W, b)]
        assert criterion.to(device)(*args).device.type == device


# refusals


@pytest.mark.parametrize("options, words", [
    ({"p": 0.5}, r"p = 0\.5 is not allowed: give number in \[1, inf\)"),
    ({"p": float("nan")}, "p = nan"),
    ({"lam": 0}, r"lam = 0 is not allowed: give number in \(0, inf\)"),
    ({"eps": -1e-9}, r"eps = -1e-09 is not allowed: give number in \[0, inf\)"),
    ({"loss": "hinge"}, r"loss = 'hinge' is not allowed: give logistic \| softmax"),
    ({"reduction": "none"}, r"reduction = 'none' is not allowed: give mean \| sum"),
    ({"ignore_index": 1.5}, r"ignore_index = 1\.5 .* integer"),
    ({"class_weight": [1, -2.0]}, r"class_weight = \[1\.0, -2\.0\] .*one a class"),
    ({"class_weight": [1, float("inf")]}, r"class_weight = \[1\.0, inf\]"),
])
def test_bad_parameters(options, words):
    with pytest.raises(ValueError, match=words):
        ISM3Loss(**options)


@pytest.mark.parametrize("change, words", [
    ({"logits": torch.ones(9)}, r"logits\.shape = \(9,\) .*\(rows, classes\)"),
    ({"logits": torch.ones(9, 1)}, r"logits\.shape = \(9, 1\) .* 2 classes"),
    ({"logits": torch.ones(9, 5, dtype=torch.int64)}, r"logits\.dtype = torch\.int64"),
    ({"targets": torch.ones(8, dtype=torch.int64)}, r"targets\.shape = \(8,\) .*\(9,\)"),
    ({"targets": torch.ones(9)}, r"targets\.dtype = torch\.float32"),
    ({"targets": torch.full((9,), 5)}, r"targets = 5 .*\[0, 4\], or -100"),
    ({"targets": torch.full((9,), -1)}, "targets = -1"),
    ({"weight": torch.ones(4, 5)}, r"weight\.shape = \(4, 5\) .*\(5, features\)"),
    ({"weight": torch.ones(5, 4, 1)}, r"weight\.shape = \(5, 4, 1\)"),
    ({"bias": torch.ones(5, 1)}, r"bias\.shape = \(5, 1\) .*\(5,\)"),
])
def test_bad_tensors(change, words):
    given = {"logits": torch.ones(9, 5), "targets": torch.zeros(9, dtype=torch.int64), "weight": torch.ones(5, 4),
             "bias": torch.ones(5), **change}
    with pytest.raises(ValueError, match=words):
        ISM3Loss()(**given)


def test_class_weight_of_another_number_of_classes():
    with pytest.raises(ValueError, match=r"class_weight\.shape = \(2,\) .*\(5,\)"):
        ISM3Loss(class_weight=[1, 2])(torch.ones(9, 5), torch.zeros(9, dtype=torch.int64), torch.ones(5, 4))


# the example


def test_example():
    spec = importlib.util.spec_from_file_location("ism3_digits", ROOT / "examples" / "ism3_digits.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    results = example.compare(seeds=1, epochs=8, strengths=(1e-4,))
    assert list(results) == list(example.LOSSES)
    for (row,) in results.values():
        strength, accuracy, mean, least = row
        assert strength == 1e-4 and accuracy > 0.9 and mean > 0 > least
    assert results == example.compare(seeds=1, epochs=8, strengths=(1e-4,))
