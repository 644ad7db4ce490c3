"""What attacks by unauthenticated clients cost a well-behaved client, and the server's memory, for each attack.

    python benchmarks/strangers.py [--seconds 6] [--attack NAME ...] [--connections 10000]

Each attack has a fresh `gantrymq serve`. It runs in its own process while one client asks for a route, sends and pulls,
one after the other. A line has the client's latencies and the server's memory meanwhile.

``own`` is the largest anonymous and shared memory (RssAnon + RssShmem of /proc/PID/status, read every 10 ms).
``mapped`` is the largest resident memory of files (RssFile): pages of the commit log, which are in the page cache
anyway and which the kernel reclaims when it needs them. They grow with the sent data, by 16 MB for each batch of
``tiny_batches``.

The goal is a p99 below 50 ms on two idle cores and less than 300 MB of ``own`` memory. Compare with the line
``nothing``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gantrymq.remoting.codes import PullSysFlag, RequestCode
from gantrymq.remoting.command import RemotingCommand, encode_command
from gantrymq.remoting.connection import Connection

P99_GOAL_MS, MEMORY_GOAL_MB = 50, 300
MEMORY_LOOK_S = 0.01
LARGE = 15 << 20
MANY_QUEUES = 65_536
SUSPEND, SUBSCRIPTION = int(PullSysFlag.SUSPEND), int(PullSysFlag.SUBSCRIPTION)
VERSION_3_0_11 = 37

Attack = Callable[["Target"], None]


class Peer:
    """A plain connection that sends any bytes."""

    def __init__(self, address: str, timeout_s: float = 30) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = Connection()
        self._received: list[RemotingCommand] = []

    def ask(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> RemotingCommand:
        """Send a request and return its answer."""
        self.socket.sendall(frame(code, fields, body))
        return self.receive()

    def receive(self) -> RemotingCommand:
        """The next answer. Raises ConnectionError if the server closed the connection."""
        while not self._received:
            data = self.socket.recv(1 << 18)
            if not data:
                raise ConnectionError("closed")
            self._received += self._connection.receive(data)
        return self._received.pop(0)


def frame(code: int, fields: dict[str, Any] | None = None, body: bytes = b"", **of: Any) -> bytes:
    """A request. ``fields`` are header fields under their names on the wire."""
    texts = {name: str(value) for name, value in (fields or {}).items()}
    return encode_command(RemotingCommand(code, ext_fields=texts, body=body, **of))


def raw_frame(header: bytes, body: bytes = b"") -> bytes:
    """A frame around any header bytes, which may be invalid."""
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def send_fields(topic: str, queue_id: int = 0) -> dict[str, Any]:
    """The header of SEND_MESSAGE_V2."""
    return {"a": "P", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0, "g": 0, "h": 0, "i": "", "j": 0}


def pull_fields(topic: str, offset: int, group: str = "G", **more: Any) -> dict[str, Any]:
    """The header of PULL_MESSAGE."""
    asked = {"consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32}
    asked |= {"sysFlag": SUBSCRIPTION, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*"}
    return asked | {"subVersion": 0} | more


# The well-behaved client


class Client:
    """Asks for a route, sends and pulls, over connections that it keeps. ``times_ms`` has the time of each request."""

    def __init__(self, target: Target) -> None:
        self._namesrv, self._broker = Peer(target.namesrv), Peer(target.broker)
        self._offset = 0
        self.times_ms: list[float] = []
        self.failed = 0

    def once(self) -> None:
        """Make one request of each kind."""
        self._ask(self._namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "bench"})
        self._ask(self._broker, RequestCode.SEND_MESSAGE_V2, send_fields("bench"), bytes(100))
        answer = self._ask(self._broker, RequestCode.PULL_MESSAGE, pull_fields("bench", self._offset))
        self._offset = int(answer.ext_fields.get("nextBeginOffset", self._offset))

    def _ask(self, peer: Peer, code: int, fields: dict[str, Any], body: bytes = b"") -> RemotingCommand:
        began = time.perf_counter()
        answer = peer.ask(code, fields, body)
        self.times_ms.append((time.perf_counter() - began) * 1e3)
        self.failed += answer.code not in (0, 19)  # PULL_NOT_FOUND: the message is not dispatched yet
        return answer


# Attacks: each runs until its process is ended


class Target:
    """The addresses that are attacked."""

    def __init__(self, broker: str, namesrv: str, connections: int) -> None:
        self.broker, self.namesrv, self.connections = broker, namesrv, connections
        self.both = itertools.cycle((broker, namesrv))


def again_and_again(target: Target, data: bytes) -> None:
    """Send data to both servers in turn. A connection that was closed is replaced."""
    for address in target.both:
        with suppress(OSError), Peer(address, 2).socket as one:
            for _ in range(20):
                one.sendall(data)


def no_json(target: Target) -> None:
    """E2: frames of 15 MB whose header is not JSON."""
    again_and_again(target, raw_frame(b"[" * 200_000, bytes(LARGE - 300_000)))


def long_headers(target: Target) -> None:
    """E3: headers of 15 MB of quotes."""
    again_and_again(target, raw_frame(b'"' * LARGE))


def many_fields(target: Target) -> None:
    """E3: as many extFields, and as many unknown keys, as a header may have."""
    fields = ",".join(f'"{number}":""' for number in range(22_000))
    unknown = ",".join(f'"{number}":[]' for number in range(20_000))
    lenient = ",".join(f'"{number}":1' for number in range(20_000))
    headers = [f'{{"code":11,"extFields":{{{fields}}}}}', f'{{"code":11,{unknown}}}']
    headers += [f'{{"code":11,"extFields":{{{lenient[:most].rpartition(",")[0]}}}}}' for most in (65_000, 240_000)]
    for header in itertools.cycle(headers):
        one = Peer(next(target.both), 2)
        with suppress(OSError), one.socket:
            one.socket.sendall(raw_frame(header.encode()) * 20)
            for _ in range(20):
                one.receive()


def large_registrations(target: Target) -> None:
    """E3: registrations that inflate to 250 MB of blanks, or have 1.5 million topics."""

    def counted(text: bytes) -> bytes:
        return struct.pack(">I", len(text)) + text

    blanks = zlib.compress(counted(b" " * (250 << 20)), 1)
    topics = b"".join(counted(b"%d 1 1 6 SINGLE_TAG" % number) for number in range(1_500_000))
    many = zlib.compress(counted(b"{}") + struct.pack(">I", 1_500_000) + topics + counted(b"[]"), 1)
    said = [f'"{one}":{{"topicName":"{one}"}}' for one in range(400_000)]
    plain = ('{"topicConfigSerializeWrapper":{"topicConfigTable":{' + ",".join(said) + "}}}").encode()
    names = itertools.count()
    allowed = '{"topicConfigSerializeWrapper":{"topicConfigTable":{' + ",".join(said[:90_000]) + "}}}"
    bodies = ((blanks, True), (many, True), (plain, False), (plain[:-5], False), (allowed.encode(), False))
    for body, compressed in itertools.cycle(bodies):
        fields = {"brokerName": f"fake-{next(names)}", "brokerAddr": "10.0.0.1:1", "clusterName": "C"}
        fields |= {"haServerAddr": "", "brokerId": "0"}
        with suppress(OSError):
            Peer(target.namesrv).ask(
                RequestCode.REGISTER_BROKER, fields | {"compressed": str(compressed).lower(), "bodyCrc32": 0}, body
            )


def brokers_that_leave(target: Target) -> None:
    """2,000 brokers with the same 200 topics register on one connection, their cluster is listed, and they leave."""
    table = ",".join(f'"same{one}":{{"topicName":"same{one}"}}' for one in range(200))
    body = f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{{table}}}}}}}'.encode()
    while True:
        with suppress(OSError):
            one = Peer(target.namesrv)
            with one.socket:
                for number in range(2000):
                    fields = {"brokerName": f"b{number}", "brokerAddr": f"b{number}:1", "clusterName": "crowd"}
                    fields |= {"haServerAddr": "", "brokerId": 0, "compressed": "false", "bodyCrc32": 0}
                    one.ask(RequestCode.REGISTER_BROKER, fields, body)
                for _ in range(10):
                    one.ask(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "crowd"})


def large_bodies(target: Target) -> None:
    """E3: JSON bodies as large as a frame: subscriptions, codes, queues to be locked, nesting."""
    codes = b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{"topic":"T","codeSet":['
    codes += b"1," * 5_000_000 + b"1]}]}]}"
    topics = b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":['
    topics += b",".join(b'{"topic":"%d"}' % number for number in range(700_000)) + b"]}]}"
    queues = b'{"consumerGroup":"G","clientId":"c","mqSet":['
    queues += b",".join(b'{"topic":"T","brokerName":"b","queueId":%d}' % number for number in range(300_000)) + b"]}"
    small = topics[:1_000_000].rpartition(b",")[0] + b"]}]}"
    requests = [
        frame(RequestCode.HEART_BEAT, {}, codes),
        frame(RequestCode.HEART_BEAT, {}, topics),
        frame(RequestCode.HEART_BEAT, {}, small),
        frame(RequestCode.LOCK_BATCH_MQ, {}, queues),
        frame(RequestCode.HEART_BEAT, {}, b"[" * LARGE),
        frame(RequestCode.HEART_BEAT, {}, b'"' * (1 << 20)),
        frame(RequestCode.HEART_BEAT, {}, b"{1:" * (1 << 18)),
        frame(RequestCode.UPDATE_BROKER_CONFIG, {}, b"a=b\n" * (3 << 20)),
    ]
    for request in itertools.cycle(requests):
        one = Peer(target.broker, 10)
        with suppress(OSError), one.socket:
            one.socket.sendall(request)
            one.receive()


def held_pulls(target: Target) -> None:
    """E4: pulls with the longest wait, bodies of 15 MB and long subscriptions; then very many of them."""
    setup = Peer(target.broker)
    setup.ask(RequestCode.SEND_MESSAGE_V2, send_fields("held"), b"x")
    held = {"sysFlag": SUSPEND | SUBSCRIPTION, "suspendTimeoutMillis": 1 << 62}
    tags = "||".join(f"t{number}" for number in range(4000))
    ends = []
    with suppress(OSError):
        for number in range(10):
            ends.append(Peer(target.broker))
            for _ in range(6):
                fields = pull_fields("held", 1, f"g{number}", **held)
                ends[-1].socket.sendall(frame(RequestCode.PULL_MESSAGE, fields, bytes(LARGE)))
    for number in itertools.count():
        with suppress(OSError):
            ends.append(Peer(target.broker, 2))
            long = frame(RequestCode.PULL_MESSAGE, pull_fields("bench", 1 << 20, "G", **held, subscription=tags))
            short = frame(RequestCode.PULL_MESSAGE, pull_fields("held", 1, "G", **held))
            for _ in range(20):
                ends[-1].socket.sendall(long * 20 if number % 2 else short * 1000)
        if number % 10 == 9:  # now all waiting pulls have a message
            with suppress(OSError):
                setup.ask(RequestCode.SEND_MESSAGE_V2, send_fields("held"), b"x")


def waiting_pops(target: Target) -> None:
    """Pops and notifications with the longest wait and long texts, and forged acknowledgements of their topic."""
    setup = Peer(target.broker)
    setup.ask(RequestCode.SEND_MESSAGE_V2, send_fields("popped"), b"x")
    waits = {"bornTime": 1 << 62, "pollTime": 1 << 62, "order": "false"}
    long = waits | {"exp": "t" * 300_000, "expType": "TAG", "attemptId": "a" * 300_000}
    ends: list[Peer] = []
    for number in itertools.count():
        names = {"consumerGroup": f"g{number % 1000}", "topic": "popped", "queueId": -1}
        pop = names | {"maxMsgNums": 32, "invisibleTime": 60_000, "initMode": 1}
        handle = f"0 {number} 60000 {number % 8} 0 broker-a 0 0"
        forged = names | {"queueId": 0, "extraInfo": handle, "offset": 0}
        frames = (
            frame(RequestCode.POP_MESSAGE, pop | long) * 4 + frame(RequestCode.NOTIFICATION, names | long) * 4,
            frame(RequestCode.POP_MESSAGE, pop | waits | {"exp": "t", "expType": "TAG"}) * 1000,
            frame(RequestCode.ACK_MESSAGE, forged) * 200,
        )
        with suppress(OSError):
            ends.append(Peer(target.broker, 2))
            ends[-1].socket.sendall(frames[number % 3])
        if len(ends) > 500:
            ends.pop(0).socket.close()
        if number % 30 == 29:  # now all waiting pops look again
            with suppress(OSError):
                setup.ask(RequestCode.SEND_MESSAGE_V2, send_fields("popped"), b"x")


def unread_answers(target: Target, *, tls: bool = False) -> None:
    """E5: many connections that request long answers and read none."""
    value, setup = "v" * 200_000, Peer(target.namesrv)
    for number in range(60):
        fields = {"namespace": "N", "key": str(number), "value": value}
        setup.ask(RequestCode.PUT_KV_CONFIG, fields)
    sender = Peer(target.broker)
    for _ in range(16):
        sender.ask(RequestCode.SEND_MESSAGE_V2, send_fields("large"), bytes(4_000_000))
    ends: list[socket.socket] = []
    context = ssl._create_unverified_context() if tls else None
    while True:
        for address, request in (
            (target.namesrv, frame(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})),
            (target.broker, frame(RequestCode.PULL_MESSAGE, pull_fields("large", 0))),
        ):
            with suppress(OSError):
                one = Peer(address, 2).socket
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                if context is not None:
                    one = context.wrap_socket(one)
                one.sendall(request * 100)
                ends.append(one)
        if len(ends) > 400:
            for one in ends[:100]:
                one.close()
            del ends[:100]
        time.sleep(0.005)


def half_frames(target: Target) -> None:
    """E5: frames of 15 MB without their last byte."""
    ends: list[socket.socket] = []
    for address in target.both:
        with suppress(OSError):
            one = Peer(address, 2).socket
            one.sendall(raw_frame(b"{}", bytes(LARGE))[:-1])
            ends.append(one)
        if len(ends) > 200:
            ends.pop(0).close()


def pipelines(target: Target) -> None:
    """E8: 100,000 pipelined requests on each of ten connections, whose answers are read."""
    pulls = frame(RequestCode.PULL_MESSAGE, pull_fields("bench", 0)) * 1000
    routes = frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "bench"}) * 1000
    ends: list[tuple[socket.socket, bytes]] = []
    while True:
        for address, requests in ((target.broker, pulls), (target.namesrv, routes)):
            if sum(sent is requests for _, sent in ends) < 5:
                ends.append((Peer(address).socket, requests))
                ends[-1][0].setblocking(False)
        for end in list(ends):
            try:
                with suppress(BlockingIOError):
                    end[0].send(end[1])
                with suppress(BlockingIOError):
                    while end[0].recv(1 << 20):
                        pass
            except ConnectionError:  # the server cuts off connections whose answers pile up
                ends.remove(end)


def many_queues(target: Target) -> None:
    """E8: requests about a topic of 65,536 queues, on several connections."""
    ends = [Peer(target.broker) for _ in range(4)]
    created = {"topic": "wide", "defaultTopic": "TBW102", "readQueueNums": MANY_QUEUES, "writeQueueNums": MANY_QUEUES}
    created |= {"perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
    ends[0].ask(RequestCode.UPDATE_AND_CREATE_TOPIC, created)
    group = {"consumerGroup": "G", "group": "G", "topic": "wide", "timestamp": 0, "isForce": "true", "queueId": -1}
    codes = (
        RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_CONSUME_STATS, RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.QUERY_ASSIGNMENT,
    )  # fmt: skip
    ends[0].ask(RequestCode.PULL_MESSAGE, pull_fields("wide", 0))
    assignment = json.dumps({"topic": "wide", "consumerGroup": "G", "clientId": "c", "strategyName": "AVG"}).encode()
    for code in itertools.cycle(codes):
        body = assignment if code == RequestCode.QUERY_ASSIGNMENT else b""
        for end in ends:
            end.socket.sendall(frame(code, group | {"isOrder": "false", "timeoutMillis": 1000}, body))
        for end in ends:
            end.receive()


def many_names(target: Target) -> None:
    """E9: key-values, topics, groups, clients and fake brokers, each with a new name."""
    namesrv, broker, value = Peer(target.namesrv), Peer(target.broker), "v" * 60_000
    for number in itertools.count():
        name = f"n{number}".ljust(120, "x")
        put = {"namespace": f"N{number}", "key": name, "value": value}
        fake = {"brokerName": name, "brokerAddr": f"{name}:1", "clusterName": name, "haServerAddr": "", "brokerId": 0}
        table = ",".join(f'"{name}{one}":{{"topicName":"{name}{one}"}}' for one in range(100))
        said = f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{{table}}}}}}}'.encode()
        beat = {"clientID": name, "producerDataSet": [{"groupName": f"{name}{one}"} for one in range(100)]}
        subscriptions = [{"topic": f"{name}{one}", "subString": "a||" * 100} for one in range(100)]
        beat |= {"consumerDataSet": [{"groupName": name, "subscriptionDataSet": subscriptions}]}
        with suppress(OSError):
            namesrv.ask(RequestCode.PUT_KV_CONFIG, put)
            namesrv.ask(RequestCode.REGISTER_BROKER, fake, said)
            broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields(name), b"x")
            broker.ask(RequestCode.PULL_MESSAGE, pull_fields("bench", 0, name))
            broker.ask(RequestCode.HEART_BEAT, {}, json.dumps(beat).encode())
            offset = {"consumerGroup": name, "topic": "bench", "queueId": number * 7919 % (1 << 31), "commitOffset": 1}
            broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset)


def heart_beat(client: str, groups: int, topics: int, first: int = 0) -> bytes:
    """A heart-beat of consumers of that many groups, each with that many topics."""
    subscriptions = [{"topic": f"t{number}"} for number in range(first, first + topics)]
    consumers = [{"groupName": f"g{number}", "subscriptionDataSet": subscriptions} for number in range(groups)]
    producers = [{"groupName": f"p{number}"} for number in range(groups)]
    beat = {"clientID": client, "consumerDataSet": consumers, "producerDataSet": producers}
    return frame(RequestCode.HEART_BEAT, {}, json.dumps(beat, separators=(",", ":")).encode())


def keep_sending(target: Target, beats: Callable[[int, int], bytes], count: int) -> None:
    """Send ``beats(connection, round)`` on ``count`` connections to the broker, and read the answers."""
    ends = [Peer(target.broker).socket for _ in range(count)]
    for turn in itertools.count():
        for number, one in enumerate(ends):
            try:
                one.setblocking(True)
                one.sendall(beats(number, turn))
                one.setblocking(False)
                with suppress(BlockingIOError):
                    while one.recv(1 << 20):
                        pass
            except OSError:  # cut off
                with suppress(OSError):
                    ends[number] = Peer(target.broker).socket


def changing_members(target: Target) -> None:
    """60 connections in the same 1,000 groups, each of which changes the subscriptions of these groups."""
    keep_sending(target, lambda number, turn: heart_beat(f"c{number}", 1000, 1, number + turn), 60)


def large_heart_beats(target: Target) -> None:
    """40 connections with a group of 5,000 topics each."""
    beats = [heart_beat(f"c{number}", 1, 5000) for number in range(40)]
    keep_sending(target, lambda number, turn: beats[number], 40)


def unanswered_questions(target: Target) -> None:
    """Requests with a body of 1 MB that are forwarded to a consumer which never answers."""
    silent = Peer(target.broker)
    silent.socket.sendall(heart_beat("silent", 1, 1))
    fields = {"consumerGroup": "g0", "clientId": "silent", "jstackEnable": "false"}
    question = frame(RequestCode.GET_CONSUMER_RUNNING_INFO, fields, bytes(1 << 20))
    ends: list[socket.socket] = []
    while True:
        with suppress(OSError):
            ends.append(Peer(target.broker, 1).socket)
            for _ in range(250):
                ends[-1].sendall(question)
        if len(ends) > 100:
            ends.pop(0).close()


def tiny_batches(target: Target) -> None:
    """Batches of 150,000 messages of one byte, on ten connections."""
    batch = (struct.pack(">IIIiI", 23, 0, 0, 0, 1) + b"x\0\0") * 150_000
    request = frame(RequestCode.SEND_BATCH_MESSAGE, send_fields("tiny") | {"m": "true"}, batch)
    ends = [Peer(target.broker) for _ in range(10)]
    while True:
        for one in ends:
            one.socket.sendall(request)
        for one in ends:
            one.receive()


def crowd(target: Target) -> None:
    """10,000 connections: half send nothing, half begin a frame and never finish it."""
    ends = []
    for number in range(target.connections):
        with suppress(OSError):
            ends.append(Peer(target.broker, 2).socket)
            if number % 2:
                ends[-1].sendall(b"\0\0\1\0{")
    time.sleep(600)


def revolving_door(target: Target) -> None:
    """Connections that are opened and closed as fast as possible."""
    for address in target.both:
        with suppress(OSError):
            Peer(address, 2).socket.close()


def handshakes(target: Target) -> None:
    """TLS handshakes that are begun and never finished, and some that are finished and left."""
    ends: list[socket.socket] = []
    context = ssl._create_unverified_context()
    for number, address in enumerate(target.both):
        with suppress(OSError):
            one = Peer(address, 2).socket
            if number % 10:
                incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                with suppress(ssl.SSLWantReadError):
                    context.wrap_bio(incoming, outgoing).do_handshake()
                one.sendall(outgoing.read())
                ends.append(one)
            else:
                context.wrap_socket(one).close()
        if len(ends) > 4000:
            ends.pop(0).close()


def unread_tls_answers(target: Target) -> None:
    """E5 over TLS."""
    unread_answers(target, tls=True)


def nothing(target: Target) -> None:
    """No attack."""
    time.sleep(600)


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        nothing, no_json, long_headers, many_fields, large_registrations, brokers_that_leave, large_bodies, held_pulls,
        waiting_pops, unread_answers, unread_tls_answers, half_frames, pipelines, many_queues, many_names, crowd,
        revolving_door, handshakes, changing_members, large_heart_beats, unanswered_questions, tiny_batches,
    )
}  # fmt: skip


# Measuring


@contextmanager
def serving(folder: str) -> Iterator[tuple[int, str, str]]:
    """Run a server. Yields its process id, and the addresses of its broker and its name server."""
    words = ["serve", "--store", folder, "--namesrv-port", "0", "--listen-port", "0", "--json"]
    command = [str(Path(sys.executable).with_name("gantrymq")), *words]
    said = Path(os.environ.get("STRANGERS_LOG", os.devnull))
    with said.open("a") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        try:
            yield process.pid, ready["broker"], ready["namesrv"]
        finally:
            process.terminate()


class Memory:
    """The largest resident memory of a process so far in MiB: ``own_mb`` without files, ``mapped_mb`` of files."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self._is_over = threading.Event()
        self._watch = threading.Thread(target=self._look_again, daemon=True)
        self.own_mb = self.mapped_mb = 0.0

    def __enter__(self) -> Memory:
        """Start watching."""
        self._look()
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching, after one more reading."""
        self._is_over.set()
        self._watch.join()
        self._look()

    def _look_again(self) -> None:
        while not self._is_over.wait(MEMORY_LOOK_S):
            self._look()

    def _look(self) -> None:
        kib = {line.split(":")[0]: line.split()[1] for line in self._status.read_text().splitlines() if "kB" in line}
        self.own_mb = max(self.own_mb, (int(kib["RssAnon"]) + int(kib["RssShmem"])) / 1024)
        self.mapped_mb = max(self.mapped_mb, int(kib["RssFile"]) / 1024)


def measure(name: str, seconds: float, connections: int) -> None:
    """Measure one attack and print its line."""
    with tempfile.TemporaryDirectory() as folder, serving(folder) as (pid, broker, namesrv):
        client = Client(Target(broker, namesrv, connections))
        for _ in range(50):
            client.once()
        client.times_ms.clear()
        client.failed = 0
        words = [sys.executable, __file__, "--run", name, "--at", broker, namesrv, "--connections", str(connections)]
        error = ""
        with Memory(pid) as memory, subprocess.Popen(words) as attacker:
            time.sleep(1)  # its start uses all of a machine of two cores
            until = time.monotonic() + seconds
            try:
                while time.monotonic() < until:
                    client.once()
                    time.sleep(0.002)
            except OSError as failure:
                error = f"  the client failed: {failure!r}"
            if attacker.poll() is not None:
                error += f"  the attack ended with {attacker.returncode}"
            attacker.kill()
        times = sorted(client.times_ms)
        p99_ms = times[len(times) * 99 // 100]
        bad = error or client.failed or p99_ms >= P99_GOAL_MS or memory.own_mb >= MEMORY_GOAL_MB
        print(
            f"{name:20} {len(times):6} {times[len(times) // 2]:8.2f} {p99_ms:8.2f} {times[-1]:8.1f} "
            f"{memory.own_mb:8.0f} {memory.mapped_mb:10.0f}  "
            f"{'MISSED' if bad else 'ok'}{f'  {client.failed} refused' if client.failed else ''}{error}",
            flush=True,
        )


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--attack", nargs="*", choices=list(ATTACKS), default=list(ATTACKS))
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--run", choices=list(ATTACKS), help=argparse.SUPPRESS)
    parser.add_argument("--at", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run is not None:
        broker, namesrv = options.at
        ATTACKS[options.run](Target(broker, namesrv, options.connections))
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(
        f"{'attack':20} {'asked':>6} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'own MB':>8} {'mapped MB':>10}  verdict"
    )
    for name in options.attack:
        measure(name, options.seconds, options.connections)


if __name__ == "__main__":
    main()
