"""The network of the simulation: hosts, connections between them, and all that TCP lets happen.

Bytes of one connection come in order and whole, cut anywhere, late. Two connections are independent: the end of an old
one may come after the begin of a new one. Between two hosts that are cut off nothing comes until they are connected
again. A killed process closes its connections; a host without power says nothing, and its peers learn it from the
first packet that they send after its return.

Not simulated: a first write that is cut (a segment holds it), corrupted or repeated bytes (TCP's checksum), a
connection that one side sees and the other does not while it is being made.

Thread rule: one thread.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence

Address = tuple[str, int]
_USUAL_DELAYS_S = (0.0, 0.0002, 0.002, 0.02, 0.1)
_BODY = b"~" * 8
_LONG_DELAYS_S = (1.0, 4.0, 12.0)  # of a connection that lags behind all others


class Wire:
    """One direction of a connection. ``capacity`` bytes may be under way or unread."""

    def __init__(self, rng: random.Random, hosts: frozenset[str], delay_s: float, capacity: int) -> None:
        self._rng, self.hosts, self.delay_s, self.capacity = rng, hosts, delay_s, capacity
        self.under_way: deque[tuple[float, bytes | None]] = deque()  # when it comes, and what; None is the end
        self.arrived = bytearray()
        self.has_ended = False
        self.size = 0
        self._has_begun = False

    def send(self, data: bytes, now_s: float) -> None:
        """Let bytes go, in up to three pieces."""
        cuts = sorted(self._rng.randrange(1, len(data)) for _ in range(self._rng.randrange(3))) if len(data) > 1 else []
        begin = 0
        for cut in [*(cuts if self._has_begun else ()), len(data)]:
            if cut > begin:
                self._push(data[begin:cut], now_s)
            begin = cut
        self._has_begun = True
        self.size += len(data)

    def end(self, now_s: float) -> None:
        """Let the end of the stream go."""
        self._push(None, now_s)

    def _push(self, what: bytes | None, now_s: float) -> None:
        due_s = now_s + self.delay_s * self._rng.choice((0.5, 1, 1, 3))
        before_s = self.under_way[-1][0] if self.under_way else 0.0
        self.under_way.append((max(due_s, before_s), what))

    def deliver(self, now_s: float) -> None:
        """Let arrive what is due."""
        while self.under_way and self.under_way[0][0] <= now_s:
            _, what = self.under_way.popleft()
            if what is None:
                self.has_ended = True
            else:
                self.arrived += what


class Endpoint:
    """One end of a connection, with what a socket has of methods.

    ``saw`` is called with the bytes of each write of this end. A read with a time limit is over at once, unless the end
    ``waits``: then the rest of the world goes on meanwhile. ``owner`` is the process.
    """

    def __init__(self, network: Network, address: Address, outgoing: Wire, incoming: Wire) -> None:
        self._network, self.address, self.outgoing, self.incoming = network, address, outgoing, incoming
        self.peer: Endpoint | None = None
        self.is_open, self.is_reset = True, False
        self.saw: Callable[[bytes], None] = lambda data: None
        self.waits = False
        self.owner: object = None
        self._timeout_s: float | None = None

    def can_read(self) -> bool:
        return bool(self.incoming.arrived) or self.incoming.has_ended or self.is_reset

    def can_write(self) -> bool:
        return self.is_reset or self.outgoing.size < self.outgoing.capacity

    def setblocking(self, flag: bool) -> None:
        self._timeout_s = None if flag else 0.0

    def settimeout(self, seconds: float | None) -> None:
        self._timeout_s = seconds

    def setsockopt(self, *of: object) -> None:
        """Nothing to set."""

    def fileno(self) -> int:
        return 1 if self.is_open else -1

    def recv(self, most: int) -> bytes:
        if self.waits and not self.can_read():
            self._network.wait(self._timeout_s or 0.0, self.can_read)
        if self.is_reset:
            raise ConnectionResetError("reset by the peer")
        arrived = self.incoming.arrived
        if arrived:
            data = bytes(arrived[:most])
            del arrived[:most]
            self.incoming.size -= len(data)
            return data
        if self.incoming.has_ended:
            return b""
        if self._timeout_s:
            raise TimeoutError
        raise BlockingIOError

    def sendmsg(self, buffers: Sequence[bytes | memoryview]) -> int:
        if self.is_reset:
            raise ConnectionResetError("reset by the peer")
        room = self.outgoing.capacity - self.outgoing.size
        if room <= 0:
            raise BlockingIOError
        data = b"".join(bytes(buffer) for buffer in buffers)[:room]
        self._send(data)
        return len(data)

    def sendall(self, data: bytes) -> None:
        if self.is_reset:
            raise ConnectionResetError("reset by the peer")
        self._send(data)

    def _send(self, data: bytes) -> None:
        self.saw(data)
        data = self._network.corrupted(data)
        self.outgoing.send(data, self._network.now_s())

    def close(self) -> None:
        """Close it: the peer gets what was sent, and then the end."""
        if self.is_open:
            self.is_open = False
            self.outgoing.end(self._network.now_s())

    def vanish(self) -> None:
        """Be gone without a word, as without power."""
        self.is_open = False
        self.outgoing.under_way.clear()


class Listener:
    """A bound port, with what a listening socket has of methods."""

    def __init__(self, address: Address, owner: object) -> None:
        self.address, self.owner = address, owner
        self.pending: deque[tuple[Endpoint, Address]] = deque()
        self.is_open = True

    def listen(self, backlog: int) -> None:
        """Nothing: it listens from the begin."""

    def setblocking(self, flag: bool) -> None:
        """Nothing: only a loop accepts."""

    def getsockname(self) -> Address:
        return self.address

    def close(self) -> None:
        self.is_open = False


class Network:
    """All hosts. ``now_s`` is the world's time, ``wait(seconds, is_ready)`` lets it pass for a caller that blocks."""

    def __init__(self, rng: random.Random, now_s: Callable[[], float]) -> None:
        self._rng, self.now_s = rng, now_s
        self.wait: Callable[[float, Callable[[], bool]], None] = lambda seconds, is_ready: None
        self.cut_off: set[frozenset[str]] = set()
        self.corrupts = 0  # how many bytes of bodies still go wrong on their way to slaves
        self.is_calm = False
        self._listeners: dict[Address, Listener] = {}
        self._endpoints: list[Endpoint] = []
        self._next_port = 40_000

    def listen(self, address: Address, owner: object) -> Listener:
        """Bind a port."""
        listener = self._listeners[address] = Listener(address, owner)
        return listener

    def reaches(self, one: str, other: str) -> bool:
        """Whether packets pass between two hosts."""
        return frozenset((one, other)) not in self.cut_off

    def connect(self, local: str, address: Address, owner: object) -> Endpoint:
        """Connect from a host. Raises OSError."""
        host = address[0]
        listener = self._listeners.get(address)
        if not self.reaches(local, host):
            raise TimeoutError(f"no answer from {host}")
        if listener is None or not listener.is_open:
            raise ConnectionRefusedError(f"{host} refuses the connection")
        rng = self._rng
        delay_s = rng.choice(_LONG_DELAYS_S) if rng.random() < 0.05 else rng.choice(_USUAL_DELAYS_S)
        delay_s = 0.0 if self.is_calm else delay_s
        hosts = frozenset((local, host))
        there = Wire(rng, hosts, delay_s, 1 << 20)
        back = Wire(rng, hosts, delay_s, rng.choice((1_000, 20_000, 100_000)))
        self._next_port += 1
        here, peer = Endpoint(self, (local, self._next_port), there, back), Endpoint(self, address, back, there)
        here.peer, peer.peer, here.owner, peer.owner = peer, here, owner, listener.owner
        self._endpoints += (here, peer)
        listener.pending.append((peer, here.address))
        return here

    def deliver(self) -> None:
        """Let everything arrive that is due, and forget connections that have ended."""
        now_s = self.now_s()
        for endpoint in self._endpoints:
            wire = endpoint.incoming
            if wire.under_way and wire.under_way[0][0] <= now_s and self._passes(wire.hosts):
                wire.deliver(now_s)
                if not endpoint.is_open and wire.arrived and endpoint.peer is not None:
                    endpoint.peer.is_reset = True  # nobody is there to read it
        self._endpoints = [
            endpoint
            for endpoint in self._endpoints
            if endpoint.is_open or (endpoint.peer is not None and endpoint.peer.is_open)
        ]

    def _passes(self, hosts: frozenset[str]) -> bool:
        return hosts not in self.cut_off

    def corrupted(self, data: bytes) -> bytes:
        """The bytes, one of them wrong if that is wanted and there is a body of a message."""
        at = data.find(_BODY) if self.corrupts else -1
        if at < 0:
            return data
        self.corrupts -= 1
        return data[:at] + b"!" + data[at + 1 :]

    def calm_down(self) -> None:
        """End everything that holds bytes up."""
        self.cut_off.clear()
        self.corrupts = 0
        self.is_calm = True
        for endpoint in self._endpoints:
            endpoint.incoming.delay_s, endpoint.incoming.capacity = 0.0, 1 << 20

    def drop(self, owner: object, *, says_so: bool) -> None:
        """End all connections and ports of a process: by its system after a kill, or without a word."""
        for listener in self._listeners.values():
            if listener.owner is owner:
                listener.close()
        for endpoint in self._endpoints:
            if endpoint.owner is owner and endpoint.is_open:
                endpoint.close() if says_so else endpoint.vanish()
