#!/usr/bin/env python3
"""Two clients take turns: one changes files and closes them, the other opens them and must see all of it.

    close_to_open.py MOUNT CHANNEL ME SEED STEPS data|names

ME is 0 or 1; both run at the same time with the same SEED, and so know what the other does. CHANNEL is a folder
that both see and that is not on the mount: a file there says that somebody's step is done.

`data` is what close-to-open gives with the ordinary mount options: a file that is opened after the other client
has closed it has the other's bytes and size, whatever was cached (an open asks for the attributes, RFC 1813 section
4.11 leaves the rest to the client). Names are not part of that: a client may believe its attributes of
a directory for some seconds. `names` makes, renames, replaces, links and removes too, and is for mounts that do
not (actimeo=0, lookupcache=none).
"""

import mmap
import os
import random
import sys
import time

FILES = 6
LARGEST = 300_000
PATIENCE_S = 120


class Model:
    """What is to be there: names to contents. Hard links share a list of one element."""

    def __init__(self):
        self.files = {}

    def names(self):
        return sorted(self.files)


def content(rng, size):
    return rng.randbytes(size)


def write_at(data, offset, piece):
    """The content of a file after a write: what lies between is zeros."""
    if offset > len(data):
        data = data + bytes(offset - len(data))
    return data[:offset] + piece + data[offset + len(piece):]


def pwrite_all(fd, piece, offset):
    while piece:
        written = os.pwrite(fd, piece, offset)
        piece, offset = piece[written:], offset + written


def step_data(rng, model, folder, act):
    """Changes the bytes or the size of one file."""
    name = rng.choice([f"f{i}" for i in range(FILES)])
    box = model.files.setdefault(name, [b""])
    kind = rng.choice(["write", "append", "truncate", "whole", "map"])
    old = box[0]
    path = os.path.join(folder, name)
    if kind == "map" and not old:
        kind = "append"
    if kind == "write":
        offset = rng.randrange(LARGEST)
        piece = content(rng, rng.randrange(1, 60_000))
        box[0] = write_at(old, offset, piece)
    elif kind == "append":
        offset, piece = len(old), content(rng, rng.randrange(1, 30_000))
        box[0] = old + piece
        if len(box[0]) > LARGEST:
            kind, box[0] = "truncate", old[:1000]
    elif kind == "truncate":
        size = rng.randrange(LARGEST)
        box[0] = old[:size] + bytes(max(0, size - len(old)))
    elif kind == "whole":
        box[0] = content(rng, rng.randrange(60_000))
    else:
        offset = rng.randrange(len(old))
        piece = content(rng, min(rng.randrange(1, 20_000), len(old) - offset))
        box[0] = write_at(old, offset, piece)
    if not act:
        return f"{kind} {name}"
    flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if kind == "whole" else 0)
    fd = os.open(path, flags, 0o644)
    try:
        if kind in ("write", "append"):
            pwrite_all(fd, piece, offset)
        elif kind == "truncate":
            os.ftruncate(fd, len(box[0]))
        elif kind == "whole":
            pwrite_all(fd, box[0], 0)
        else:
            with mmap.mmap(fd, len(old)) as mapped:
                mapped[offset:offset + len(piece)] = piece
                mapped.flush()
    finally:
        os.close(fd)
    return f"{kind} {name}"


def step_names(rng, model, folder, act):
    """Changes names: of files, of what they replace, and of links."""
    if not model.files or rng.random() < 0.3:
        return step_data(rng, model, folder, act)
    kind = rng.choice(["rename", "replace", "remove", "link"])
    name = rng.choice(model.names())
    other = rng.choice([f"f{i}" for i in range(FILES)])
    path, to = os.path.join(folder, name), os.path.join(folder, other)
    if kind == "remove":
        del model.files[name]
        if act:
            os.unlink(path)
    elif kind == "replace":
        # As editors do: a new file beside it takes its place.
        data = content(rng, rng.randrange(20_000))
        model.files[other] = [data]
        if act:
            with open(to + ".new", "wb") as file:
                file.write(data)
            os.rename(to + ".new", to)
    elif kind == "link" and other not in model.files:
        model.files[other] = model.files[name]
        if act:
            os.link(path, to)
    elif model.files.get(other) is not model.files[name]:
        # Of one file's name to another of its names, nothing would happen.
        model.files[other] = model.files.pop(name)
        if act:
            os.rename(path, to)
    return f"{kind} {name} {other}"


def check(model, folder, what, with_names):
    """Everything that the model has is there; with names also nothing else."""
    for name in [f"f{i}" for i in range(FILES)]:
        path = os.path.join(folder, name)
        if name not in model.files:
            if not with_names:
                continue
            try:
                open(path, "rb").close()
            except FileNotFoundError:
                continue
            raise SystemExit(f"{what}: {name} can be opened and should be gone")
        want = model.files[name][0]
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                data = file.read()
                links = os.fstat(file.fileno()).st_nlink
        except FileNotFoundError:
            raise SystemExit(f"{what}: {name} cannot be opened") from None
        if size != len(want) or data != want:
            at = next((i for i, (a, b) in enumerate(zip(data, want)) if a != b), min(len(data), len(want)))
            raise SystemExit(f"{what}: {name} has {size} bytes of {len(want)}, differs from byte {at} on")
        same = sum(box is model.files[name] for box in model.files.values())
        if with_names and links != same:
            raise SystemExit(f"{what}: {name} has {links} links of {same}")
    if with_names and sorted(os.listdir(folder)) != model.names():
        raise SystemExit(f"{what}: listed are {sorted(os.listdir(folder))}, not {model.names()}")


class Channel:
    """Files that say what is done, each made whole before it gets its name."""

    def __init__(self, folder, me):
        self.folder, self.me = folder, me

    def tell(self, step):
        path = os.path.join(self.folder, f"{self.me}.{step}")
        with open(path + ".new", "w", encoding="ascii"):
            pass
        os.rename(path + ".new", path)

    def wait(self, step):
        path = os.path.join(self.folder, f"{1 - self.me}.{step}")
        failed = os.path.join(self.folder, f"{1 - self.me}.failed")
        limit = time.monotonic() + PATIENCE_S
        while not os.path.exists(path):
            if os.path.exists(failed):
                raise SystemExit("the other client has failed")
            if time.monotonic() > limit:
                raise SystemExit(f"the other client has not done step {step} in {PATIENCE_S} s")
            time.sleep(0.005)


def main(mount, channel, me, seed, steps, kind):
    folder = os.path.join(mount, f"{kind}-{seed}")
    channel = Channel(channel, me)
    rng, model = random.Random(seed), Model()
    with_names = kind == "names"
    change = step_names if with_names else step_data
    try:
        if me == 0:
            os.mkdir(folder)
            # Without names, all files are there from the start: a name that was not there may be believed
            # to be missing.
            for i in range(FILES if not with_names else 0):
                with open(os.path.join(folder, f"f{i}"), "wb"):
                    pass
        if not with_names:
            model.files = {f"f{i}": [b""] for i in range(FILES)}
        channel.tell("ready")
        channel.wait("ready")
        for step in range(steps):
            actor = rng.randrange(2)
            what = f"step {step}, seed {seed}: {change(rng, model, folder, actor == me)}"
            if actor == me:
                channel.tell(f"{step}.done")
                channel.wait(f"{step}.seen")
            else:
                channel.wait(f"{step}.done")
                check(model, folder, what, with_names)
                channel.tell(f"{step}.seen")
        check(model, folder, "the end", with_names)
    except BaseException:
        channel.tell("failed")
        raise
    print(f"{steps} steps of seed {seed} seen by client {me}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), sys.argv[6])
