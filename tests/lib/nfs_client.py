#!/usr/bin/env python3
"""A small NFSv3 client over one TCP connection, made by hand from RFC 1813 and RFC 5531: fast
enough to load a server (calls are pipelined), and independent of the server's own codec.

    nfs_client.py write PORT NAME MIB    CREATE, WRITE UNSTABLE 1 MiB at a time, COMMIT; as RFC 1813 section
                                         4.8 has it, sends again what a restart of the server may have lost
    nfs_client.py verify PORT NAME MIB   READ, and compare with what `write` wrote
    nfs_client.py remove PORT NAME
    nfs_client.py names PORT NAME COUNT  CREATE so many empty files, NAME-0 and so on, 64 calls at a time

Every MiB of a file differs from every other, and none of it can be compressed. As a module:

    client = Client(port); root = client.mount("/")
    handle = client.create(root, b"name"); client.write_file(handle, 64); client.read_file(handle, 64, check)
"""

import random
import socket
import struct
import sys
import time
from collections import deque

MOUNT, NFS = (100005, 3), (100003, 3)
LOOKUP, READ, WRITE, CREATE, REMOVE, COMMIT = 3, 6, 7, 8, 12, 21
UNSTABLE = 0
JUKEBOX = 10008
MIB = 1 << 20
# Calls on their way at once: enough to keep a server on this machine busy.
DEPTH = 16


class NfsError(Exception):
    """A call was answered with a status other than NFS3_OK (0)."""


def opaque(data):
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


class Reader:
    """Takes XDR values from a reply, one after the other."""

    def __init__(self, data):
        self.data, self.at = memoryview(data), 0

    def u32(self):
        (value,) = struct.unpack_from(">I", self.data, self.at)
        self.at += 4
        return value

    def fixed(self, length):
        value = self.data[self.at : self.at + length]
        self.at += length + (-length % 4)
        return value

    def opaque(self):
        return self.fixed(self.u32())

    def post_op_attr(self):
        if self.u32():
            self.fixed(84)

    def wcc_data(self):
        if self.u32():
            self.fixed(24)
        self.post_op_attr()


class Client:
    """One connection. Calls are answered in any order; replies are matched by their xid."""

    def __init__(self, port, host="127.0.0.1", timeout_s=120):
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = self.socket.makefile("rb", buffering=4 * MIB)
        self.xid = random.getrandbits(31)
        self.replies = {}
        # AUTH_SYS: stamp, machine, uid 0, gid 0, no groups.
        body = struct.pack(">I", 0) + opaque(b"test") + struct.pack(">3I", 0, 0, 0)
        self.credential = struct.pack(">I", 1) + opaque(body) + struct.pack(">2I", 0, 0)

    def send(self, program, procedure, *arguments):
        """Sends a call; gives its xid. The last argument may be a large buffer: it is not copied."""
        self.xid = (self.xid + 1) & 0xFFFFFFFF
        number, version = program
        head = struct.pack(">6I", self.xid, 0, 2, number, version, procedure) + self.credential
        length = len(head) + sum(map(len, arguments))
        head = struct.pack(">I", 0x80000000 | length) + head
        self.socket.sendall(head + b"".join(arguments[:-1]))
        if arguments:
            self.socket.sendall(arguments[-1])
        return self.xid

    def receive(self, xid):
        """The results of the call, after the RPC header."""
        while xid not in self.replies:
            record = b""
            last = False
            while not last:
                (mark,) = struct.unpack(">I", self.exactly(4))
                last, length = mark >> 31, mark & 0x7FFFFFFF
                record += self.exactly(length)
            reply = Reader(record)
            answered, kind, accepted = reply.u32(), reply.u32(), reply.u32()
            if kind != 1 or accepted != 0:
                raise NfsError(f"call {answered} was denied")
            reply.u32()
            reply.opaque()
            if (state := reply.u32()) != 0:
                raise NfsError(f"call {answered} was not executed: accept_stat {state}")
            self.replies[answered] = reply
        return self.replies.pop(xid)

    def exactly(self, length):
        data = self.input.read(length)
        if len(data) != length:
            raise NfsError("the server closed the connection")
        return data

    def call(self, program, procedure, *arguments):
        reply = self.receive(self.send(program, procedure, *arguments))
        if (status := reply.u32()) != 0:
            raise NfsError(f"procedure {procedure}: status {status}")
        return reply

    def mount(self, path):
        """The handle of an exported directory."""
        return bytes(self.call(MOUNT, 1, opaque(path.encode())).opaque())

    def create(self, directory, name):
        """CREATE UNCHECKED with size 0: a handle of an empty file."""
        # sattr3: mode 0644, no owner, no group, size 0, times as they are.
        attributes = struct.pack(">5IQ2I", 1, 0o644, 0, 0, 1, 0, 0, 0)
        reply = self.call(NFS, CREATE, opaque(directory), opaque(name), struct.pack(">I", 0), attributes)
        if not reply.u32():
            raise NfsError("CREATE gave no handle")
        return bytes(reply.opaque())

    def create_files(self, directory, name, count):
        """CREATEs empty files, 64 calls at a time; asks again for those that are to come back."""
        attributes = struct.pack(">5IQ2I", 1, 0o644, 0, 0, 1, 0, 0, 0)
        waiting = deque()

        def begin(number):
            arguments = opaque(directory) + opaque(b"%s-%d" % (name, number)) + struct.pack(">I", 0)
            waiting.append((number, self.send(NFS, CREATE, arguments, attributes)))

        def settle():
            number, xid = waiting.popleft()
            status = self.receive(xid).u32()
            if status == JUKEBOX:
                begin(number)
            elif status != 0:
                raise NfsError(f"CREATE: status {status}")

        for number in range(count):
            begin(number)
            if len(waiting) >= 64:
                settle()
        while waiting:
            settle()

    def lookup(self, directory, name):
        return bytes(self.call(NFS, LOOKUP, opaque(directory), opaque(name)).opaque())

    def remove(self, directory, name):
        self.call(NFS, REMOVE, opaque(directory), opaque(name))

    def write_file(self, handle, mib):
        """Writes so many MiB and commits them; writes again while verifiers differ."""
        for _ in range(10):
            verifiers = set()
            waiting = deque()

            def send(index):
                head = opaque(handle) + struct.pack(">Q3I", index * MIB, MIB, UNSTABLE, MIB)
                waiting.append((index, self.send(NFS, WRITE, head, content(index))))

            def settle():
                index, xid = waiting.popleft()
                reply = self.receive(xid)
                status = reply.u32()
                if status == JUKEBOX:
                    # Memory is full and the bucket is slow: the same again, as the kernel's client does.
                    time.sleep(0.1)
                    send(index)
                    return
                if status != 0:
                    raise NfsError(f"WRITE: status {status}")
                reply.wcc_data()
                count, _ = reply.u32(), reply.u32()
                if count != MIB:
                    raise NfsError(f"WRITE took {count} bytes of {MIB}")
                verifiers.add(bytes(reply.fixed(8)))

            for index in range(mib):
                send(index)
                if len(waiting) >= DEPTH:
                    settle()
            while waiting:
                settle()
            reply = self.call(NFS, COMMIT, opaque(handle), struct.pack(">QI", 0, 0))
            reply.wcc_data()
            verifiers.add(bytes(reply.fixed(8)))
            if len(verifiers) == 1:
                return
        raise NfsError("the write verifier changed ten times")

    def read_file(self, handle, mib, check):
        """Reads so many MiB, calling check(index, data) for each."""
        waiting = deque()

        def settle():
            index, xid = waiting.popleft()
            reply = self.receive(xid)
            if (status := reply.u32()) != 0:
                raise NfsError(f"READ: status {status}")
            reply.post_op_attr()
            reply.u32()
            reply.u32()
            check(index, reply.opaque())

        for index in range(mib):
            arguments = opaque(handle) + struct.pack(">QI", index * MIB, MIB)
            waiting.append((index, self.send(NFS, READ, arguments)))
            if len(waiting) >= DEPTH:
                settle()
        while waiting:
            settle()


# Twice a MiB that cannot be compressed: each MiB of a file begins elsewhere in it.
BODY = random.Random(1813).randbytes(2 * MIB)


def content(index):
    """The MiB with this number of every file."""
    start = index * 4099 % MIB
    return struct.pack(">Q", index) + BODY[start : start + MIB - 8]


def compare(index, data):
    if data != content(index):
        raise NfsError(f"MiB {index} is not what was written ({len(data)} bytes)")


def main(command, port, name, mib="0"):
    client, count = Client(int(port)), int(mib)
    root, name = client.mount("/"), name.encode()
    began = time.monotonic()
    if command == "write":
        client.write_file(client.create(root, name), count)
    elif command == "verify":
        client.read_file(client.lookup(root, name), count, compare)
    elif command == "remove":
        client.remove(root, name)
    elif command == "names":
        client.create_files(root, name, count)
        print(f"{count} names: {count / (time.monotonic() - began):.0f} a second")
        return
    else:
        sys.exit(__doc__)
    seconds = time.monotonic() - began
    print(f"{command} {count} MiB: {seconds:.1f} s, {count * MIB / 1e6 / seconds:.0f} MB/s")


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (NfsError, OSError) as error:
        sys.exit(f"nfs_client: {error}")
