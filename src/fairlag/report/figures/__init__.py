"""Figures for papers, one module per kind. Nothing here keeps state between figures."""

from fairlag.report.figures.curve import curve_figure
from fairlag.report.figures.fleet import fleet_figure
from fairlag.report.figures.holdings import holdings_figure
from fairlag.report.figures.identity import FORMATS, SIZES, check_format, check_size
from fairlag.report.figures.incentives import incentives_figure
from fairlag.report.figures.influence import influence_figure
from fairlag.report.figures.rewards import rewards_figure
from fairlag.report.figures.siege import siege_figure
from fairlag.report.figures.staleness import staleness_figure
from fairlag.report.figures.timeline import timeline_figure

__all__ = [
    "FORMATS",
    "SIZES",
    "check_format",
    "check_size",
    "curve_figure",
    "fleet_figure",
    "holdings_figure",
    "incentives_figure",
    "influence_figure",
    "rewards_figure",
    "siege_figure",
    "staleness_figure",
    "timeline_figure",
]
