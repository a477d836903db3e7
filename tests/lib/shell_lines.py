#!/usr/bin/env python3
"""Prints the commands of a Markdown text, one a line, each behind the heading it is under and a tab.

    shell_lines.py TEXT

Commands are the lines of `sh` blocks, without comments and blank lines.
"""
import re
import sys

heading, inside = "", False
for line in open(sys.argv[1], encoding="utf-8"):
    line = line.rstrip("\n")
    if line.startswith("```"):
        inside = not inside and line == "```sh"
    elif inside:
        command = re.sub(r"\s+#.*$", "", line)
        if command and not command.startswith("#"):
            print(f"{heading}\t{command}")
    elif line.startswith("#"):
        heading = line.lstrip("# ")
