"""Lists of integers as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np


def integers(values: Any, dtype: Any) -> Any:
    """Returns integers, of which there may be lists of lists, as an array; none are converted.

    Raises ValueError, OverflowError.
    """
    # NumPy itself makes floats of a list that has numbers below and from 2**63 on.
    made = np.array(values, dtype=object)
    for each in made.flat:
        if isinstance(each, (bool, np.bool_)) or not isinstance(each, (int, np.integer)):
            raise ValueError(f"{values!r} are no integers")
    return made.astype(dtype)
