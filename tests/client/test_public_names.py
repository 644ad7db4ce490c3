"""What a user imports, completes and catches: the public names, the keywords of clients, the errors."""

import ast
import dataclasses
import inspect
import pickle
import re
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

import gantrymq
from gantrymq import errors
from gantrymq.client.consumer.settings import (
    ConsumerConfig,
    ConsumerSettings,
    GroupConfig,
    GroupSettings,
    LitePullConsumerConfig,
    LitePullConsumerSettings,
    PushConsumerConfig,
    PushConsumerSettings,
    SimpleConsumerConfig,
    SimpleConsumerSettings,
)
from gantrymq.client.producer.settings import ProducerConfig, ProducerSettings
from gantrymq.client.settings import ClientConfig, ClientSettings

ROOT = Path(__file__).parents[2]
CONFIGS = {
    ClientSettings: ClientConfig,
    ProducerSettings: ProducerConfig,
    ConsumerSettings: ConsumerConfig,
    PushConsumerSettings: PushConsumerConfig,
    LitePullConsumerSettings: LitePullConsumerConfig,
    GroupSettings: GroupConfig,
    SimpleConsumerSettings: SimpleConsumerConfig,
}


def test_public_names_are_in_dir_importable_and_typed() -> None:
    source = Path(gantrymq.__file__).with_suffix(".pyi").read_text()
    typed = {
        (f"{one.module}", name.name)
        for one in ast.walk(ast.parse(source))
        if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("gantrymq.")
        for name in one.names
    }
    assert {name for _, name in typed} - set(gantrymq._EXTRA_OF) | {"__version__"} == set(gantrymq.__all__)
    assert {name for _, name in typed} <= set(dir(gantrymq))
    for module, name in typed:
        assert gantrymq._HOME[name] == module
        assert getattr(gantrymq, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Prodcer'"):
        _ = gantrymq.Prodcer  # type: ignore[attr-defined]


WITHOUT_EXTRAS = """
import sys
sys.modules["pyarrow"] = sys.modules["pyspark"] = None  # as if they were not installed
import gantrymq
from gantrymq import *
for name in ("export_store", "RocketMQDataSource", "rebuild_on_spark"):
    try:
        getattr(gantrymq, name)
    except ImportError as error:
        print(error)
"""
CLIENTS = """
import sys
from gantrymq import AdminClient, AsyncPushConsumer, LitePullConsumer, Message, Producer, PullClient, decode_records
from gantrymq import AsyncTransactionProducer, SendMessageHook, TransactionProducer, create_reply_message, decode_traces
Producer("127.0.0.1:9", trace=True).close()
print([name for name in sys.modules if name.partition(".")[0] == "numpy" or name.startswith("gantrymq.kernels")])
"""


def output_of(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_public_name_with_missing_extra_names_extra() -> None:
    found = output_of(WITHOUT_EXTRAS).splitlines()
    assert [re.sub(r" needs [\w.]+:", " needs it:", line) for line in found] == [
        "gantrymq.export_store needs it: pip install 'gantrymq[arrow]'",
        "gantrymq.RocketMQDataSource needs it: pip install 'gantrymq[spark]'",
        "gantrymq.rebuild_on_spark needs it: pip install 'gantrymq[spark]'",
    ]


def test_clients_load_neither_numpy_nor_kernels() -> None:
    assert output_of(CLIENTS) == "[]\n"


def test_every_error_is_public() -> None:
    kinds = {name for name, one in vars(errors).items() if inspect.isclass(one) and one.__module__ == errors.__name__}
    assert kinds <= set(gantrymq.__all__)


def test_clients_settings_and_results_are_public_names() -> None:
    wanted = (
        "AsyncProducer AsyncPushConsumer AsyncLitePullConsumer AsyncEmbeddedBroker ClientConfig ProducerConfig "
        "PushConsumerConfig LitePullConsumerConfig CompressionType SendResult SendStatus ReceivedMessage MessageQueue "
        "AsyncSimpleConsumer SimpleConsumerConfig "
        "PullResult ConsumeConcurrentlyContext ConsumeOrderlyContext PutMessageStatus GetMessageStatus"
    )
    assert set(wanted.split()) <= set(gantrymq.__all__)


@pytest.mark.parametrize("settings", CONFIGS)
def test_client_keywords_have_types_of_settings(settings: Any) -> None:
    """So that a type checker finds one that there is not: `Producer(name_servers, producer_grop="x")`."""
    given, config = typing.get_type_hints(settings), typing.get_type_hints(CONFIGS[settings])
    names = [one.name for one in dataclasses.fields(CONFIGS[settings]) if one.name != "name_servers"]
    assert sorted(given) == sorted(names)
    for name in names:
        assert config[name] == given[name] or config[name] in typing.get_args(given[name])


@pytest.mark.parametrize(
    "client",
    [
        "AdminClient", "AsyncLitePullConsumer", "AsyncProducer", "AsyncPushConsumer", "AsyncSimpleConsumer",
        "LitePullConsumer", "Producer", "PullClient", "PushConsumer", "SimpleConsumer",
    ],
)  # fmt: skip
def test_every_client_takes_typed_keywords(client: str) -> None:
    kind = getattr(gantrymq, client)
    parameter = inspect.signature(kind.__init__).parameters["settings"]
    assert parameter.annotation.startswith("Unpack[")
    with pytest.raises(TypeError, match="has no setting 'request_timeot_ms'; did you mean 'request_timeout_ms'"):
        kind("127.0.0.1:9876", request_timeot_ms=1)


def test_timeout_and_connection_errors_are_builtin_errors_too() -> None:
    late = errors.RemotingTimeoutError("127.0.0.1:9876", 3000)
    gone = errors.RemotingConnectError("127.0.0.1:9876", "cannot connect")
    assert isinstance(late, TimeoutError)
    assert isinstance(gone, ConnectionError)
    assert (str(late), str(gone)) == (
        "127.0.0.1:9876: no answer within 3000 ms",
        "127.0.0.1:9876: cannot connect",
    )


@pytest.mark.parametrize(
    "error",
    [
        errors.RemotingTimeoutError("a:1", 3000),
        errors.RemotingConnectError("a:1", "gone"),
        errors.MQBrokerError("a:1", 17, "TOPIC_NOT_EXIST", "none"),
        errors.ConfigError("key", 1, "2"),
        errors.DiskFullError("path", 7),
    ],
)
def test_errors_can_be_pickled(error: errors.GantrymqError) -> None:
    other = pickle.loads(pickle.dumps(error))
    assert (type(other), str(other), other.__dict__) == (type(error), str(error), error.__dict__)


SNIPPET = """
from gantrymq import AsyncProducer, Message, Producer, PushConsumer

Producer("a:1", producer_grop="x")
Producer("a:1", send_msg_timeout_ms="x")
Message("t", "x")
PushConsumer("a:1", consumer_group="x", message_model="BROADCASTING")
AsyncProducer("a:1", producer_group="x").prepare(Message("t", bytearray(b"x")))
Message("t", memoryview(b"x"), keys=["k"])
"""


@pytest.mark.slow
def test_mypy_reports_only_misspelt_names(tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(SNIPPET)
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(tmp_path / "snippet.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [int(line.split(":")[1]) for line in found] == [4, 5, 6]
