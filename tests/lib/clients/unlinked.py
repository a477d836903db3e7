"""A file that is removed while it is open, as NFS clients do it.

    unlinked.py FOLDER

Proven: a removed or replaced file that a program has open is renamed to .nfs... ("silly rename") and can be read,
written and grown until it is closed; then that name goes away by itself; its directory cannot be removed before, and can
be afterwards; a file that replaces it has its own bytes.
"""

import errno
import os
import sys
import time

FOLDER = sys.argv[1]
FAILED = []


def check(what, holds, *details):
    print("%-7s %s" % ("ok" if holds else "FAILED", what), *(() if holds else details))
    if not holds:
        FAILED.append(what)


def hidden():
    return [name for name in os.listdir(".") if name.startswith(".nfs")]


def forget():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


def refusal(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return None


def gone():
    """Whether no hidden name is left: the client removes it when the last descriptor is closed, not before close returns."""
    for _ in range(50):
        if not hidden():
            return True
        time.sleep(0.1)
    return False


os.makedirs(FOLDER + "/room")
os.chdir(FOLDER + "/room")

for how in "unlink", "replace":
    with open("file", "w+b", buffering=0) as file:
        file.write(b"before" * 10000)
        os.fsync(file.fileno())
        inode = os.fstat(file.fileno()).st_ino
        if how == "unlink":
            os.unlink("file")
        else:
            with open("other", "wb") as other:
                other.write(b"successor")
            os.rename("other", "file")
        names = hidden()
        check(how + ": one hidden name", len(names) == 1, names)
        check(how + ": it is the file", names and os.stat(names[0]).st_ino == inode)
        check(how + ": the name is gone, or the successor's",
              os.path.exists("file") == (how == "replace"))
        forget()
        file.seek(0)
        check(how + ": read after it, with cold caches", file.read() == b"before" * 10000)
        file.write(b"after" * 300000)
        os.fsync(file.fileno())
        file.truncate(1000000)
        forget()
        file.seek(0)
        check(how + ": written, grown and cut after it",
              file.read() == (b"before" * 10000 + b"after" * 300000)[:1000000])
        if how == "unlink":
            check("its directory is not empty", refusal(os.rmdir, "../room") == "ENOTEMPTY", refusal(os.rmdir, "../room"))
        else:
            with open("file", "rb") as successor:
                check("the successor has its own bytes", successor.read() == b"successor")
    check(how + ": the hidden name goes away at close", gone(), hidden())

os.unlink("file")
os.chdir("..")
check("then the directory can be removed", refusal(os.rmdir, "room") is None)

# A descriptor of a removed directory.
os.mkdir("doomed")
descriptor = os.open("doomed", os.O_RDONLY | os.O_DIRECTORY)
os.rmdir("doomed")
check("a directory that is open can be removed", not os.path.exists("doomed"))
inside = None
try:
    os.close(os.open("name", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=descriptor))
except OSError as error:
    inside = errno.errorcode[error.errno]
check("and nothing is made in it", inside in ("ENOENT", "ESTALE"), inside)
os.close(descriptor)

os.chdir("/")
print("%d failed" % len(FAILED))
sys.exit(1 if FAILED else 0)
