"""The crash-state checker: runs its executable, and draws the failing states that it finds."""

from .diagram import draw, html, svg
from .tool import Answer, executable, litmus_folder, replay_command, run

__all__ = [
    "Answer",
    "draw",
    "executable",
    "html",
    "litmus_folder",
    "replay_command",
    "run",
    "svg",
]
