"""The embedded broker: up in a moment, used by clients, killed, started again, its clock moved."""

from __future__ import annotations

import asyncio
import logging
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gantrymq import (
    AsyncEmbeddedBroker,
    ConsumeFromWhere,
    EmbeddedBroker,
    Message,
    MessageStore,
    Producer,
    PushConsumer,
    SimpleConsumer,
    StoreReader,
)
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.errors import (
    ConfigError,
    DiskError,
    MQBrokerError,
    MQClientError,
    RemotingError,
    StoreClosedError,
    StoreLockedError,
)
from gantrymq.fs.killable import KillableFileSystem
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.flags import COMPRESSED
from interop.fixed_ports import fixed_port

DELAY_LEVEL_18_MS = 2 * 3_600_000


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def send(broker: EmbeddedBroker, topic: str, *bodies: bytes, **of: object) -> None:
    with Producer(broker.namesrv) as producer:
        for body in bodies:
            producer.send(Message(topic, body, **of))  # type: ignore[arg-type]


def test_embedded_broker_serves_sent_messages(broker: EmbeddedBroker) -> None:
    send(broker, "orders", b"one", b"two", tags="paid", keys=["k"])
    found = broker.wait_for_messages("orders", 2)
    assert sorted(one.body for one in found) == [b"one", b"two"]
    assert {(one.tags, *one.keys) for one in found} == {("paid", "k")}
    assert broker.messages("nothing") == []
    assert broker.is_running


def test_embedded_broker_returns_sent_bodies(broker: EmbeddedBroker) -> None:
    send(broker, "long", b"x" * 10_000)
    assert broker.bodies("long") == [b"x" * 10_000]


def test_embedded_messages_equal_those_of_consumer(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, settings={"maxDecompressedBodySize": 20_000}) as broker:
        send(broker, "long", b"x" * 10_000)
        [message] = broker.messages("long")
        assert message.body == b"x" * 10_000
        assert message.sys_flag & COMPRESSED == 0
        assert broker.wait_for_messages("long", 1) == [message]
        send(broker, "longer", b"x" * 30_000)
        [larger] = broker.messages("longer")
        assert larger.sys_flag & COMPRESSED
        assert len(larger.body) < 1_000
        with pytest.raises(ValueError, match="more than 20000 bytes"):
            broker.bodies("longer")
        broker.kill()
        assert broker.messages("long") == [message]  # read from the files
        assert broker.messages("longer") == [larger]


def test_failed_wait_lists_present_messages(broker: EmbeddedBroker) -> None:
    send(broker, "orders", b"a body")
    with pytest.raises(AssertionError, match=r"orders has 1 messages, not 2:\n  queue \d offset 0 .*b'a body'"):
        broker.wait_for_messages("orders", 2, timeout_s=0.1)
    with pytest.raises(AssertionError, match=r"nowhere has 0 messages, not 1:\n  nothing"):
        broker.wait_for_messages("nowhere", 1, timeout_s=0)
    with pytest.raises(AssertionError, match="orders has 1 messages, not 0"):
        broker.wait_for_messages("orders", 0)


def test_created_topic_is_visible_at_once(broker: EmbeddedBroker) -> None:
    broker.create_topic("two", 2)
    with Producer(broker.namesrv) as producer:
        assert len(producer.queues("two")) == 2
        broker.create_topic("two", 3)
    with Producer(broker.namesrv) as producer:
        assert len(producer.queues("two")) == 3
    with pytest.raises(MQBrokerError):
        broker.create_topic("no/topic")


# Its lives


def test_killed_broker_keeps_acknowledged_messages(broker: EmbeddedBroker) -> None:
    addresses = broker.namesrv, broker.address
    send(broker, "T", *(b"%d" % number for number in range(50)))
    broker.kill()
    assert not broker.is_running
    assert (broker.store_path / "abort").exists()
    assert len(broker.messages("T")) == 50  # read from its files
    with pytest.raises(RemotingError, match="does not run"):
        _ = broker.namesrv
    broker.restart()
    assert (broker.namesrv, broker.address) == addresses
    send(broker, "T", b"after")
    assert sorted(broker.bodies("T")) == sorted([b"%d" % number for number in range(50)] + [b"after"])


def test_kill_writes_nothing(broker: EmbeddedBroker) -> None:
    send(broker, "T", b"one")
    broker.wait_for_messages("T", 1)
    checkpoint = broker.store_path / "checkpoint"
    before = checkpoint.read_bytes(), checkpoint.stat().st_mtime_ns
    broker.kill()
    assert (checkpoint.read_bytes(), checkpoint.stat().st_mtime_ns) == before
    broker.start()
    broker.stop()
    assert checkpoint.stat().st_mtime_ns != before[1]
    assert not (broker.store_path / "abort").exists()


def test_kill_fails_running_requests_of_clients(broker: EmbeddedBroker) -> None:
    failed = threading.Event()

    def keep_sending(producer: Producer) -> None:
        try:
            while True:
                producer.send(Message("T", b"x"), timeout_ms=2_000)
        except Exception:
            failed.set()

    with Producer(broker.namesrv) as producer:
        producer.send(Message("T", b"x"))
        sender = threading.Thread(target=keep_sending, args=(producer,))
        sender.start()
        broker.kill()
        assert failed.wait(60)
        sender.join()


def test_restart_after_clean_stop_keeps_saved_state(broker: EmbeddedBroker) -> None:
    broker.create_topic("kept", 7)
    send(broker, "kept", b"one")
    broker.restart()
    broker.restart()
    with Producer(broker.namesrv) as producer:
        assert len(producer.queues("kept")) == 7
    broker.wait_for_messages("kept", 1)


def test_close_stops_servers_and_threads() -> None:
    threads = threading.active_count()
    broker = EmbeddedBroker(namesrv_port=fixed_port())
    assert not broker.is_running
    broker.start()
    broker.start()
    host, port = broker.namesrv.split(":")
    broker.close()
    broker.close()
    assert not broker.store_path.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    assert threading.active_count() <= threads + 1  # asyncio's own pool may keep one


def consume(broker: EmbeddedBroker, topic: str, count: int) -> list[bytes]:
    """What a group gets of a topic until ``count`` messages came; closing the consumer commits how far it is."""
    got: queue.Queue[bytes] = queue.Queue()

    def listen(messages: Sequence[ReceivedMessage], context: object) -> None:
        for message in messages:
            got.put(message.body)

    with PushConsumer(
        broker.namesrv, consumer_group="G", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        consumer.subscribe(topic)
        consumer.listen(listen)
        consumer.start()
        return [got.get(timeout=60) for _ in range(count)]


def test_closed_broker_starts_again_in_new_private_directory() -> None:
    broker = EmbeddedBroker()
    for _ in range(2):
        with broker:
            broker.create_topic("T", 1)
            send(broker, "T", b"one")
            broker.wait_for_messages("T", 1)
            store = broker.store_path
            assert store.stat().st_mode & 0o777 == 0o700
        assert not store.exists()


READ_ONLY = """
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from gantrymq import EmbeddedBroker

if os.geteuid() == 0:
    os.seteuid(65534)  # root may do everything
broker = EmbeddedBroker()
store = broker.store_path
(store / "a" / "b").mkdir(parents=True)
(store / "a" / "b" / "file").touch()
with TemporaryDirectory() as foreign:
    (store / "link").symlink_to(foreign)
    for closed, mode in ((foreign, 0o755), (store / "a" / "b", 0o500), (store / "a", 0), (store, 0o500)):
        os.chmod(closed, mode)
    broker.close()
    print(store.exists(), oct(os.stat(foreign).st_mode & 0o777))
"""


def test_read_only_files_are_removed_and_targets_of_links_stay() -> None:
    ended = subprocess.run([sys.executable, "-c", READ_ONLY], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr) == ("False 0o755\n", "")


def test_committed_offsets_survive_stop_but_not_kill(broker: EmbeddedBroker) -> None:
    broker.create_topic("T", 2)
    assert broker.consumer_offsets("G", "T") == {}
    send(broker, "T", b"1", b"2", b"3")
    assert sorted(consume(broker, "T", 3)) == [b"1", b"2", b"3"]
    assert sum(broker.consumer_offsets("G", "T").values()) == 3
    broker.restart()
    assert sum(broker.consumer_offsets("G", "T").values()) == 3
    send(broker, "T", b"4")
    assert consume(broker, "T", 1) == [b"4"]
    broker.kill()  # sooner than flushConsumerOffsetInterval, five seconds
    broker.restart()
    assert sum(broker.consumer_offsets("G", "T").values()) == 3
    assert consume(broker, "T", 1) == [b"4"]


# Its settings


def test_store_of_caller_is_not_removed(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "store", settings={"flushDiskType": "SYNC_FLUSH"}) as broker:
        send(broker, "T", b"kept")
        with pytest.raises(StoreLockedError):
            MessageStore.open(tmp_path / "store")
        with pytest.raises(StoreLockedError), EmbeddedBroker(tmp_path / "store"):
            pass
    with StoreReader.open(tmp_path / "store") as reader:
        assert [one.body for one in reader.messages("T")] == [b"kept"]


def test_settings_are_rocketmqs_keys() -> None:
    with EmbeddedBroker(settings={"autoCreateTopicEnable": False, "defaultTopicQueueNums": 2}) as broker:
        with Producer(broker.namesrv) as producer, pytest.raises(Exception, match="T"):
            producer.send(Message("T", b"x"))
        assert broker.messages("T") == []
    with pytest.raises(ConfigError, match="autoCreateTopicEnabled"):
        EmbeddedBroker(settings={"autoCreateTopicEnabled": True})
    with pytest.raises(ConfigError, match="flushDiskType"):
        EmbeddedBroker(settings={"flushDiskType": "SOMETIMES"})
    with pytest.raises(ConfigError, match="gantrymq serve speaks TLS"):
        EmbeddedBroker(settings={"tls.server.mode": "enforcing"})


def test_every_effective_key_can_be_set(tmp_path: Path) -> None:
    """Also ``aclPlainFile``, which is ours alone."""
    file = tmp_path / "accounts.yml"
    file.write_text("accounts:\n- {accessKey: shopKey, secretKey: shopSecret, defaultTopicPerm: PUB}\n")
    with EmbeddedBroker(settings={"aclEnable": True, "aclPlainFile": str(file)}) as broker:
        with Producer(broker.namesrv, access_key="shopKey", secret_key="shopSecret") as producer:
            producer.send(Message("T", b"signed"))
        with Producer(broker.namesrv) as producer, pytest.raises(Exception, match="No accessKey"):
            producer.send(Message("T", b"unsigned"))
        assert broker.bodies("T") == [b"signed"]


def test_start_on_used_port_leaves_nothing() -> None:
    with socket.socket() as taken:
        port = fixed_port()
        taken.bind(("127.0.0.1", port))
        taken.listen()
        broker = EmbeddedBroker(listen_port=port)
        with pytest.raises(RemotingError, match=f"cannot listen on 127.0.0.1:{port}"):
            broker.start()
        assert not broker.is_running
    broker.start()
    assert broker.address.endswith(f":{port}")
    broker.close()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_ports_stay_reserved_until_close(end: str) -> None:
    """Else another process gets one of them before the broker is started again: listens there, or connects from it."""
    with EmbeddedBroker() as broker:
        addresses = [broker.namesrv, broker.address]
        ports = [int(one.rpartition(":")[2]) for one in addresses]
        ports.append(ports[1] - 2)  # the VIP channel's
        getattr(broker, end)()
        for port in ports:
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
        broker.start()
        assert [broker.namesrv, broker.address] == addresses
        socket.create_connection(("127.0.0.1", ports[2])).close()
    for port in ports:
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a closed connection lingers there
            other.bind(("127.0.0.1", port))


def test_restart_after_used_port_reserves_both_ports() -> None:
    port = fixed_port()
    broker = EmbeddedBroker(namesrv_port=port)
    said = f"cannot listen on 127.0.0.1:{port}"
    with socket.create_server(("127.0.0.1", port)), pytest.raises(RemotingError, match=said):
        broker.start()
    with broker:
        addresses = [broker.namesrv, broker.address]
        broker.stop()
        for address in addresses:
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", int(address.rpartition(":")[2])))
        broker.start()
        assert [broker.namesrv, broker.address] == addresses


def test_failed_with_block_ends_threads_of_broker(tmp_path: Path) -> None:
    async def awaited() -> None:
        async with AsyncEmbeddedBroker(tmp_path):
            pass

    with EmbeddedBroker(tmp_path):
        before = own_threads()
        with pytest.raises(StoreLockedError), EmbeddedBroker(tmp_path):
            pass
        with pytest.raises(StoreLockedError):
            asyncio.run(awaited())
        assert own_threads() == before


def own_threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("gantrymq-")}


def test_concurrent_starts_start_once() -> None:
    broker, failed = EmbeddedBroker(), list[BaseException]()
    before = own_threads()

    def start() -> None:
        try:
            broker.start()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failed, broker.is_running) == ([], True)
    broker.close()
    assert own_threads() == before


@pytest.mark.asyncio
async def test_start_of_cancelled_caller_is_closed() -> None:
    before = own_threads()
    broker = AsyncEmbeddedBroker()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001), broker:
            pass
    assert (broker.is_running, broker.store_path.exists()) == (False, False)
    assert own_threads() == before


# Its clock


def test_documented_clock_example_runs() -> None:
    page = (Path(__file__).parents[2] / "docs/embedded.md").read_text("utf-8")
    section = page[page.index("## The clock") : page.index("## What a kill is")]
    (code,) = re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)
    names: dict[str, Any] = {}
    exec(compile(code, "embedded.md", "exec"), names)
    names["test_an_hour_passes_at_once"]()


def test_advanced_clock_delivers_delayed_messages(broker: EmbeddedBroker) -> None:
    send(broker, "later", b"in two hours", delay_level=18)
    assert broker.messages("later") == []
    broker.clock.advance(DELAY_LEVEL_18_MS + 1_000)
    [message] = broker.wait_for_messages("later", 1)
    assert message.store_timestamp_ms - message.born_timestamp_ms >= DELAY_LEVEL_18_MS


def test_advanced_clock_delivers_timer_messages(broker: EmbeddedBroker) -> None:
    send(broker, "later", b"in a day", properties={"TIMER_DELAY_SEC": "86400"})
    send(broker, "later", b"in three days", properties={"TIMER_DELAY_SEC": "259200"})
    broker.clock.advance(86_401_000)
    [message] = broker.wait_for_messages("later", 1)
    assert message.store_timestamp_ms - message.born_timestamp_ms >= 86_400_000
    broker.restart()
    broker.clock.advance(2 * 86_400_000)
    assert sorted(one.body for one in broker.wait_for_messages("later", 2)) == [b"in a day", b"in three days"]


def test_invisible_time_ends_when_clock_is_moved(broker: EmbeddedBroker) -> None:
    send(broker, "orders", b"one")
    with SimpleConsumer(
        broker.namesrv, consumer_group="shop", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        consumer.subscribe("orders")
        [message] = consumer.receive(invisible_ms=3_600_000)
        broker.clock.advance(3_610_000)
        [again] = consumer.receive(timeout_ms=60_000)
        assert (again.body, again.reconsume_times) == (message.body, 1)
        consumer.ack(again)


@pytest.mark.parametrize(("by_ms", "error"), [(0.5, TypeError), (10**18, ValueError), (-(10**13), ValueError)])
def test_impossible_time_does_not_move_clock(broker: EmbeddedBroker, by_ms: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        broker.clock.advance(by_ms)
    send(broker, "T", b"now")
    assert broker.bodies("T") == [b"now"]


# On asyncio, and in somebody else's program


@pytest.mark.asyncio
async def test_async_broker_serves_kills_and_restarts() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("T", 1)
        await asyncio.to_thread(send, broker.blocking, "T", b"one")
        assert [one.body for one in await broker.wait_for_messages("T", 1)] == [b"one"]
        await broker.kill()
        assert await broker.bodies("T") == [b"one"]
        await broker.restart()
        assert await broker.consumer_offsets("nobody", "T") == {}
        store = broker.store_path
    assert not store.exists()


def test_log_lines_go_to_logging_and_not_to_stdout(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "skipPreOnline": True, "pullMessageThreadPoolNums": 64}
    with caplog.at_level(logging.INFO, logger="gantrymq"), EmbeddedBroker(settings=settings):
        pass
    assert capsys.readouterr().out == ""
    assert "a broker registered" in caplog.text
    warned = [line for line in caplog.messages if "no effect" in line]
    assert warned == ["event='skipPreOnline has no effect here: an acting master here only serves reads'"]


def test_host_name_in_broker_ip1_is_registered_and_messages_have_its_address() -> None:
    with EmbeddedBroker(settings={"brokerIP1": "localhost"}) as broker:
        assert broker.address.startswith("localhost:")
        send(broker, "T", b"one")
        (message,) = broker.wait_for_messages("T", 1)
        assert str(message.store_host) == f"127.0.0.1:{broker.address.rpartition(':')[2]}"


def test_unresolvable_host_name_raises_before_store_is_created(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path / "store", settings={"brokerIP1": "no.invalid"})
    with pytest.raises(ConfigError, match=r"brokerIP1='no\.invalid' is not allowed"), broker:
        pass
    assert not (tmp_path / "store" / "commitlog").exists()


def forked(program: str) -> str:
    """What a process prints that sends one message and forks; ``program`` is what its child does before it ends."""
    program = FORKING.format(program=program)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr == ""
    return ended.stdout


FORKING = """
import gc, os, signal, sys
from gantrymq import EmbeddedBroker, Message, Producer

broker = EmbeddedBroker()
broker.start()
store = broker.store_path


def send(body):
    with Producer(broker.namesrv) as producer:
        producer.send(Message("orders", body))


send(b"one")
if (child := os.fork()) == 0:
    signal.alarm(60)  # of what never ends
    {program}
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
assert broker.is_running
print(broker.bodies("orders"), (store / "lock").exists())
broker.close()
assert not store.exists()
"""


@pytest.mark.parametrize("program", ["broker.close()", "del broker; gc.collect()"])
def test_broker_copy_in_forked_process_ends_and_removes_nothing(program: str) -> None:
    assert forked(program) == "[b'one'] True\n"


def test_forked_process_reads_stored_messages() -> None:
    program = 'send(b"two"); broker.wait_for_messages("orders", 2, timeout_s=60); print("both", flush=True)'
    assert re.fullmatch(r"both\n\[b'\w+', b'\w+'\] True\n", forked(program))


# Dropped, closed, not started


def test_garbage_collected_broker_stops_removes_store_and_warns() -> None:
    def use_and_drop() -> Path:
        broker = EmbeddedBroker()
        broker.start()
        broker.create_topic("dropped")
        return broker.store_path

    with pytest.warns(ResourceWarning, match="EmbeddedBroker was dropped without close"):
        path = use_and_drop()
    deadline = time.monotonic() + 60
    while path.exists() or any(one.name == "gantrymq-embedded broker" for one in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_closed_broker_raises_and_starts_nothing() -> None:
    broker = EmbeddedBroker()
    with broker:
        broker.create_topic("orders", 1)
        with Producer(broker.namesrv) as producer:
            producer.send(Message("orders", b"one"))
    threads = set(threading.enumerate())
    for read in (broker.messages, broker.bodies):
        with pytest.raises(StoreClosedError, match="the embedded broker was closed, and its temporary store removed"):
            read("orders")
    with pytest.raises(StoreClosedError):
        broker.wait_for_messages("orders", 1)
    with pytest.raises(RemotingError, match="does not run"):
        broker.create_topic("more")
    with pytest.raises(RemotingError, match="does not run"):
        broker.consumer_offsets("group", "orders")
    broker.stop()
    broker.kill()
    assert set(threading.enumerate()) <= threads
    with broker:  # a new life, with a store of its own
        assert broker.bodies("orders") == []


def test_kept_store_is_readable_after_close_of_broker(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "store") as broker, Producer(broker.namesrv) as producer:
        producer.send(Message("orders", b"one"))
    assert broker.bodies("orders") == [b"one"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda one: one.create_topic(" "), "create_topic: topic=' ' is not allowed: a text"),
        (lambda one: one.create_topic("T", 0), "create_topic: queues=0 is not allowed: a whole number from 1"),
        (lambda one: one.create_topic("T", "4"), "create_topic: queues='4' is not allowed"),
        (lambda one: one.messages(None), "messages: topic=None is not allowed"),
        (lambda one: one.bodies(b"T"), "bodies: topic=b'T' is not allowed"),
        (lambda one: one.wait_for_messages("T", "1"), "wait_for_messages: count='1' is not allowed"),
        (lambda one: one.wait_for_messages("T", 1, timeout_s=-1), "timeout_s=-1 is not allowed: a number of seconds"),
        (lambda one: one.consumer_offsets("", "T"), "consumer_offsets: group='' is not allowed"),
    ],
)
def test_wrong_arguments_raise_clear_errors(call: Callable[[EmbeddedBroker], object], said: str) -> None:
    broker = EmbeddedBroker()
    with pytest.raises(MQClientError, match=re.escape(said)):
        call(broker)
    broker.close()


# The file system below a kill


def test_killed_file_system_refuses_changes(tmp_path: Path) -> None:
    fs = KillableFileSystem(RealFileSystem())
    file = fs.open(tmp_path / "f", writable=True, create=True)
    file.write_at(0, b"before")
    lock = fs.lock(tmp_path / "lock", b"me")
    fs.kill()
    for change in (
        lambda: file.write_at(0, b"after"),
        lambda: file.resize(0),
        lambda: file.zero(0, 1),
        lambda: file.reserve(0, 1),
        file.sync,
        lambda: fs.open(tmp_path / "g", create=True),
        lambda: fs.remove(tmp_path / "f"),
        lambda: fs.rename(tmp_path / "f", tmp_path / "h"),
        lambda: fs.make_directory(tmp_path / "d"),
        lambda: fs.remove_directory(tmp_path),
        lambda: fs.sync_directory(tmp_path),
        lambda: fs.lock(tmp_path / "other", b""),
    ):
        with pytest.raises(DiskError, match="its process was killed"):
            change()
    assert file.read_at(0, 10) == b"before"
    assert [entry.name for entry in fs.scan(tmp_path)] == ["f", "lock"]
    lock.release()
    file.close()
    RealFileSystem().lock(tmp_path / "lock", b"next").release()
