#!/usr/bin/env python3
"""Samples how much memory a process has, every 100 ms until it ends or this is told to (SIGTERM).

    memory_peaks.py PID FILE    FILE gets a line with the largest value, in KiB, of each of VmRSS, RssAnon,
                                RssFile, RssShmem and OWN (RssAnon + RssShmem in one sample), and VmHWM

RssFile are pages of files, the mapped log among them: the kernel takes them back when it needs memory.
RssAnon and RssShmem are what the process itself has allocated.
"""

import signal
import sys
import time

NAMES = ("VmRSS", "RssAnon", "RssFile", "RssShmem", "VmHWM")


def sample(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as lines:
        fields = dict(line.split(":", 1) for line in lines)
    values = {name: int(fields[name].split()[0]) for name in NAMES if name in fields}
    values["OWN"] = values["RssAnon"] + values["RssShmem"]
    return values


def main(pid, path):
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    peaks, samples = {}, 0
    while not stopped:
        try:
            values = sample(pid)
        except (OSError, KeyError):  # It has ended.
            break
        samples += 1
        for name, value in values.items():
            peaks[name] = max(peaks.get(name, 0), value)
        time.sleep(0.1)
    with open(path, "w", encoding="ascii") as out:
        print(*(f"{name}={value}" for name, value in peaks.items()), f"samples={samples}", file=out)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(int(sys.argv[1]), sys.argv[2])
