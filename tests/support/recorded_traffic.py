"""A proxy between clients and a broker that keeps what passes, and writes it as packets of a capture."""

import contextlib
import socket
import threading
from typing import NamedTuple, Self

from tests.unit.decode.packet_bytes import ACK, FIN, PSH, SYN, pcap, tcp

SERVER = "127.0.0.1", 7000


class Chunk(NamedTuple):
    connection: int
    from_client: bool
    data: bytes


class RecordedTraffic:
    """`with RecordedTraffic(broker.address) as traffic:` and connect to `traffic.url`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.chunks: list[Chunk] = []
        self.url = f"tcp://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for each in self._sockets:
            each.close()

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        number = 0
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                for source, target in ((client, server), (server, client)):
                    self._start(self._pass, number, source, target, client)
                number += 1

    def _pass(
        self, number: int, source: socket.socket, target: socket.socket, client: socket.socket
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                with self._lock:
                    self.chunks.append(Chunk(number, source is client, data))
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def capture(self, *, segment_bytes_max: int = 1400) -> bytes:
        """The traffic as a pcap file, in segments of a size, as if the broker had port 7000."""
        at: dict[tuple[int, bool], int] = {}
        packets: list[bytes] = []
        for number, from_client, data in self.chunks:
            client = "127.0.0.1", 5000 + number
            if (number, True) not in at:
                at[number, True], at[number, False] = 100, 500
                packets.append(tcp(client, SERVER, 99, flags=SYN))
                packets.append(tcp(SERVER, client, 499, flags=SYN | ACK))
            ends = (client, SERVER) if from_client else (SERVER, client)
            for start in range(0, len(data), segment_bytes_max):
                part = data[start : start + segment_bytes_max]
                sequence = at[number, from_client]
                packets.append(tcp(*ends, sequence, part, flags=PSH | ACK))
                at[number, from_client] = sequence + len(part)
        for (number, from_client), sequence in at.items():
            client = "127.0.0.1", 5000 + number
            ends = (client, SERVER) if from_client else (SERVER, client)
            packets.append(tcp(*ends, sequence, flags=FIN | ACK))
        return pcap(packets)
