"""Locks files of a mounted export, as locks.sh asks.

    lock_client.py MOUNT CONTROL NAME

A request is a file CONTROL/NAME.request.N, N = 1, 2, ...; its answer is CONTROL/NAME.reply.N. A request is one
line, WORKER COMMAND ..., and done by a process of that name, for locks belong to processes:

    fcntl FILE sh|ex wait|try START LENGTH     answers "held" or "refused"
    flock FILE sh|ex wait|try                  the same
    unlock FILE START LENGTH                   fcntl
    release FILE                               flock
    shell COMMAND                              what the shell command says
"""

import errno
import fcntl
import multiprocessing
import os
import subprocess
import sys
import time

MOUNT, CONTROL, NAME = sys.argv[1:4]
LOCKS = {"sh": fcntl.LOCK_SH, "ex": fcntl.LOCK_EX}


def do(files, command, words):
    if command == "shell":
        done = subprocess.run(" ".join(words), shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return "%s %s" % (done.returncode, done.stdout.decode().replace("\n", " "))
    name = words[0]
    if name not in files:
        files[name] = open(os.path.join(MOUNT, name), "r+b", buffering=0)
    file = files[name]
    try:
        if command == "unlock":
            fcntl.lockf(file, fcntl.LOCK_UN, int(words[2]), int(words[1]))
            return "free"
        if command == "release":
            fcntl.flock(file, fcntl.LOCK_UN)
            return "free"
        how = LOCKS[words[1]] | (fcntl.LOCK_NB if words[2] == "try" else 0)
        if command == "flock":
            fcntl.flock(file, how)
        else:
            fcntl.lockf(file, how, int(words[4]), int(words[3]))
        return "held"
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return "refused"
        return "failed %s" % error


def work(queue):
    files = {}
    while True:
        number, command, words = queue.get()
        began = time.monotonic()
        answer = do(files, command, words)
        path = os.path.join(CONTROL, "%s.reply.%d" % (NAME, number))
        with open(path + ".part", "w") as file:
            file.write("%s %.1f\n" % (answer, time.monotonic() - began))
        os.rename(path + ".part", path)


def main():
    workers = {}
    number = 1
    with open(os.path.join(CONTROL, NAME + ".ready"), "w"):
        pass
    while not os.path.exists(os.path.join(CONTROL, NAME + ".end")):
        path = os.path.join(CONTROL, "%s.request.%d" % (NAME, number))
        if not os.path.exists(path):
            time.sleep(0.1)
            continue
        with open(path) as file:
            worker, command, *words = file.read().split()
        if worker not in workers:
            queue = multiprocessing.SimpleQueue()
            multiprocessing.Process(target=work, args=(queue,), daemon=True).start()
            workers[worker] = queue
        workers[worker].put((number, command, words))
        number += 1


main()
