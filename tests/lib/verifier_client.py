#!/usr/bin/env python3
"""The client's half of verifier.sh: writes through the mount, has the gateway killed or its power cut,
and watches what the kernel's NFS client sends after it.

    verifier_client.py MOUNT_POINT CONTROL BYTES

The mount has the option write=eager: what is written is sent at once, UNSTABLE where it is more than one
WRITE, and not committed before fsync. (Other writeback of Linux commits by itself when it has ended.)
Asks the supervisor (supervisor.sh) by files in CONTROL. Ends with `N passed, N failed`.
"""

import ctypes
import hashlib
import os
import re
import sys
import time

MOUNT, CONTROL, BYTES = sys.argv[1], sys.argv[2], int(sys.argv[3])
# Waits for the replies to WRITEs, and neither sends one nor asks for a COMMIT.
SYNC_FILE_RANGE_WAIT_AFTER = 4

libc = ctypes.CDLL(None, use_errno=True)
libc.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
passed = failed = requests = 0


def check(name, good, detail=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    print("ok     " if good else "FAILED ", name, f"({detail})" if detail else "", flush=True)


def ask(word):
    """Has the supervisor do something and gives its answer."""
    global requests
    requests += 1
    new = os.path.join(CONTROL, "new-request")
    with open(new, "w") as request:
        request.write(word + "\n")
    # Its content must be there when the name is.
    os.rename(new, os.path.join(CONTROL, f"request.{requests}"))
    reply = os.path.join(CONTROL, f"reply.{requests}")
    for _ in range(1200):
        if os.path.exists(reply):
            with open(reply) as answer:
                said = answer.read().strip()
            check(word, said.startswith("ok"), said)
            return said
        time.sleep(0.1)
    check(word, False, "no answer")
    return ""


def calls():
    """WRITEs and COMMITs that this mount has made."""
    ours, counts = False, {}
    with open("/proc/self/mountstats") as stats:
        for line in stats:
            if line.startswith("device "):
                ours = f" mounted on {MOUNT} " in line
            found = re.match(r"\s*(WRITE|COMMIT): (\d+)", line)
            if ours and found:
                counts[found[1]] = int(found[2])
    return counts["WRITE"], counts["COMMIT"]


def forget():
    """What is read next comes from the server."""
    with open("/proc/sys/vm/drop_caches", "w") as caches:
        caches.write("3\n")


def checksum(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def crash(name, how):
    """Writes unstably, lets the gateway crash, calls fsync. Gives the WRITEs before and after the crash,
    and what the supervisor said."""
    path = os.path.join(MOUNT, name)
    data = os.urandom(BYTES)
    file = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    # A name that is on stable storage; otherwise the power cut would take the file itself.
    os.fsync(file)
    began, commits_began = calls()
    os.write(file, data)
    if libc.sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WAIT_AFTER) != 0:
        check(f"{name}: sync_file_range", False, os.strerror(ctypes.get_errno()))
    written, commits = calls()
    check(f"{name}: WRITEs are answered", written - began > 0, f"{written - began} calls")
    check(f"{name}: and not committed", commits == commits_began, f"{commits - commits_began} COMMITs")
    said = ask(how)
    before, commits_before = calls()
    check(f"{name}: the crash alone makes the client send nothing", before == written, f"{before - written} WRITEs")
    os.fsync(file)
    after, commits_after = calls()
    check(f"{name}: fsync sends COMMIT", commits_after > commits_before, f"{commits_after - commits_before} calls")
    os.close(file)
    forget()
    right = hashlib.sha256(data).hexdigest()
    check(f"{name}: the file is right", checksum(path) == right)
    return written - began, after - before, said, path, right


# The flusher would commit by itself.
with open("/proc/sys/vm/dirty_writeback_centisecs", "w") as setting:
    setting.write("0\n")

# On a mount that has written nothing yet the kernel thinks that the server is slow, and its flusher, which
# commits, takes part early.
with open(os.path.join(MOUNT, "warm-up"), "wb") as file:
    file.write(os.urandom(2 * BYTES))
    os.fsync(file.fileno())

sent, again, _, kept, kept_sum = crash("kill", "kill")
check("kill: the verifier is the same: fsync sends nothing again", again == 0, f"{again} of {sent} WRITEs")

sent, again, said, lost, lost_sum = crash("power-cut", "cut")
gone = int((re.search(r"(\d+) bytes", said) or [0, 0])[1])
check("power-cut: the log has lost what was not durable", gone >= BYTES, f"{gone} of {BYTES} bytes of data")
check("power-cut: the verifier is new: fsync sends everything again", again >= sent, f"{again} of {sent} WRITEs")

# What fsync has acknowledged since is there after both.
for how in ["cut", "kill"]:
    ask(how)
    forget()
    check(f"both files are right after another {how}", (checksum(kept), checksum(lost)) == (kept_sum, lost_sum))

print(f"{passed} passed, {failed} failed", flush=True)
sys.exit(failed != 0 or passed == 0)
