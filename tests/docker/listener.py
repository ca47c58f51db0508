"""Answers TCP and UDP on the ports given, on all addresses: what hostile code should not reach."""

# ruff: noqa: S104, T201 (that is what it is for)

import socket
import sys
import threading


def tcp(port):
    with socket.create_server(("0.0.0.0", port)) as server:
        while True:
            caller, _ = server.accept()
            caller.sendall(b"victim\n")
            caller.close()


def udp(port):
    with socket.socket(type=socket.SOCK_DGRAM) as server:
        server.bind(("0.0.0.0", port))
        while True:
            data, caller = server.recvfrom(1000)
            print("datagram", caller, data, flush=True)
            server.sendto(b"victim\n", caller)


for text in sys.argv[1:]:
    for serve in (tcp, udp):
        threading.Thread(target=serve, args=(int(text),)).start()
with socket.socket(type=socket.SOCK_DGRAM) as probe:
    probe.connect(("192.0.2.1", 9))  # sends nothing: only asks which address it would use
    print(probe.getsockname()[0], flush=True)
