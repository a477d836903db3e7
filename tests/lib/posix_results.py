#!/usr/bin/env python3
"""Judges what pjdfstest said.

    posix_results.py LIST REMOUNT.out ROOT.out USER.out

Every case must pass: as root, and, where it does not need root, as a user; those that remount the file system are
in an output of their own. LIST names the cases that NFSv3 cannot pass: they must not pass. Fails, and says
which, if anything else failed, was skipped, is missing, or if LIST is not right any more.
"""

import re
import sys

CASES = 398
LINE = re.compile(r"^(\S+::\S+)\s+(ok|skipped|FAILED)$")
# Why a case is not for a user.
FOR_ROOT = re.compile("requires root privileges|CAP_SYS_ADMIN|allow_remount")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def read(path):
    """Case -> (outcome, what was said about it), and whether the run came to its end."""
    cases, name, whole = {}, None, False
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            line = COLOUR.sub("", line.rstrip("\n"))
            if found := LINE.match(line):
                name = found[1]
                cases[name] = (found[2], [])
            elif line.startswith("\t") and name:
                cases[name][1].append(line.strip())
            elif line.startswith("Summary:"):
                whole = True
    return cases, whole


def main(listed, remount, root, user):
    with open(listed, encoding="utf-8") as file:
        listed = {line.strip() for line in file if line.strip() and line[0] != "#"}
    runs = {}
    faults = []
    for name, path in (("remount", remount), ("root", root), ("user", user)):
        runs[name], whole = read(path)
        if not whole:
            faults.append(f"{name}: the run did not come to its end, see its output:")
            with open(path, encoding="utf-8", errors="replace") as file:
                faults += file.read().splitlines()[-5:]

    as_root = runs["root"] | runs["remount"]
    if len(as_root) != CASES:
        faults.append(f"root: {len(as_root)} cases instead of {CASES}")
    for case, (outcome, why) in sorted(as_root.items()):
        if case in listed and outcome == "ok":
            faults.append(f"root: {case} passes and is on the list of those that cannot")
        elif case not in listed and outcome != "ok":
            faults.append(f"root: {case} {outcome}: {'; '.join(why)}")
    for case in sorted(listed - as_root.keys()):
        faults.append(f"{case} is on the list and unknown to the suite")

    ran = {case: (outcome, why) for case, (outcome, why) in runs["user"].items()
           if not (outcome == "skipped" and any(FOR_ROOT.search(reason) for reason in why))}
    for case, (outcome, why) in sorted(ran.items()):
        if case not in listed and outcome != "ok":
            faults.append(f"user: {case} {outcome}: {'; '.join(why)}")

    def passed(cases):
        return sum(outcome == "ok" for outcome, _ in cases.values())
    if passed(ran) == 0:
        faults.append("user: no case passed")
    print(f"as root {passed(as_root)} of {len(as_root)} cases passed, {len(listed)} are not for NFSv3; "
          f"as a user {passed(ran)} of the {len(ran)} that need no root")
    for fault in faults:
        print(f"        {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
