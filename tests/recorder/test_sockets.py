import os
import socket

from rankscope.recorder.sockets import Sockets


def test_counts_what_waits_at_both_ends():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        theirs, _ = server.accept()
        with theirs:
            before = Sockets().queues([os.getpid()]).get(os.getpid(), (0, 0))
            ours.sendall(b"x" * 1000)
            after = Sockets().queues([os.getpid()])[os.getpid()]

    assert after[1] - before[1] == 1000


def test_leaves_out_who_has_no_connection():
    assert Sockets().queues([2**22 + 1]) == {}
