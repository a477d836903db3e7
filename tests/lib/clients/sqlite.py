"""One SQLite database that several machines write at once, with locks on the gateway.

    sqlite.py begin FILE
    sqlite.py write FILE MACHINE COUNT MEETING      MEETING is a folder where two machines wait for each other
    sqlite.py check FILE COUNT MACHINE ...

With a rollback journal, since a write-ahead log needs shared memory. Each transaction adds a row, and one to a number
that all share. Proven by check: no transaction is lost or done twice, the database is sound, and no journal is left.
Without locks, or with bytes from a cache that locking should have dropped, the number is too small or the database is
damaged. That they were at it at once, and not one after the other, is checked as well.
"""

import os
import sqlite3
import sys
import time

import barrier


def connect(file):
    connection = sqlite3.connect(file, timeout=120, isolation_level=None)
    mode = connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0]
    assert mode == "delete", mode
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def begin(file):
    connection = connect(file)
    connection.executescript("""
        CREATE TABLE entry (machine TEXT NOT NULL, number INTEGER NOT NULL, total INTEGER NOT NULL, filling BLOB,
                            PRIMARY KEY (machine, number));
        CREATE TABLE total (value INTEGER NOT NULL);
        INSERT INTO total VALUES (0);
    """)


def write(file, machine, count, meeting):
    connection = connect(file)
    barrier.wait(meeting, "sqlite", machine, 2)
    for number in range(int(count)):
        connection.execute("BEGIN IMMEDIATE")
        (value,) = connection.execute("SELECT value FROM total").fetchone()
        filling = bytes([number % 256]) * (number * 37 % 3000)
        connection.execute("INSERT INTO entry VALUES (?, ?, ?, ?)", (machine, number, value, filling))
        connection.execute("UPDATE total SET value = ?", (value + 1,))
        connection.execute("COMMIT")
        # Whoever finds the database locked sleeps; without a pause here he might sleep until the other one is done.
        time.sleep(0.005)


def check(file, count, *machines):
    connection = connect(file)
    count = int(count)
    wrong = []

    def expect(what, wanted, found):
        print("%-7s %s: %s" % ("ok" if wanted == found else "FAILED", what, found), end="\n" if wanted == found else "")
        if wanted != found:
            print(", not %s" % (wanted,))
            wrong.append(what)

    expect("integrity", [("ok",)], connection.execute("PRAGMA integrity_check").fetchall())
    expect("rows", len(machines) * count, connection.execute("SELECT count(*) FROM entry").fetchone()[0])
    expect("number that all share", len(machines) * count, connection.execute("SELECT value FROM total").fetchone()[0])
    for machine in machines:
        rows = connection.execute("SELECT number, filling FROM entry WHERE machine = ? ORDER BY number", (machine,))
        expect("rows of %s are whole" % machine, True,
               list(rows) == [(n, bytes([n % 256]) * (n * 37 % 3000)) for n in range(count)])
    order = [machine for (machine,) in connection.execute("SELECT machine FROM entry ORDER BY total")]
    turns = sum(one != other for one, other in zip(order, order[1:]))
    # How often depends on who sleeps how long when he finds it locked; one after the other would be once.
    expect("they took turns (%d times)" % turns, True, turns >= 4)
    connection.close()
    expect("no journal", False, os.path.exists(file + "-journal"))
    sys.exit(1 if wrong else 0)


{"begin": begin, "write": write, "check": check}[sys.argv[1]](*sys.argv[2:])
