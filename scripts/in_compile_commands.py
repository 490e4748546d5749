"""Passes on those file names of stdin that the given compile_commands.json compiles."""

import json
import sys
from pathlib import Path

with Path(sys.argv[1]).open() as stream:
    compiled = {Path(entry["directory"], entry["file"]).resolve() for entry in json.load(stream)}
for line in sys.stdin:
    if Path(line.strip()).resolve() in compiled:
        print(line.strip())
