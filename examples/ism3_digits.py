#!/usr/bin/env python3
"""A small network on handwritten digits: cross entropy with weight decay against ISM3Loss.

    pip install 'marginlinear[torch]'
    python examples/ism3_digits.py [--seeds 5] [--epochs 20]

The network is 64 pixels, 64 rectified units, 10 logits. For each seed the rows are split into 60 % for training, 20 %
to choose the strength of the regulariser of the last layer (by accuracy, the strongest of equals), and 20 % for the
test; every loss sees the same splits and the same start. The hidden layer is not regularised. Printed, as mean and
standard deviation over the seeds: test accuracy; mean and least margin of the test rows, where the margin of a row is
its signed distance, in the last layer's input space, to the nearest border of its class, min_l t_il / ||w_y - w_l||,
divided by the root mean square of the inputs' norms, so that scaling a layer changes nothing.
"""

import argparse
from pathlib import Path

import torch

import marginlinear as ml
from marginlinear.torch import ISM3Loss

DATA = Path(__file__).resolve().parent.parent / "data" / "digits"
BATCH = 64
STRENGTHS = (1e-2, 1e-3, 1e-4)


def cross_entropy(strength):
    """The criterion, and the optimiser's weight decay of the last layer."""
    loss = torch.nn.CrossEntropyLoss()
    return lambda logits, targets, weight, bias: loss(logits, targets), strength


def ism3(loss):
    return lambda strength: (ISM3Loss(p=4, lam=strength, loss=loss), 0.0)


LOSSES = {
    "cross entropy + weight decay": cross_entropy,
    "ISM3Loss, softmax": ism3("softmax"),
    "ISM3Loss, logistic": ism3("logistic"),
}


def train(X, y, make, strength, seed, epochs):
    """A body and a head trained on X, y."""
    torch.manual_seed(seed)
    body = torch.nn.Sequential(torch.nn.Linear(X.shape[1], 64), torch.nn.ReLU())
    head = torch.nn.Linear(64, int(y.max()) + 1)
    criterion, decay = make(strength)
    groups = [{"params": body.parameters()}, {"params": head.parameters(), "weight_decay": decay}]
    optimizer = torch.optim.Adam(groups, lr=3e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(X)).split(BATCH):
            optimizer.zero_grad()
            criterion(head(body(X[rows])), y[rows], head.weight, head.bias).backward()
            optimizer.step()
    return body, head


@torch.no_grad()
def measure(body, head, X, y):
    """Accuracy, and the margin of every row."""
    features = body(X)
    logits, W, own = head(features), head.weight, y[:, None]
    t = logits.gather(1, own) - logits
    distances = (t / torch.cdist(W, W)[y]).scatter(1, own, torch.inf)
    accuracy = (logits.argmax(1) == y).double().mean().item()
    return accuracy, distances.amin(1) / features.square().sum(1).mean().sqrt()


def compare(seeds, epochs, strengths=STRENGTHS):
    """{loss: [(chosen strength, test accuracy, mean margin, least margin) of each seed]}"""
    X, y = ml.load_libsvm(DATA)
    X, y = torch.tensor(X.toarray() / 16, dtype=torch.float32), torch.tensor(y).long()
    results = {name: [] for name in LOSSES}
    for seed in range(seeds):
        order = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
        fit, choose, test = order.tensor_split([len(X) * 3 // 5, len(X) * 4 // 5])
        for name, make in LOSSES.items():
            trained = [train(X[fit], y[fit], make, strength, seed, epochs) for strength in strengths]
            # The first of equals: the strongest.
            chosen = max(range(len(strengths)), key=lambda i: measure(*trained[i], X[choose], y[choose])[0])
            accuracy, margins = measure(*trained[chosen], X[test], y[test])
            results[name].append((strengths[chosen], accuracy, margins.mean().item(), margins.min().item()))
    return results


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--epochs", type=int, default=20)
    args = p.parse_args(argv)
    torch.set_num_threads(1)
    print(f"{'':30}{'test accuracy':>18}{'mean margin':>18}{'least margin':>18}  strengths chosen")
    for name, rows in compare(args.seeds, args.epochs).items():
        strengths, *columns = zip(*rows, strict=True)
        cells = []
        for column in columns:
            values = torch.tensor(column)
            cells.append(f"{values.mean():9.4f} +- {values.std(correction=0):.4f}")
        print(f"{name:30}{cells[0]:>18}{cells[1]:>18}{cells[2]:>18}  {' '.join(f'{s:g}' for s in strengths)}")


if __name__ == "__main__":
    main()
