"""Secure aggregation of a deployment: the server's connection to the mask keeper, and whether their terms agree."""

from collections.abc import Callable
from pathlib import Path

from fairlag.core.secure import check_hidden
from fairlag.core.strategy import Strategy
from fairlag.core.vector import Layout
from fairlag.errors import InputError
from fairlag.lab.experiment import Experiment
from fairlag.privacy.secure.link import KeeperLink
from fairlag.privacy.secure.sums import KeeperSum
from fairlag.runtime.flower.options import KeeperAddress


def keeper_sum(
    experiment: Experiment,
    strategy: Strategy,
    layout: Layout,
    secure: KeeperAddress | None,
    warn: Callable[[str], None],
) -> KeeperSum | None:
    """What adds up the masked updates of a deployment; None without secure aggregation."""
    privacy = experiment.privacy
    if privacy is None or not privacy.secure:
        if secure is not None:
            raise InputError(
                "`secure` names a keeper, but the experiment does not ask for secure aggregation: give it [privacy] "
                "with secure = true and a bound"
            )
        return None
    if not privacy.masks:
        raise InputError("masks = false in [privacy] is for simulations: a real server would see every update")
    if secure is None:
        raise InputError(
            "secure = true in [privacy] needs a keeper: give deploy secure=KeeperAddress(listen, key, keeper), and "
            "start one with `fairlag keeper`"
        )
    check_hidden(strategy, layout)
    link = KeeperLink(secure.listen, Path(secure.key), Path(secure.keeper), layout.size)
    terms = link.terms()
    if terms.size != layout.size:
        raise InputError(
            f"the keeper at {secure.listen} is for a model of {terms.size:,} parameters, but this one has "
            f"{layout.size:,}: start the keeper with --size {layout.size}"
        )
    if privacy.bound > terms.bound:
        raise InputError(
            f"bound is {privacy.bound:g} in [privacy], but the keeper at {secure.listen} allows a client at most "
            f"{terms.bound:g} of the weight: give a bound of at most that"
        )
    return KeeperSum(terms.run, layout.size, link.ask, warn=warn)
