"""What hostile code would do next: get out. Run inside a container as `python - JSON`.

For each target it tries the plain way and, bound to each interface, the way that needs no route:
the kernel then takes the address to be on the link. Prints as JSON which attempts got an answer.
"""

# ruff: noqa: PTH123, PTH208 (runs where nothing is installed, as small as can be)

import json
import os
import socket
import struct
import sys

SECONDS = 3.0


def main() -> None:
    wanted = json.loads(sys.argv[1])
    reached = []
    for host, port in wanted["tcp"]:
        for device in (None, *interfaces()):
            reached += attempt(f"tcp {host}:{port} {device}", tcp, host, port, device)
    for host, port in wanted["udp"]:
        for device in (None, *interfaces()):
            reached += attempt(f"udp {host}:{port} {device}", udp, host, port, device)
    for name in wanted["names"]:
        reached += attempt(f"name {name}", socket.getaddrinfo, name, 80)
        for server in wanted["resolvers"]:
            reached += attempt(f"dns {server} {name}", ask, server, name)
    powers = []
    for name, family, kind, protocol in (
        ("raw", socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        ("packet", socket.AF_PACKET, socket.SOCK_RAW, 0),
        ("vsock", 40, socket.SOCK_STREAM, 0),
    ):
        powers += attempt(name, socket.socket, family, kind, protocol)
    findings = {"reached": reached, "powers": powers, "interfaces": interfaces()}
    json.dump(findings | {"routes": routes()}, sys.stdout)


def attempt(name, action, *arguments):
    try:
        action(*arguments)
    except OSError:
        return []
    return [name]


def tcp(host, port, device):
    with connection(host, port, socket.SOCK_STREAM, device):
        pass


def udp(host, port, device):
    with connection(host, port, socket.SOCK_DGRAM, device) as caller:
        caller.send(b"hello")
        caller.recv(100)


def connection(host, port, kind, device):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    caller = socket.socket(family, kind)
    caller.settimeout(SECONDS)
    try:
        if device:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        caller.connect((host, port))
    except OSError:
        caller.close()
        raise
    return caller


def ask(server, name):
    """Ask a name server as any resolver would."""
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    query = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1"
    with connection(server, 53, socket.SOCK_DGRAM, None) as caller:
        caller.send(query)
        answer = caller.recv(512)
    if answer[3] & 0xF or not int.from_bytes(answer[6:8], "big"):
        raise OSError("no such name")


def interfaces():
    return sorted(os.listdir("/sys/class/net"))


def routes():
    with open("/proc/net/route") as file:
        return file.read().splitlines()[1:]


main()
