#!/usr/bin/env python3
"""Renames, hard-links and deletes parts of a tree of files, and knows what must be there afterwards.

    tree_changes.py plan MANIFEST PLAN AFTER   from `sha256sum` lines: what to do, and the lines then
    tree_changes.py apply PLAN ROOT            does it
    tree_changes.py links PLAN ROOT            checks that linked names are one file

One process for thousands of changes: the virtual machine that runs this forks slowly.
"""

import json
import os
import sys


def read_manifest(path):
    with open(path, encoding="utf-8") as lines:
        pairs = (line.rstrip("\n").split("  ", 1) for line in lines)
        return {name: checksum for checksum, name in pairs}


def plan(manifest_path, plan_path, after_path):
    files = read_manifest(manifest_path)
    trees = sorted({name.split("/", 1)[0] for name in files if "/" in name})
    steps = []

    def do(*step):
        steps.append(step)

    # Whole trees: one goes, one gets another name in another directory.
    gone, moved = trees[0], trees[1]
    do("delete_tree", gone)
    do("mkdir", "moved")
    do("rename", moved, "moved/tree")
    for name in list(files):
        tree, _, rest = name.partition("/")
        if tree == gone:
            del files[name]
        elif tree == moved:
            files["moved/tree/" + rest] = files.pop(name)

    # Single files of the rest, each by its place in the order.
    do("mkdir", "linked")
    do("mkdir", "renamed")
    rest = sorted(name for name in files if not name.startswith("moved/"))
    for index, name in enumerate(rest):
        match index % 10:
            case 0:
                do("delete", name)
                del files[name]
            case 1:
                link = f"linked/{index}"
                do("link", name, link)
                files[link] = files[name]
            case 2:
                new = f"renamed/{index}"
                do("rename", name, new)
                files[new] = files.pop(name)
            case 3 if index + 1 < len(rest):
                # Over a file that exists.
                do("rename", name, rest[index + 1])
                files[rest[index + 1]] = files.pop(name)

    with open(plan_path, "w", encoding="utf-8") as out:
        json.dump(steps, out)
    with open(after_path, "w", encoding="utf-8") as out:
        out.writelines(f"{files[name]}  {name}\n" for name in sorted(files))


def delete_tree(root):
    # Entry by entry as `rm -r` does, and failing at the first that cannot be removed.
    for folder, folders, names in os.walk(root, topdown=False):
        for name in names:
            os.unlink(os.path.join(folder, name))
        for name in folders:
            os.rmdir(os.path.join(folder, name))
    os.rmdir(root)


def apply(plan_path, root):
    steps = load(plan_path)
    os.chdir(root)
    for step in steps:
        match step:
            case ["delete", name]:
                os.unlink(name)
            case ["delete_tree", name]:
                delete_tree(name)
            case ["mkdir", name]:
                os.mkdir(name)
            case ["link", name, new]:
                os.link(name, new)
            case ["rename", name, new]:
                os.rename(name, new)
            case _:
                sys.exit(f"unknown step {step}")
    print(f"{len(steps)} changes")


def links(plan_path, root):
    pairs = [step[1:] for step in load(plan_path) if step[0] == "link"]
    os.chdir(root)
    for name, new in pairs:
        first, second = os.stat(name), os.stat(new)
        if first.st_ino != second.st_ino or first.st_nlink != 2:
            sys.exit(f"{name} and {new} are not two names of one file: {first} {second}")
    if not pairs:
        sys.exit("the plan has no links")


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


if __name__ == "__main__":
    commands = {"plan": (plan, 3), "apply": (apply, 2), "links": (links, 2)}
    function, arity = commands.get(sys.argv[1] if len(sys.argv) > 1 else "", (None, 0))
    if function is None or len(sys.argv) != arity + 2:
        sys.exit(__doc__)
    function(*sys.argv[2:])
