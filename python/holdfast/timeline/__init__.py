"""What a history did, told from the trace that it wrote: `holdfast history timeline`."""

from ._draw import html, svg
from ._stalls import Stall, longest_stalls
from ._trace import Event, Trace, load

__all__ = ["Event", "Stall", "Trace", "html", "load", "longest_stalls", "svg"]
