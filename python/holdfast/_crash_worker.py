"""`python -m holdfast._crash_worker COMMANDS ANSWERS`: the process that a campaign kills."""

import sys

from .crash.worker import main

if __name__ == "__main__":
    main(sys.argv[1:])
