"""Machines of a small network: network namespaces on one switch, each with an address of its own."""

import contextlib
import os
import secrets
import shutil
import subprocess
from types import TracebackType
from typing import IO, Any, Self

SECONDS_MAX = 30.0
SWITCH = "switch"


def why_not() -> str:
    """The reason why this machine cannot have network namespaces; empty if it can."""
    if os.geteuid():
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "ip is not installed (Debian's package iproute2)"
    try:
        ip("netns", "add", name := f"pst{secrets.token_hex(3)}")
        ip("netns", "del", name)
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made: {error.stderr.strip()}"
    return ""


def ip(*arguments: str) -> None:
    command = ["ip", *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS_MAX)  # noqa: S603


class Machines:
    """The first machine has the switch; processes of it and of others reach each other."""

    def __init__(self, *names: str) -> None:
        self._prefix = f"pst{secrets.token_hex(3)}-"
        self._names = names
        self._processes: list[subprocess.Popen[Any]] = []

    def address(self, name: str) -> str:
        return f"10.231.7.{self._names.index(name) + 1}"

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._remove)
            for name in self._names:
                ip("netns", "add", self._prefix + name)
                ip("-n", self._prefix + name, "link", "set", "lo", "up")
            first = self._prefix + self._names[0]
            ip("-n", first, "link", "add", SWITCH, "type", "bridge")
            for number, name in enumerate(self._names):
                own = self._prefix + name
                if number:
                    port = f"port{number}"
                    peer = ("type", "veth", "peer", "name", port, "netns", first)
                    ip("-n", own, "link", "add", "eth0", *peer)
                    ip("-n", first, "link", "set", port, "master", SWITCH, "up")
                device = "eth0" if number else SWITCH
                ip("-n", own, "addr", "add", f"{self.address(name)}/24", "dev", device)
                ip("-n", own, "link", "set", device, "up")
            stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._remove()

    def _remove(self) -> None:
        for name in self._names:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "del", self._prefix + name)

    def command(self, name: str, *arguments: object, hidden: object = None) -> list[str]:
        """A command on a machine, where the folder `hidden` is empty."""
        found = ["ip", "netns", "exec", self._prefix + name]
        if hidden is not None:
            script = 'mount -t tmpfs none "$0" && exec "$@"'
            found += ["sh", "-c", script, str(hidden)]
        return [*found, *map(str, arguments)]

    def start(
        self,
        name: str,
        *arguments: object,
        output: IO[bytes],
        hidden: object = None,
        environment: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a process on a machine; it is ended with the machines."""
        process = subprocess.Popen(  # noqa: S603
            self.command(name, *arguments, hidden=hidden),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
        )
        self._processes.append(process)
        return process

    def wait_for_port(self, name: str, port: int, *, seconds: float) -> None:
        """Wait until a process of a machine listens."""
        script = (
            "import socket, sys, time\n"
            f"ends = time.monotonic() + {seconds}\n"
            f"while socket.socket().connect_ex(({self.address(name)!r}, {port})):\n"
            "    time.monotonic() < ends or sys.exit('nothing listens')\n"
            "    time.sleep(0.05)\n"
        )
        command = self.command(name, shutil.which("python3") or "python3", "-c", script)
        subprocess.run(command, check=True, capture_output=True, timeout=seconds + SECONDS_MAX)  # noqa: S603
