"""What hostile code would try next: get more power than it was given, or out of its container.

Run inside a container as `python -`; prints as JSON which attempts succeeded.
"""

# ruff: noqa: PTH101, PTH103, PTH108, PTH110, PTH116, PTH118, PTH123, PTH208, S108, S606 (runs where nothing is installed)

import ctypes
import json
import os
import socket
import sys

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID, CLONE_NEWUSER = 0x20000, 0x40000000, 0x20000000, 0x10000000
# Numbers of x86-64; elsewhere the attempt is left out.
SYSCALLS = {
    "keyctl": (250, 0, -3, 1, 0, 0),
    "bpf": (321, 5, 0, 0, 0, 0),
    "perf_event_open": (298, 0, 0, -1, -1, 0),
    "userfaultfd": (323, 0, 0, 0, 0, 0),
    "io_uring_setup": (425, 1, 0, 0, 0, 0),
    "kexec_load": (246, 0, 0, 0, 0, 0),
    "init_module": (175, 0, 0, 0, 0, 0),
    "open_by_handle_at": (304, -100, 0, 0, 0, 0),
    "pivot_root": (155, 0, 0, 0, 0, 0),
    "syslog": (103, 3, 0, 0, 0, 0),
}
BLOCKED = {1, 38}  # EPERM, ENOSYS: refused before the arguments were looked at


def main() -> None:
    findings = {
        "namespaces": [
            name
            for name, flag in (
                ("user", CLONE_NEWUSER),
                ("user and mount", CLONE_NEWUSER | CLONE_NEWNS),
                ("mount", CLONE_NEWNS),
                ("network", CLONE_NEWNET),
                ("pid", CLONE_NEWPID),
            )
            if in_a_child(lambda flag=flag: unshare(flag))
        ],
        "mounts": [
            kind
            for kind in ("tmpfs", "proc", "overlay", "cgroup")
            if in_a_child(lambda kind=kind: mount(kind))
        ],
        "calls": calls() if os.uname().machine == "x86_64" else [],
        "devices": devices(),
        "kernel files": opened_for_writing(),
        "sockets": engines(),
        "root": in_a_child(lambda: os.setuid(0)) or in_a_child(lambda: os.setgid(0)),
        "setuid files": setuid_files(),
        "executed from /tmp": in_a_child(execute_from_tmp),
        "processes of others": others(),
    }
    json.dump(findings, sys.stdout)


def in_a_child(action) -> bool:
    """Return whether an action succeeded, in a process that ends with it."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def unshare(flags):
    checked(libc.unshare(flags))


def mount(kind):
    os.makedirs("/tmp/mounted", exist_ok=True)
    checked(libc.mount(b"none", b"/tmp/mounted", kind.encode(), 0, None))


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno())


def calls():
    possible = []
    for name, arguments in SYSCALLS.items():
        ctypes.set_errno(0)
        result = libc.syscall(*arguments)
        if result >= 0 or ctypes.get_errno() not in BLOCKED:
            possible.append(name)
    return possible


def devices():
    """Make a device file, and look for one that is not among a container's harmless ones."""
    made = []
    if in_a_child(lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(254, 0))):
        made.append("mknod")
    harmless = {"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx"}
    return made + [
        name
        for name in os.listdir("/dev")
        if name not in harmless
        and os.path.exists(f"/dev/{name}")
        and (os.stat(f"/dev/{name}").st_mode & 0o170000) in (0o20000, 0o60000)
    ]


def opened_for_writing():
    """Try what has led out of containers: kernel settings, control groups, process memory."""
    places = [
        "/proc/sys/kernel/core_pattern",
        "/proc/sysrq-trigger",
        "/proc/kcore",
        "/proc/kmsg",
        "/proc/1/root/etc/passwd",
        "/sys/kernel/uevent_helper",
        "/sys/power/state",
    ]
    for folder, _, names in os.walk("/sys/fs/cgroup"):
        places += [os.path.join(folder, name) for name in names]
    opened = []
    for place in places:
        for mode in ("rb",) if place in ("/proc/kcore", "/proc/kmsg") else ("r+b",):
            try:
                with open(place, mode) as file:
                    if mode == "rb" and not file.read(1):
                        continue
                opened.append(place)
            except OSError:
                pass
    return opened


def engines():
    """Look for Unix sockets: of the engine, of the system, or anyone's that is reachable."""
    reached = []
    for folder, _, names in os.walk("/"):
        if folder.startswith(("/proc", "/sys")):
            continue
        for name in names:
            path = os.path.join(folder, name)
            try:
                if os.stat(path).st_mode & 0o170000 != 0o140000:
                    continue
                with socket.socket(socket.AF_UNIX) as link:
                    link.settimeout(5)
                    link.connect(path)
                reached.append(path)
            except OSError:
                pass
    with open("/proc/net/unix") as file:
        abstract = [line.split()[-1] for line in file if line.split()[-1].startswith("@")]
    return sorted(reached) + abstract


def setuid_files():
    """A file that runs as somebody else, if the mount and the kernel let it."""
    with open("/proc/self/status") as file:
        if "NoNewPrivs:\t1" in file.read():
            return []
    found = []
    for folder, _, names in os.walk("/usr"):
        for name in names:
            path = os.path.join(folder, name)
            try:
                if os.lstat(path).st_mode & 0o6000:
                    found.append(path)
            except OSError:
                pass
    return found


def execute_from_tmp():
    path = f"/tmp/program-{os.getpid()}"
    with open(path, "w") as file:
        file.write("#!/bin/sh\nexit 0\n")
    os.chmod(path, 0o700)
    code = os.spawnv(os.P_WAIT, path, [path])
    os.unlink(path)
    if code:
        raise OSError(code)


def others():
    """Processes of another user, or of another container, that can be seen at all."""
    seen = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if os.stat(f"/proc/{name}").st_uid not in (os.getuid(), 0):
                    seen.append(name)
            except OSError:
                pass
    return seen


main()
