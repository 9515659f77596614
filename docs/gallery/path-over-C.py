"""Along a path over C, fits that go on from the last one take fewer sweeps than fits that begin anew.

Both reach the same optimum: their objectives differ by no more than the certificates say. The accuracy on rows that no
fit has seen is what the path is made for.
"""

import matplotlib.pyplot as plt
import numpy as np

import marginlinear as ml
from marginlinear.plotting import style

X, y = ml.load_libsvm("data/news20.train")
Xt, yt = ml.load_libsvm("data/news20.test", n_features=X.shape[1])

values = 2.0 ** np.arange(-3, 6)
last, warm, cold, seen, unseen = None, [], [], [], []
for C in values:
    fresh = ml.train(X, y, solver="cs", C=C)
    last = ml.train(X, y, solver="cs", C=C, start=last)
    assert abs(last.info.objective - fresh.info.objective) <= last.info.certificate + fresh.info.certificate
    warm.append(last.info.n_iter)
    cold.append(fresh.info.n_iter)
    seen.append(np.mean(last.predict(X) == y))
    unseen.append(np.mean(last.predict(Xt) == yt))

print(f"{sum(warm)} sweeps along the path, {sum(cold)} anew; best C {values[np.argmax(unseen)]:g}")
assert sum(warm) < 0.9 * sum(cold)

with style():
    figure, (above, below) = plt.subplots(2, sharex=True, layout="constrained")
    above.plot(values, seen, label="training rows")
    above.plot(values, unseen, label="other rows")
    above.set_ylabel("accuracy")
    below.plot(values, cold, label="anew")
    below.plot(values, warm, label="from the last model")
    below.set(xscale="log", xlabel="C", ylabel="sweeps", ylim=(0, None))
    above.legend()
    below.legend()
    figure.savefig("path-over-C.svg")
