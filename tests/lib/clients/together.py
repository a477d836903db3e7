"""What several machines do to one directory tree at once. Each runs the same part with a number of its own.

    together.py begin FOLDER
    together.py rename FOLDER ME MEETING SECONDS    moves files and directories about, at random
    together.py claim FOLDER ME MEETING             takes jobs from a queue, by rename, by link and by exclusive create
    together.py remove FOLDER                       removes a directory that another lists
    together.py list FOLDER                         lists it until it is gone
    together.py check-rename FOLDER
    together.py check-claim FOLDER

MEETING is a folder where two machines wait for each other. Proven by the checks: a name that many rename is lost by
nobody and doubled by nobody; a job is taken by one alone, and both have taken some; and by list: a
directory that shrinks is listed without a name twice, without one that never was, and with no error but that it is gone.
"""

import errno
import os
import random
import sys
import time

import barrier

FILES = 60
DIRECTORIES = 6
JOBS = 60
# Both begin with so many jobs at the same moment.
BATCH = 6
LISTED = 1500
WAYS = ("rename", "link", "create")


def begin(folder):
    for directory in range(DIRECTORIES):
        os.makedirs(f"{folder}/tree/d{directory}")
    for file in range(FILES):
        with open(f"{folder}/tree/d{file % DIRECTORIES}/f{file}", "w") as out:
            out.write(f"content {file}\n")
    for way in WAYS:
        os.makedirs(f"{folder}/{way}/taken")
        os.makedirs(f"{folder}/{way}/jobs")
        for job in range(JOBS):
            with open(f"{folder}/{way}/jobs/{job}", "w") as out:
                out.write(f"job {job}\n")
    os.mkdir(f"{folder}/listed")
    for name in range(LISTED):
        os.close(os.open(f"{folder}/listed/name-{name}", os.O_CREAT | os.O_WRONLY, 0o600))


# What the other has done first: names are gone, directories have moved. Nothing else may be said.
EXPECTED = (errno.ENOENT, errno.ESTALE)


def rename(folder, me, meeting, seconds):
    choose = random.Random(int(me))
    done = lost = 0
    barrier.wait(meeting, "rename", me, 2)
    end = time.monotonic() + float(seconds)
    os.chdir(f"{folder}/tree")
    while time.monotonic() < end:
        try:
            directories = sorted(os.listdir("."))
            if choose.random() < 0.1:
                # Never onto another: each name is made once.
                os.rename(choose.choice(directories), f"m{me}-{done}")
                done += 1
                continue
            here, there = choose.choice(directories), choose.choice(directories)
            names = sorted(os.listdir(here))
            if names:
                os.rename(f"{here}/{choose.choice(names)}", f"{there}/f{me}-{done}")
                done += 1
        except OSError as error:
            if error.errno not in EXPECTED:
                raise
            lost += 1
    print(f"{done} renames, {lost} times the other was first")
    if done < 20:
        sys.exit("too few renames to prove anything")


def take(folder, way, job, me):
    """Whether this machine got the job; raises what cannot be."""
    try:
        if way == "rename":
            os.rename(f"{folder}/{way}/jobs/{job}", f"{folder}/{way}/taken/{job}.{me}")
        elif way == "link":
            os.link(f"{folder}/{way}/jobs/{job}", f"{folder}/{way}/taken/{job}.lock")
        else:
            os.close(os.open(f"{folder}/{way}/taken/{job}.lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        if error.errno not in (errno.EEXIST,) + EXPECTED:
            raise
        return False
    return True


def claim(folder, me, meeting):
    choose = random.Random(int(me))
    for way in WAYS:
        taken = []
        for first in range(0, JOBS, BATCH):
            # In an order of its own, or who is behind once would be so for good.
            batch = list(range(first, first + BATCH))
            choose.shuffle(batch)
            barrier.wait(meeting, f"{way}.{first}", me, 2)
            taken += [job for job in batch if take(folder, way, job, me)]
        with open(f"{folder}/{way}/by-{me}", "w") as out:
            out.write(" ".join(map(str, taken)))
        print(f"{way}: {len(taken)} of {JOBS}")


def remove(folder):
    names = list(range(LISTED))
    random.Random(1).shuffle(names)
    for name in names:
        os.unlink(f"{folder}/listed/name-{name}")
    os.rmdir(f"{folder}/listed")


def list_until_gone(folder):
    listings, fewest = 0, LISTED
    allowed = {f"name-{name}" for name in range(LISTED)}
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            names = os.listdir(f"{folder}/listed")
        except OSError as error:
            if error.errno not in EXPECTED:
                raise
            print(f"{listings} listings, {fewest} names at least")
            # One with all names and one that had shrunk: it was listed while it went.
            if listings < 2 or fewest == LISTED:
                sys.exit("listed too seldom to prove anything")
            return
        listings += 1
        if len(names) != len(set(names)):
            sys.exit("a name is listed twice: %s" % sorted(n for n in set(names) if names.count(n) > 1))
        if not allowed.issuperset(names):
            sys.exit("names that never were: %s" % sorted(set(names) - allowed))
        if len(names) > fewest:
            sys.exit(f"{len(names)} names after {fewest}")
        fewest = len(names)
    sys.exit("the directory is never gone")


def check_rename(folder):
    contents = []
    for path, _, names in os.walk(f"{folder}/tree"):
        for name in names:
            with open(os.path.join(path, name)) as file:
                contents.append(file.read())
    wanted = sorted(f"content {file}\n" for file in range(FILES))
    if sorted(contents) != wanted:
        missing = sorted(set(wanted) - set(contents))
        double = sorted({text for text in contents if contents.count(text) > 1})
        sys.exit(f"rename: missing {missing}, double {double}, of {len(contents)}")
    if len(os.listdir(f"{folder}/tree")) != DIRECTORIES:
        sys.exit("directories: %s" % os.listdir(f"{folder}/tree"))


def check_claim(folder):
    for way in WAYS:
        taken, shares = [], []
        for me in range(2):
            with open(f"{folder}/{way}/by-{me}") as file:
                mine = file.read().split()
            taken += mine
            shares.append(len(mine))
        if sorted(taken) != sorted(str(job) for job in range(JOBS)):
            sys.exit(f"{way}: {len(taken)} taken of {JOBS}, {len(set(taken))} of them different")
        left = len(os.listdir(f"{folder}/{way}/taken"))
        if left != JOBS:
            sys.exit(f"{way}: {left} names for {JOBS} jobs")
        if 0 in shares:
            sys.exit(f"{way}: shares {shares}: one has done all, so nothing is proven")
        print(f"{way}: shares {shares}")


{"begin": begin, "rename": rename, "claim": claim, "remove": remove, "list": list_until_gone, "check-rename": check_rename,
 "check-claim": check_claim}[sys.argv[1]](*sys.argv[2:])
