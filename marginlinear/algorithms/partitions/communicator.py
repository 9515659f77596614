"""Messages to all partitions, and the sums of what they answer.

A Communicator has three methods:

    run(recipe, about, operations)      [the sums of each operation's arrays, or None], in partition.py's words
    collect(recipe, about, operations, solve, *arguments)
                                        solve(the sum of the last operation's one array, *arguments), where there is
                                        room for it
    forget()                            the states of the rows are not needed any more

Sums are made by a tree over the numbers of the partitions, of which each node has FAN_IN below it: the same bits
wherever partitions are, whichever are together, and whichever answers first.
"""

# Sums that a node of the tree takes together.
FAN_IN = 8


def added(replies):
    """The sum of some replies, in their order."""
    first, *others = replies
    sums = []
    for at, arrays in enumerate(first):
        if arrays is None:
            sums.append(None)
            continue
        whole = [array.copy() for array in arrays]
        for reply in others:
            for array, more in zip(whole, reply[at], strict=True):
                array += more
        sums.append(whole)
    return sums


def merged(nodes, count):
    """The nodes of the tree over `count` partitions that can be made of these.

    Parameters
    ----------
    nodes : dict
        (level, number at the level) -> sum; the reply of partition p is (0, p).

    Returns
    -------
    dict
        The same of the highest nodes: {(top, 0): the sum of all} where all partitions are in `nodes`.
    """
    nodes, level = dict(nodes), 0
    while count > 1:
        for number in range(-(-count // FAN_IN)):
            below = [(level, at) for at in range(FAN_IN * number, min(count, FAN_IN * (number + 1)))]
            if all(node in nodes for node in below):
                nodes[level + 1, number] = added([nodes.pop(node) for node in below])
        count, level = -(-count // FAN_IN), level + 1
    return nodes


class InProcess:
    """Partitions in this process, one after the other.

    Parameters
    ----------
    partitions : list of Partition
    """

    def __init__(self, partitions):
        self.partitions = partitions
        self.forget()

    def forget(self):
        self.states = [None] * len(self.partitions)

    def collect(self, recipe, about, operations, solve, *arguments):
        return solve(self.run(recipe, about, operations)[-1][0], *arguments)

    def run(self, recipe, about, operations):
        answers = [partition.answer(recipe, state, about, operations)
                   for partition, state in zip(self.partitions, self.states, strict=True)]
        self.states = [state for state, _ in answers]
        whole, = merged({(0, at): reply for at, (_, reply) in enumerate(answers)}, len(answers)).values()
        return whole
