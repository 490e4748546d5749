"""Score (HPDC '23), section 5: its experiments, and the tables and figures of their results.

experiments.py says what is run, results.py reads what was measured, tables.py and figures.py set it
beside the paper's. adios.py and dcp.py are the rivals that are driven from Python.
"""

from . import figures, tables
from .experiments import (
    EXPERIMENTS,
    SIZES,
    Experiment,
    OnLine,
    OnNote,
    Settings,
    Size,
    cells_of,
    run,
)
from .results import TITLES, Results

__all__ = [
    "EXPERIMENTS",
    "SIZES",
    "TITLES",
    "Experiment",
    "OnLine",
    "OnNote",
    "Results",
    "Settings",
    "Size",
    "cells_of",
    "figures",
    "run",
    "tables",
]
