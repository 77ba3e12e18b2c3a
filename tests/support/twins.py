"""Plain twins of rules, written from their definitions."""


def outlier(losses: list[float], place: int, reach: float, least: int) -> bool:
    """The outliers of DBSCAN, by definition: neither a core point nor within reach of one."""

    def near(one: float) -> list[float]:
        return [other for other in losses if abs(other - one) <= reach]

    return not any(len(near(other)) >= least for other in near(losses[place]))
