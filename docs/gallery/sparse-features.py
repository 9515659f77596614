"""With the l1 norm two dozen words of two thousand are left, and they tell statistics from signal processing.

`l1lr` gives most features a weight of exactly 0. What is left can be named: here words of the docstrings of
`scipy.stats` and `scipy.signal`.
"""

import inspect
import re

import matplotlib.pyplot as plt
import numpy as np
import scipy.signal
import scipy.stats
from sklearn.feature_extraction.text import TfidfVectorizer

import marginlinear as ml
from marginlinear.plotting import style

texts, labels = [], []
for module in scipy.signal, scipy.stats:
    for name in module.__all__:
        text = inspect.getdoc(getattr(module, name)) or ""
        if callable(getattr(module, name)) and len(text) > 200:
            texts.append(re.sub(r".*(scipy|>>>).*", "", text))
            labels.append(module.__name__)
labels = np.array(labels)

words = TfidfVectorizer(min_df=3, token_pattern=r"[a-z]{3,}", sublinear_tf=True)
X = words.fit_transform(texts)
test = np.arange(len(labels)) % 3 == 0
model = ml.train(X[~test], labels[~test], solver="l1lr", C=4, bias=1)

w = model.coef[0][:X.shape[1]] * np.where(model.classes[1] == "scipy.stats", 1, -1)
kept = np.flatnonzero(w)
accuracy = np.mean(model.predict(X[test]) == labels[test])
print(f"{len(kept)} of {len(w)} words, accuracy {accuracy:.2f} on other texts")
assert len(kept) < 0.1 * len(w)
assert accuracy > 0.85

shown = kept[np.argsort(w[kept])]
shown = np.concatenate([shown[:10], shown[-10:]])
with style():
    figure, ax = plt.subplots(figsize=(6.4, 5), layout="constrained")
    ax.barh(words.get_feature_names_out()[shown], w[shown], color=np.where(w[shown] > 0, "#0072B2", "#D55E00"))
    ax.set_xlabel("weight: signal to the left, stats to the right")
    figure.savefig("sparse-features.svg")
