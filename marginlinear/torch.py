"""The ISM3 objective as a loss module of PyTorch (extra `[torch]`), for the last linear layer of a network.

    P = sum_i sum_{l != y_i} log(1 + exp(-t_il)) + lam sum_{j<l} ||w_j - w_l||^p + eps (||W||_F^2 + ||b||^2),
    t_il = logits_{i,y_i} - logits_il.
    loss="softmax": the inner sum becomes log(1 + sum_{l != y_i} exp(-t_il)), which is the cross entropy.

Source: F. Nie, Z. Hao, R. Wang, "Multi-Class Support Vector Machine with Maximizing Minimum Margin", AAAI 2024 (M3SVM;
ISM3 in its appendix).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from marginlinear import params as P
from marginlinear.errors import needed

if TYPE_CHECKING:
    from typing import Any, Literal

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(needed("marginlinear.torch needs PyTorch", "torch"), name="torch") from error
from torch.nn.functional import logsigmoid

__all__ = ["ISM3Loss"]

NORM = P.NORM._replace(name="p", default=4.0)
LAM = P.LAMBDA._replace(name="lam", default=1e-3)
# A network's training asks for no unique optimum, so eps may be 0.
EPS = P.EPS._replace(domain="[0, inf)")
REDUCTION = P.Param("reduction", str, "mean", "how the losses of the rows are summed up", choices=("mean", "sum"))
IGNORE_INDEX = P.Param("ignore_index", int, -100, "target of rows that do not count")

# ||w_j - w_l||^2 below this part of ||w_j||^2 + ||w_l||^2 has lost digits in the Gram matrix.
NEAR = 1e-3
# Numbers of a block of differences w_j - w_l.
BLOCK = 2**20


class ISM3Loss(torch.nn.Module):  # type: ignore[misc, unused-ignore]  # Any where torch is not installed
    """Loss of the logits and pairwise regulariser of the last layer, in place of CrossEntropyLoss and weight decay.

        criterion = ISM3Loss(p=4, lam=1e-3)
        loss = criterion(head(features), targets, head.weight, head.bias)

    Take the last layer out of the optimiser's weight decay; the other layers may keep it.

    `CrossEntropyLoss(weight=c, ignore_index=i)` is `ISM3Loss(loss="softmax", class_weight=c, ignore_index=i)` without
    the regulariser. There is no label smoothing and there are no targets that are probabilities. Each call with p != 2
    waits once for the device, to see which classes are nearly equal.

    Parameters
    ----------
    p : float, default 4
        Exponent of the distances of the classes, in [1, inf). At p = 2 they add up to k ||W||_F^2 once the rows' mean
        is taken from each row of W: a weight decay of 2 k lam. Where w_j = w_l and there is no gradient (p = 1), 0 is
        taken.
    lam : float, default 1e-3
        Weight of the distances, in (0, inf).
    eps : float, default 1e-6
        Weight of ||W||_F^2 + ||b||^2, in [0, inf).
    loss : {"logistic", "softmax"}
        The paper's sum over the rivals, or the cross entropy.
    reduction : {"mean", "sum"}
        Of the losses of the rows; the regulariser is added once and whole. "mean" is for minibatches: the mean over
        batches of a fixed size is the value on all rows, and lam means the same whatever the batch, as weight decay
        does. `marginlinear.train(X, y, solver="ism3", lambda_=n * lam, eps=n * eps)` on n rows minimises n times the
        same function. "sum" on all rows is the objective of `ism3` itself, with lambda_=lam.
    ignore_index : int, default -100
        Rows with this target cost nothing and do not count in the mean.
    class_weight : tensor of shape (k,), optional
        Finite factors >= 0 of the losses of the rows of each class; the mean divides by their sum over the rows, as
        that of CrossEntropyLoss does.

    Raises
    ------
    ValueError
        Names the parameter, its value and its domain.
    """

    class_weight: torch.Tensor | None

    def __init__(self, p: float = NORM.default, lam: float = LAM.default, eps: float = EPS.default, *,
                 loss: Literal["logistic", "softmax"] = P.LOSS.default,
                 reduction: Literal["mean", "sum"] = REDUCTION.default, ignore_index: int = IGNORE_INDEX.default,
                 class_weight: torch.Tensor | None = None) -> None:
        super().__init__()
        self.p, self.lam, self.eps = NORM.check(p), LAM.check(lam), EPS.check(eps)
        self.loss, self.reduction = P.LOSS.check(loss), REDUCTION.check(reduction)
        self.ignore_index = IGNORE_INDEX.check(ignore_index)
        if class_weight is not None:
            class_weight = torch.as_tensor(class_weight)
            if class_weight.ndim != 1 or not ((class_weight >= 0) & (class_weight < math.inf)).all():
                raise _refusal("class_weight", class_weight.tolist(), "finite numbers >= 0, one a class")
        self.register_buffer("class_weight", class_weight)

    def extra_repr(self) -> str:
        return f"p={self.p}, lam={self.lam}, eps={self.eps}, loss={self.loss!r}, reduction={self.reduction!r}"

    def forward(self, logits: torch.Tensor, targets: torch.Tensor, weight: torch.Tensor,
                bias: torch.Tensor | None = None) -> torch.Tensor:
        """The value, a tensor without dimensions; half precision is computed in float32.

        With reduction "mean" and no row that counts it is nan, as that of CrossEntropyLoss.

        Parameters
        ----------
        logits : floating tensor of shape (n, k), k >= 2
        targets : integer tensor of shape (n,)
            Classes 0..k-1 or `ignore_index`. On a CPU others raise ValueError; elsewhere PyTorch's own assertion
            stops the program.
        weight : floating tensor of shape (k, d)
            The layer's: `torch.nn.Linear.weight`.
        bias : floating tensor of shape (k,), optional
        """
        self._check(logits, targets, weight, bias)
        # Automatic mixed precision would take the Gram matrix in half precision.
        with torch.autocast(logits.device.type, enabled=False):
            return self._losses(_at_least_single(logits), targets.long()) + self.regulariser(weight, bias)

    def regulariser(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """lam sum_{j<l} ||w_j - w_l||^p + eps (||W||_F^2 + ||b||^2), in O(k^2 + k d) memory."""
        with torch.autocast(weight.device.type, enabled=False):
            weight = _at_least_single(weight)
            squares = weight.square().sum()
            if bias is not None:
                squares = squares + _at_least_single(bias).square().sum()
            value: torch.Tensor = self.lam * _sum_of_distances(weight, self.p) + self.eps * squares
            return value

    def _losses(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        ignored = targets == self.ignore_index
        own = targets.masked_fill(ignored, 0)[:, None]
        # s_il = -t_il; log(1 + exp(s)) of the own class is 0, and so are its derivatives. Not -inf: it has none.
        s = (logits - logits.gather(1, own)).scatter(1, own, torch.finfo(logits.dtype).min)
        # log(1 + exp(s)) = -logsigmoid(-s), exact for every s; softplus is cut off at s = 20.
        losses = -logsigmoid(-s).sum(1) if self.loss == "logistic" else -logsigmoid(-s.logsumexp(1))
        factors = torch.ones_like(losses) if self.class_weight is None else self.class_weight.to(losses)[own.squeeze(1)]
        factors = factors.masked_fill(ignored, 0)
        total = (factors * losses.masked_fill(ignored, 0)).sum()
        return total / factors.sum() if self.reduction == "mean" else total

    def _check(self, logits: torch.Tensor, targets: torch.Tensor, weight: torch.Tensor,
               bias: torch.Tensor | None) -> None:
        for name, tensor in (("logits", logits), ("weight", weight), ("bias", bias)):
            if tensor is not None and not tensor.is_floating_point():
                raise _refusal(f"{name}.dtype", tensor.dtype, "a floating one")
        if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
            raise _refusal("targets.dtype", targets.dtype, "integers, the classes' indices")
        if logits.ndim != 2 or logits.shape[1] < 2:
            raise _refusal("logits.shape", tuple(logits.shape), "(rows, classes), at least 2 classes")
        n, k = logits.shape
        if targets.shape != (n,):
            raise _refusal("targets.shape", tuple(targets.shape), f"({n},), one a row of the logits")
        if weight.ndim != 2 or len(weight) != k:
            raise _refusal("weight.shape", tuple(weight.shape), f"({k}, features), one row a column of the logits")
        if bias is not None and bias.shape != (k,):
            raise _refusal("bias.shape", tuple(bias.shape), f"({k},), one a column of the logits")
        if self.class_weight is not None and len(self.class_weight) != k:
            raise _refusal("class_weight.shape", tuple(self.class_weight.shape), f"({k},), one a column of the logits")
        # Elsewhere a look at the values would wait for the device.
        if targets.device.type == "cpu":
            outside = targets[((targets < 0) | (targets >= k)) & (targets != self.ignore_index)]
            if len(outside):
                raise _refusal("targets", f"{int(outside[0])}", f"integers in [0, {k - 1}], or {self.ignore_index} to "
                               "ignore a row")


def _sum_of_distances(W: torch.Tensor, p: float) -> torch.Tensor:
    """sum_{j<l} ||w_j - w_l||^p of the rows of W (k, d)."""
    # A common shift changes no difference, but costs the Gram matrix its digits.
    W = W - W.mean(0)
    if p == 2:
        return len(W) * W.square().sum()
    # D2_jl = G_jj + G_ll - 2 G_jl, j < l
    G = W @ W.T
    sizes = G.diagonal()[:, None] + G.diagonal()
    D2 = (sizes - 2 * G).triu(1)
    pairs = (NEAR * sizes > D2).triu(1).nonzero()
    if len(pairs):
        D2 = D2.index_put(tuple(pairs.T), _SquaredDistances.apply(W, pairs))
    # The power's derivative at 0 is infinite for p < 2, and infinity times 0 is no gradient.
    equal = D2 <= 0
    return (D2.masked_fill(equal, 1) ** (p / 2)).masked_fill(equal, 0).sum()


class _SquaredDistances(torch.autograd.Function):  # type: ignore[misc, unused-ignore]  # as above
    """||w_j - w_l||^2 of pairs (j, l), in blocks: all differences of many pairs would not fit in memory."""

    @staticmethod
    def forward(ctx: Any, W: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(W, pairs)
        blocks = pairs.split(_pairs_of_a_block(W))
        return torch.cat([(W[block[:, 0]] - W[block[:, 1]]).square().sum(1) for block in blocks])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor,  # pyright: ignore[reportIncompatibleMethodOverride]  # of one output
                 ) -> tuple[torch.Tensor, None]:
        W, pairs = ctx.saved_tensors
        size = _pairs_of_a_block(W)
        total = torch.zeros_like(W)
        for block, part in zip(pairs.split(size), gradient.split(size), strict=True):
            j, l = block.T
            pull = 2 * part[:, None] * (W[j] - W[l])
            total = total.index_add(0, j, pull).index_add(0, l, -pull)
        return total, None


def _pairs_of_a_block(W: torch.Tensor) -> int:
    return max(1, BLOCK // int(W.shape[1]))


def _at_least_single(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _refusal(name: str, value: object, allowed: str) -> ValueError:
    return ValueError(f"{name} = {value} is not allowed: give {allowed}")
