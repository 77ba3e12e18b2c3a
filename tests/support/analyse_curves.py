"""What other tests share with test_analyse_curves.py."""

import numpy as np
import pandas as pd


def curve(times: list[float], accuracies: list[float]) -> pd.DataFrame:
    """An evaluation every ten aggregations."""
    versions = 10 * np.arange(len(times))
    return pd.DataFrame({"time": times, "version": versions, "accuracy": accuracies, "standard_error": 0.01})
