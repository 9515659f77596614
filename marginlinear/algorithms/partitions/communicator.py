"""Messages to all partitions, and the sums of what they answer.

A Communicator has three methods:

    run(recipe, about, operations)      [the sums of each operation's arrays, or None], in partition.py's words
    collect(recipe, about, operations, solve, *arguments)
                                        solve(the sum of the last operation's one array, *arguments), where there is
                                        room for it
    forget()                            the states of the rows are not needed any more

Sums are made by a tree over the numbers of the partitions, ((0 + 1 + 2 + 3) + (4 + ...)) + ...: the same bits wherever
partitions are, and whichever answers first.
"""

# Sums that a node of the tree takes together.
FAN_IN = 4


def added(replies):
    """The sum of some partitions' replies, in their order."""
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


def tree(replies, node):
    """node(...node(replies[:FAN_IN]), ...): the sum of all replies."""
    while len(replies) > 1:
        replies = [node(replies[at:at + FAN_IN]) for at in range(0, len(replies), FAN_IN)]
    return replies[0]


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
        return tree([reply for _, reply in answers], added)
