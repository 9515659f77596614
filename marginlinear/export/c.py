"""A linear model as a C99 file: see `to_c`."""

import re

from marginlinear._version import version
from marginlinear.data.one_against_one import are_codes
from marginlinear.export.functions import labels_of_kind, require_linear

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Numbers of a line.
IN_LINE = 8
LABELS = {"b": "int", "i": "long long", "f": "double", "U": "const char *"}

HEAD = """\
/* Made by marginlinear {version} of a {what}.

   {name}_features, {name}_columns: numbers of a row x, and of its scores.

   {name}_decision_function: the scores of a dense row, which has all features.
   {name}_decision_function_sparse: those of a row with `count` values, x[i] of the feature index[i], counted from 0;
   each at most once, in any order. Features that the model does not know are left out{but}.
   {name}_predict, {name}_predict_sparse: {answer}.

   Nothing but C99{library}; no state, so that threads may share it. */
"""

SCORES = """
void {name}_decision_function(const double *x, double *scores)
{{
    for (int c = 0; c < {name}_columns; c++)
        scores[c] = 0;
    for (size_t j = 0; j < {name}_features; j++)
        for (int c = 0; c < {name}_columns; c++)
            scores[c] += x[j] * {name}_weights[j][c];
{length_dense}{added}}}

void {name}_decision_function_sparse(size_t count, const size_t *index, const double *x, double *scores)
{{
    for (int c = 0; c < {name}_columns; c++)
        scores[c] = 0;
    for (size_t i = 0; i < count; i++)
        if (index[i] < {name}_features)
            for (int c = 0; c < {name}_columns; c++)
                scores[c] += x[i] * {name}_weights[index[i]][c];
{length_sparse}{added}}}
"""

LENGTH = """
static double {name}_length(size_t count, const double *x)
{{
    double largest = 0, sum = 0;
    for (size_t i = 0; i < count; i++)
        largest = fabs(x[i]) > largest ? fabs(x[i]) : largest;
    if (largest == 0)
        return 1;
    for (size_t i = 0; i < count; i++)
        sum += (x[i] / largest) * (x[i] / largest);
    return largest * sqrt(sum);
}}
"""

ADDED = """\
    for (int c = 0; c < {name}_columns; c++)
        scores[c] {added_to} {name}_intercept[c];
"""

PREDICT = """
static {type}{name}_answer(const double *scores)
{{
{body}}}

{type}{name}_predict(const double *x)
{{
    double scores[{name}_columns];
    {name}_decision_function(x, scores);
    return {name}_answer(scores);
}}

{type}{name}_predict_sparse(size_t count, const size_t *index, const double *x)
{{
    double scores[{name}_columns];
    {name}_decision_function_sparse(count, index, x, scores);
    return {name}_answer(scores);
}}
"""

LARGEST = """\
    int best = 0;
    for (int l = 1; l < {classes}; l++)
        if ({ranks}[l] > {ranks}[best])
            best = l;
    return {name}_labels[best];
"""

# A score above 0 is a vote for the first of a pair.
PAIRS = """\
    int votes[{classes}] = {{0}}, c = 0;
    for (int i = 0; i < {classes}; i++)
        for (int j = i + 1; j < {classes}; j++)
            votes[scores[c++] > 0 ? i : j]++;
"""

CODES = """\
    int votes[{classes}] = {{0}};
    for (int l = 0; l < {classes}; l++)
        for (int c = 0; c < {name}_columns; c++)
            votes[l] += scores[c] > 0 ? {name}_codes[l][c] > 0 : {name}_codes[l][c] < 0;
"""


def to_c(model, *, name="margin"):
    """A linear model as a C99 file, without dependencies.

    Parameters
    ----------
    model : Model
        Linear, or with a linear kernel; of an estimator its `model_`.
    name : str, default="margin"
        What all names of the file begin with: an identifier of C.

    Returns
    -------
    str
        The text of the file, with the functions `NAME_predict`, `NAME_decision_function`, `NAME_predict_sparse` and
        `NAME_decision_function_sparse`, which its head describes. A label is an int, long long, double or const char *
        (UTF-8). The numbers read back exactly; scores agree with `decision_function` to rounding.

    Raises
    ------
    TypeError
        For what is no Model.
    ValueError
        For a kernel that is not linear, and a name that C does not take.
    """
    linear = require_linear(model, "to_c")
    if not isinstance(name, str) or not WORD.fullmatch(name):
        raise ValueError(f"name = {name!r} is not allowed: give letters, digits and _, no digit first")
    n, columns = linear.weights.shape
    words = {"name": name, "version": version, "type": "double ", "answer": "the prediction", "what": "regression",
             "but": "", "library": "", "added_to": "+=", "length_dense": "", "length_sparse": ""}
    tables, body = "", "    return scores[0];\n"
    if model.classes is not None:
        tables, body = labelled(model, words)
    if linear.unit:
        words |= {"but": ",\n   but for the length by which all values are divided", "library": " and its math library",
                  "added_to": "= scores[c] / length +",
                  "length_dense": f"    const double length = {name}_length({name}_features, x);\n",
                  "length_sparse": f"    const double length = {name}_length(count, x);\n"}
    words["added"] = ADDED.format(**words)
    return "".join([
        HEAD.format(**words), "#include <math.h>\n" if linear.unit else "", "#include <stddef.h>\n\n",
        f"enum {{ {name}_features = {n}, {name}_columns = {columns} }};\n\n",
        # There are no arrays without elements.
        f"static const double {name}_weights[{max(n, 1)}][{columns}] = ",
        table(repr, linear.weights.tolist() or [[0.0]]), ";\n\n",
        f"static const double {name}_intercept[{columns}] = {row(repr, linear.intercept.tolist())};\n", tables,
        LENGTH.format(**words) if linear.unit else "", SCORES.format(**words), PREDICT.format(body=body, **words)])


def labelled(model, words):
    """(the tables of a classifier, the body of the function of its scores); `words` get what they are told of."""
    labels = labels_of_kind(model)
    kind = LABELS[labels.dtype.kind]
    name, k = words["name"], len(labels)
    words |= {"what": f"classifier of {k} classes", "answer": f"the label, a `{kind}`", "classes": k,
              "type": kind if kind.endswith("*") else kind + " ", "ranks": "votes" if model.voted else "scores"}
    tables = f"\nstatic {words['type']}const {name}_labels[{k}] = {row(literal, labels.tolist())};\n"
    if not model.voted:
        body = LARGEST if model.joint else "    return {name}_labels[scores[0] > 0];\n"
    elif are_codes(model.codes):
        body = PAIRS + LARGEST
    else:
        body = CODES + LARGEST
        tables += (f"\nstatic const signed char {name}_codes[{k}][{model.columns}] = "
                   f"{table(str, model.codes.tolist())};\n")
    return tables, body.format(**words)


def table(text, rows):
    """An initialiser of rows of values."""
    return "{\n" + ",\n".join(row(text, values) for values in rows) + "}"


def row(text, values):
    """An initialiser of values, some in a line."""
    words = [text(value) for value in values]
    lines = [", ".join(words[low : low + IN_LINE]) for low in range(0, len(words), IN_LINE)]
    return "{" + ",\n ".join(lines) + "}"


def literal(label):
    """A label as a constant of C."""
    if isinstance(label, str):
        return '"' + "".join(character(byte) for byte in label.encode("utf-8")) + '"'
    if isinstance(label, float):
        return repr(label)
    if isinstance(label, bool):
        return str(int(label))
    # The least of them is not a number with a sign.
    return f"({label + 1}LL - 1)" if label == -1 << 63 else f"{label}LL"


def character(byte):
    """One of a string: in octal, which takes three digits at most, where it is not a plain one."""
    found = chr(byte)
    return found if found.isascii() and found.isprintable() and found not in '"\\?' else f"\\{byte:03o}"
