"""What an evaluation asks for: some test examples, or clients' own; its parts, which any process computes alike."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fairlag.core.vector import Vector
from fairlag.learn.learner import Learner, chunks
from fairlag.learn.task import ScoreSums, total

_TOGETHER = 10
"""How many clients are tested by one job."""


class ClientTests(NamedTuple):
    """Asks for the scores of a version on the own test examples of each of these clients."""

    clients: tuple[int, ...]
    version: int
    time: float
    steps: int = 0
    """How many local steps each client makes before; 0: the model is tested as it is."""


class ClientScore(NamedTuple):
    """The scores of a version on a client's own test examples."""

    client: int
    examples: int
    values: dict[str, float]
    """The metrics and the mean loss, by name."""


Asked = int | ClientTests
"""An evaluation: on the test examples up to a number, or on those of clients."""
Part = tuple[int, int] | ClientTests
"""A part of one: the test examples from one number to another, or those of some of the clients."""
Found = ScoreSums | tuple[ClientScore, ...]


def parts(asked: Asked) -> Sequence[Part]:
    """The parts of an evaluation.

    >>> parts(300)
    [(0, 250), (250, 300)]
    >>> [each.clients for each in parts(ClientTests((*range(12),), version=3, time=0.0))]
    [(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), (10, 11)]
    """
    if not isinstance(asked, ClientTests):
        return chunks(asked)
    clients = asked.clients
    return [asked._replace(clients=clients[place : place + _TOGETHER]) for place in range(0, len(clients), _TOGETHER)]


def scored(learner: Learner, parameters: Vector, part: Part) -> Found:
    """What is found for one part."""
    if isinstance(part, ClientTests):
        return tuple(_clients_scores(learner, parameters, part))
    return learner.evaluate(parameters, *part)


def joined(found: Sequence[Found]) -> Found:
    """What is found for an evaluation, from what is found for its parts, in their order."""
    sums = [each for each in found if isinstance(each, ScoreSums)]
    return total(sums) if sums else tuple(score for each in found for score in each if isinstance(score, ClientScore))


def _clients_scores(learner: Learner, parameters: Vector, asked: ClientTests) -> Iterator[ClientScore]:
    for client in asked.clients:
        now = parameters
        if asked.steps:
            now = learner.personalised(parameters, client, asked.version, asked.time, asked.steps)
        yield ClientScore(client, *learner.evaluate_client(now, client))
