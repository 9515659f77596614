"""A linear model as a statement of SQL: see `to_sql`."""

from marginlinear.export.functions import labels_of_kind, require_linear
from marginlinear.params import refusal

# Terms that stand side by side: of more than a thousand, a tree of operators is too deep for SQLite and DuckDB.
TERMS = 16


def to_sql(model, table, *, feature_names=None, long=None, name="margin"):
    """A linear model as one SELECT of standard SQL, which SQLite and DuckDB run.

    The table has a row a row and a column a feature; the result has all of its columns and the new ones. Or, with
    `long`, for sparse rows such as text, it has a row for each value that is not 0; the result has the column that
    tells which row it is, and the new ones. A row without any value is not in such a table, nor in the result.

    Parameters
    ----------
    model : Model
        Linear, or with a linear kernel; of an estimator its `model_`.
    table : str
        Name of the table; of a schema's take a view of it, as a point is part of the name.
    feature_names : sequence of str, optional
        Names of all features in their order. Default: the columns f1, f2, ..., and in a long table the integers 1, 2,
        ..., as in LIBSVM's files. The column of a long table has the same type: numbers that are text are none.
    long : sequence of 3 str, optional
        Names of the columns of a long table: of the row, of the feature's name, and of its value.
    name : str, default="margin"
        What the names of the new columns begin with.

    Returns
    -------
    str
        The statement without a semicolon: to be run, or to be the body of a view. New columns are NAME_score, or
        NAME_score_1, NAME_score_2, ... of several, as `decision_function` has them, NAME_votes_1, ... of a model whose
        columns vote, and NAME_label, as `predict` has it; of a regression NAME_score is the prediction, and there is no
        label. They are NULL where a value is that the model needs. Features of a long table that the model does not
        know are left out. Of rows that are scaled to unit length a wide result has NAME_length too, and the database
        needs a function SQRT.

    Raises
    ------
    TypeError
        For what is no Model, and for names that are no text.
    ValueError
        For a kernel that is not linear, and for another number of names.
    """
    linear = require_linear(model, "to_sql")
    for what, given in (("table", table), ("name", name)):
        if not isinstance(given, str):
            raise refusal(what, given, "text")
    n, columns = linear.weights.shape
    scores = [f"{name}_score"] if columns == 1 else [f"{name}_score_{c + 1}" for c in range(columns)]
    given = feature_names is not None
    names = checked_names("feature_names", feature_names, n) if given else [f"f{j + 1}" for j in range(n)]
    if long is None:
        steps = wide_steps(linear, quoted(table), [f"t.{quoted(feature)}" for feature in names], scores, name)
    else:
        numbers = [literal(feature) for feature in (names if given else range(1, n + 1))]
        steps = long_steps(linear, quoted(table), numbers, checked_names("long", long, 3), scores, name)
    if model.classes is not None:
        steps += label_steps(model, scores, name)
    # All but the last are named, each for the next.
    *before, (_, last) = steps
    heads = ",\n".join(f"{head} AS (\n{text})" for head, text in before)
    return f"WITH {heads}\n{last}" if before else last


def wide_steps(linear, table, features, scores, name):
    """[(name, SELECT)] that end with the scores, of a table with a column a feature."""
    steps, over = [], ""
    if linear.unit:
        length = f"{name}_length"
        squares = [f"(1e0 * {feature} * {feature})" for feature in features]
        steps.append((quoted(f"{name}_lengths"),
                      f"SELECT t.*,\nSQRT({joined(squares, ' + ')}) AS {quoted(length)}\nFROM {table} AS t"))
        table, over = steps[0][0], f"t.{quoted(length)}"
    found = []
    for weights, intercept, score in zip(linear.weights.T.tolist(), linear.intercept.tolist(), scores, strict=True):
        terms = [f"{literal(weight)} * {feature}" for weight, feature in zip(weights, features, strict=True) if weight]
        total = divided(joined(terms, " + "), over)
        found.append(f"{total} + {literal(intercept)} AS {quoted(score)}")
    return [*steps, (quoted(f"{name}_scores"), f"SELECT t.*,\n{listed(found)}\nFROM {table} AS t")]


def long_steps(linear, table, features, columns, scores, name):
    """The same of a table of rows, features and values."""
    row, feature, value = map(quoted, columns)
    words = [f"({', '.join([number, *map(literal, weights)])})"
             for number, weights in zip(features, linear.weights.tolist(), strict=True) if any(weights)]
    # A list of no rows is not allowed; nothing equals NULL.
    words = words or [f"({', '.join(['NULL', *['0e0'] * len(scores)])})"]
    head = quoted(f"{name}_weights")
    weights = [f"w_{c + 1}" for c in range(len(scores))]
    over = f"SQRT(SUM(1e0 * t.{value} * t.{value}))" if linear.unit else ""
    found = []
    for weight, intercept, score in zip(weights, linear.intercept.tolist(), scores, strict=True):
        total = divided(f"COALESCE(SUM(t.{value} * w.{weight}), 0e0)", over)
        # Sums leave NULLs out.
        found.append(f"CASE WHEN COUNT(t.{value}) = COUNT(*) THEN {total} + {literal(intercept)} END "
                     f"AS {quoted(score)}")
    # SQLite makes an index of a list only for what is no column as it is, whose type it would give the list.
    return [(f"{head} (feature, {', '.join(weights)})", "VALUES\n" + ",\n".join(words)),
            (quoted(f"{name}_scores"), f"SELECT t.{row},\n{listed(found)}\nFROM {table} AS t "
             f"LEFT JOIN {head} AS w ON w.feature = COALESCE(t.{feature}, t.{feature}) GROUP BY t.{row}")]


def label_steps(model, scores, name):
    """The same from the scores to the labels."""
    labels = [literal(label) for label in labels_of_kind(model).tolist()]
    ranks, steps, source = [f"t.{quoted(score)}" for score in scores], [], quoted(f"{name}_scores")
    if model.voted:
        votes = [quoted(f"{name}_votes_{place + 1}") for place in range(len(labels))]
        found = [f"{joined(votes_for(codes, ranks), ' + ')} AS {vote}"
                 for codes, vote in zip(model.codes.tolist(), votes, strict=True)]
        steps = [(quoted(f"{name}_votes"), f"SELECT t.*,\n{listed(found)}\nFROM {source} AS t")]
        ranks, source = [f"t.{vote}" for vote in votes], steps[0][0]
    if model.voted or model.joint:
        # Whoever is not below any later one is the first of the largest, as no earlier one is.
        cases = [(joined([f"{rank} IS NULL" for rank in ranks], " OR "), "NULL"),
                 *((joined([f"{rank} >= {other}" for other in ranks[place + 1:]], " AND "), labels[place])
                   for place, rank in enumerate(ranks[:-1]))]
        last = labels[-1]
    else:
        cases, last = [(f"{ranks[0]} > 0", labels[1]), (f"{ranks[0]} <= 0", labels[0])], "NULL"
    words = "\n".join(f"  WHEN {condition} THEN {label}" for condition, label in cases)
    return [*steps, (quoted(f"{name}_labels"), f"SELECT t.*, CASE\n{words}\n  ELSE {last} END AS "
                     f"{quoted(f'{name}_label')}\nFROM {source} AS t")]


def votes_for(codes, scores):
    """Terms whose sum are the votes for a class with these codes."""
    return [f"CASE WHEN {score} > 0 THEN {int(code > 0)} WHEN {score} <= 0 THEN {int(code < 0)} END"
            for code, score in zip(codes, scores, strict=True) if code]


def listed(expressions):
    return ",\n".join(expressions)


def divided(total, length):
    """The total over the length of the row, 0 for one of zeros; as it is where the length is ""."""
    return f"CASE WHEN {length} = 0 THEN 0e0 ELSE ({total}) / {length} END" if length else total


def joined(terms, operator):
    """The terms with the operator between them, many as a balanced tree; none are 0."""
    if len(terms) <= TERMS:
        return f"({operator.join(terms)})" if terms else "0e0"
    middle = len(terms) // 2
    return f"({joined(terms[:middle], operator)}{operator}{joined(terms[middle:], operator)})"


def checked_names(what, names, count):
    """The names, a list of so many str; TypeError or ValueError else."""
    names = list(names)
    for name in names:
        if not isinstance(name, str):
            raise refusal(what, name, "text")
    if len(names) != count:
        raise ValueError(f"{what} has {len(names)} names: {count} are needed")
    return names


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def literal(value):
    """A label or a number; that a number has an exponent makes it a float everywhere, not a decimal one."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return str(value).upper()
    text = repr(value)
    return text + "e0" if isinstance(value, float) and "e" not in text else text
