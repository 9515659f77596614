"""Messages to partitions on the workers of a Dask cluster.

A message is a handful of plain tasks, without sockets, actors or state of ours on the workers:

    message                             what is asked, once
    answer p    (partition p, answer p of the message before, message)  ->  (state, reply)
    reply p     (answer p)
    sum         of 4 replies or sums; the driver gets the last

When a worker is lost, Dask makes what it held anew: the partition from its source, and the state from the messages
before, whose bits are the same, wherever and however often they are answered. So that this does not go back to the
first message, states are copied from time to time, and what was before is released: to files of a folder that all
workers see, or else to the driver's memory. Where Dask has lost what it cannot make, as the copies that the driver
sent, the messages since the last copies are sent again.
"""

import asyncio
import time
import uuid

import numpy as np
from distributed import wait
from distributed.client import FutureCancelledError

from marginlinear.algorithms.partitions.communicator import FAN_IN, added, tree

# Seconds between looks at the signals while workers answer.
TURN = 0.2


class Message:
    """Recipe, About and operations as one thing, that Dask does not look into."""

    def __init__(self, *parts):
        self.parts = parts


def sent(message):
    return message


def answered(partition, before, message):
    """(state, reply) of one message; `before` is what the one before has left, or None."""
    recipe, about, operations = message.parts
    return partition.answer(recipe, None if before is None else before[0], about, operations)


def reply_of(answer):
    return answer[1]


def summed(*replies):
    return added(replies)


def state_of(answer):
    return answer[0]


class Cluster:
    """A Communicator.

    Parameters
    ----------
    client : distributed.Client
    partitions : list of futures of Partition
    every : int
        Messages from one copy of the states to the next.
    wait_timeout : float
        Seconds that the cluster may be without any worker.

    Attributes
    ----------
    restarts : int
        How often messages were sent again.
    """

    def __init__(self, client, partitions, every=10, wait_timeout=300.0):
        self.client, self.partitions = client, partitions
        self.every, self.wait_timeout = every, wait_timeout
        self.fit, self.sent, self.restarts = 0, 0, 0
        self.name = f"marginlinear-{uuid.uuid4().hex}"
        self.copies, self.answers, self.since = None, None, []

    def forget(self):
        self.fit += 1
        self.copies, self.answers, self.since = None, None, []

    def run(self, recipe, about, operations):
        message = Message(recipe, about, operations)
        self.since.append(message)
        while True:
            try:
                sums = self._result(self._submit(message, self.answers))
                if len(self.since) >= self.every:
                    self._copy()
                return sums
            except FutureCancelledError:
                self._again()

    def _submit(self, message, before, wanted=True):
        """The answers to a message become those of now; the future of the sum of their replies."""
        self.sent += 1
        name, count = f"{self.name}-{self.fit}-{self.sent}", len(self.partitions)
        graph = {f"{name}-message": (sent, message)}
        answers = [f"{name}-answer-{p}" for p in range(count)]
        for p, key in enumerate(answers):
            graph[key] = (answered, self.partitions[p], None if before is None else before[p], f"{name}-message")
        wanted_keys, root = list(answers), None
        if wanted:
            replies = [f"{name}-reply-{p}" for p in range(count)]
            graph.update({reply: (reply_of, answer) for reply, answer in zip(replies, answers, strict=True)})

            def node(parts):
                if len(parts) == 1:
                    return parts[0]
                key = f"{name}-sum-{len(graph)}"
                graph[key] = (summed, *parts)
                return key

            root = tree(replies, node)
            wanted_keys.append(root)
        futures = self.client.get(graph, wanted_keys, sync=False)
        self.answers = futures[:count]
        return futures[count] if wanted else None

    def _result(self, future):
        """Its value; TimeoutError where the cluster has no worker for too long."""
        alone = None
        while True:
            try:
                return future.result(timeout=TURN)
            except (TimeoutError, asyncio.TimeoutError):
                if future.status not in ("pending", "finished"):
                    continue
                if self.client.scheduler_info(n_workers=0).get("n_workers", 1) if False else self.client.nthreads():
                    alone = None
                    continue
                alone = alone or time.monotonic()
                if time.monotonic() - alone > self.wait_timeout:
                    raise TimeoutError(f"the cluster has no worker since {self.wait_timeout:g} seconds") from None

    def _copy(self):
        """Copies of the states; the messages up to here are not needed any more."""
        states = self.client.get({f"{answer.key}-state": (state_of, answer) for answer in self.answers},
                                 [f"{answer.key}-state" for answer in self.answers], sync=False)
        copies = [self._result(state) for state in states]
        self.copies, self.since = copies, []
        self._place_copies()

    def _place_copies(self):
        """The copies go back to the workers, as answers that no message has led to."""
        holders = self.client.who_has(self.partitions)
        self.answers = []
        for partition, copy in zip(self.partitions, self.copies, strict=True):
            workers = list(holders.get(partition.key, ())) or None
            self.answers.append(self.client.scatter((copy, None), workers=workers, hash=False))

    def _again(self):
        """All messages since the last copies, but for the last one."""
        self.restarts += 1
        self.answers = None
        if self.copies is not None:
            self._place_copies()
        for message in self.since[:-1]:
            self._submit(message, self.answers, wanted=False)

    def close(self):
        """Nothing of this fit is wanted any more."""
        if self.answers is not None:
            self.client.cancel(self.answers)
        self.answers = self.copies = None
