"""GPM (ASPLOS '22), section 6: its experiments, and the tables and figures of their results.

experiments.py says what is run, results.py reads what was measured, tables.py and figures.py set it
beside the paper's.
"""

from . import figures, tables
from .experiments import (
    ALL,
    EXPERIMENTS,
    TRIED_THREADS,
    Experiment,
    Settings,
    measure,
    measure_restore,
    run,
)
from .results import VARIANTS, Results

__all__ = [
    "ALL",
    "EXPERIMENTS",
    "TRIED_THREADS",
    "VARIANTS",
    "Experiment",
    "Results",
    "Settings",
    "figures",
    "measure",
    "measure_restore",
    "run",
    "tables",
]
