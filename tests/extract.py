#!/usr/bin/env python3
"""Write the first C block of a Markdown file.   extract.py README.md OUTPUT.c"""
import pathlib
import re
import sys

source, output = map(pathlib.Path, sys.argv[1:])
block = re.search(r"^```c\n(.*?)^```$", source.read_text("utf-8"), re.M | re.S)
if not block:
    sys.exit(f"{source}: no C block")
output.write_text(block.group(1))
