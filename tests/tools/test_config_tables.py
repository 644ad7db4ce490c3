"""What ``config/`` holds and cannot be true: one finding a file, with its path, and a start that says so."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest
from loss_cases import KnownStore
from structlog.testing import capture_logs

from gantrymq.broker.tables.persistence import ConfigPersistence, KeptTable, table_decoders
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.clock import SystemClock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.format.names import CONSUMER_OFFSET, DELAY_OFFSET, DELETED_TOPICS
from gantrymq.fs.real import RealFileSystem
from gantrymq.fs.replaced_file import MAX_BYTES
from gantrymq.tools.findings import Finding, FindingKind, Severity
from gantrymq.tools.verify import verify_store
from store_cases import GEOMETRY_KEYS, SMALL, open_store

TOPICS, GROUPS, FILTER = "topics.json", "subscriptionGroup.json", "consumerFilter.json"
VERSION = '"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000}'
HEALTHY = {
    TOPICS: f'{{{VERSION},"topicConfigTable":{{"orders":{{"topicName":"orders","readQueueNums":4,"perm":6}}}}}}',
    GROUPS: f'{{{VERSION},"subscriptionGroupTable":{{"g":{{"groupName":"g","retryMaxTimes":-1}}}}}}',
    CONSUMER_OFFSET: f'{{{VERSION},"offsetTable":{{"orders@g":{{0:3,1:0}},"%RETRY%g@g":{{0:1}}}}}}',
    DELAY_OFFSET: f'{{{VERSION},"offsetTable":{{1:3,18:0}}}}',
    FILTER: '{"filterDataByTopic":{"orders":{"topic":"orders","groupFilterData":{"g":{"expression":"a > 1"}}}}}',
    "topicQueueMapping.json": f'{{{VERSION},"topicQueueMappingInfoMap":{{"t":{{"hostedQueues":{{0:[]}}}}}}}}',
    DELETED_TOPICS: '{"deletedTopics":{"gone":{"lastOffset":0,"endOffset":99}}}',
}
WRONG = [
    (
        TOPICS,
        '{"topicConfigTable":{"pay":{"topicName":"pay","readQueueNums":-4}}}',
        "$.topicConfigTable.pay.readQueueNums",
    ),
    (TOPICS, '{"topicConfigTable":{"pay":{"topicName":"bills"}}}', '$.topicConfigTable.pay.topicName is "bills"'),
    (TOPICS, '{"topicConfigTable":[]}', "$.topicConfigTable is [], not an object"),
    (TOPICS, '{"topicConfigTable":{"a b":{"perm":"read"}}}', '$.topicConfigTable["a b"].perm'),
    (TOPICS, '{"topicConfigTable":{"a":{"perm":9223372036854775808}}}', "9223372036854775808"),
    (TOPICS, '{"topicConfigTable":{"a":{"topicName":"a"},"a":{"topicName":"a","perm":4}}}', "twice, of which the last"),
    (TOPICS, '{"topicConfigTable":{"a":{"perm":NaN}}}', "NaN is no number"),
    (TOPICS, '{"x":' * 100_000, "nested too deeply"),
    (
        GROUPS,
        '{"subscriptionGroupTable":{"g":{"retryQueueNums":-1}}}',
        "g.retryQueueNums is -1",
    ),
    (GROUPS, '{"subscriptionGroupTable":{"g":7}}', "$.subscriptionGroupTable.g is 7, not an object"),
    (CONSUMER_OFFSET, '{"offsetTable":{"orders@g":{"0":-5,"1":-6}}}', '["orders@g"]["0"] is -5, not a number from 0'),
    (CONSUMER_OFFSET, '{"offsetTable":{"orders":{"0":5}}}', "not topic@group"),
    (CONSUMER_OFFSET, '{"offsetTable":{"orders@g":{"-1":5}}}', 'has a key that is "-1"'),
    (CONSUMER_OFFSET, '{"pullOffsetTable":{"orders@g":[1]}}', "$.pullOffsetTable"),
    (DELAY_OFFSET, '{"offsetTable":[1,2]}', "$.offsetTable is [1, 2], not an object"),
    (DELAY_OFFSET, '{"offsetTable":{"1":"soon"}}', '$.offsetTable["1"] is "soon"'),
    (DELAY_OFFSET, '{"offsetTable":{"one":1}}', 'has a key that is "one"'),
    (DELAY_OFFSET, '{"dataVersion":[]}', "$.dataVersion is [], not an object"),
    (
        FILTER,
        '{"filterDataByTopic":{"orders":{"groupFilterData":[]}}}',
        "orders.groupFilterData is []",
    ),
    (FILTER, '{"filterDataByTopic":7}', "$.filterDataByTopic is 7"),
    ("topicQueueMapping.json", '{"topicQueueMappingInfoMap":{"t":{"hostedQueues":{"x":[]}}}}', 'a key that is "x"'),
    (DELETED_TOPICS, '{"deletedTopics":{"gone":{"lastOffset":-1}}}', "$.deletedTopics.gone.lastOffset is -1"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> KnownStore:
    return KnownStore.make(tmp_path_factory.mktemp("whole") / "store")


@pytest.fixture
def store(whole: KnownStore, tmp_path: Path) -> Path:
    path = Path(shutil.copytree(whole.path, tmp_path / "store"))
    shutil.rmtree(path / "config", ignore_errors=True)
    (path / "config").mkdir()
    return path


def found(store: Path) -> list[Finding]:
    findings = verify_store(store, SMALL, given=GEOMETRY_KEYS, decoders=table_decoders())
    return [one for one in findings if one.level is Severity.DAMAGE]


def test_tables_as_brokers_write_them_have_no_finding(store: Path) -> None:
    for name, text in HEALTHY.items():
        (store / "config" / name).write_text(text)
        (store / "config" / f"{name}.bak").write_text(text)
    assert found(store) == []


@pytest.mark.parametrize("ending", ["", ".bak"])
@pytest.mark.parametrize(("name", "text", "told"), WRONG)
def test_impossible_value_is_one_finding_with_its_path(
    name: str, text: str, told: str, ending: str, store: Path
) -> None:
    (store / "config" / (name + ending)).write_text(text)
    (one,) = found(store)
    assert (one.kind, str(one.path)) == (FindingKind.CONFIG_JSON, f"config/{name}{ending}")
    assert told in one.text
    assert one.text.endswith("correct it, or move it away")


def test_config_file_of_gigabyte_is_not_read(store: Path) -> None:
    path = store / "config" / TOPICS
    path.touch()
    os.truncate(path, MAX_BYTES + 1)
    (one,) = found(store)
    assert f"is {MAX_BYTES + 1} bytes long" in one.text


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, text, _ in WRONG if name in (DELAY_OFFSET, DELETED_TOPICS)]
)
@pytest.mark.parametrize("has_backup", [True, False])
def test_start_ignores_unusable_values_and_logs_them(
    name: str, text: str, has_backup: bool, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (store / "config" / name).write_text(text)
    if has_backup:
        (store / "config" / f"{name}.bak").write_text(HEALTHY[name])
    with caplog.at_level(logging.WARNING):
        open_store(RealFileSystem(), store, housekeeping=True).close()
    assert any(name in record.getMessage() for record in caplog.records)


def test_tables_of_broker_are_accepted_and_impossible_values_are_reported(store: Path) -> None:

    (store / "config" / TOPICS).write_text('{"topicConfigTable":{"pay":{"topicName":"pay","readQueueNums":-4}}}')
    table = TopicConfigManager(LiveConfig(), SystemClock())
    kept = ConfigPersistence(RealFileSystem(), store / "config", [KeptTable(TOPICS, table)])
    with capture_logs() as lines:
        kept.load()
    kept.close()
    assert "pay" in table
    (told,) = (line["first"] for line in lines if line["log_level"] == "warning")
    assert told.startswith("$.topicConfigTable.pay.readQueueNums is -4, not a number from 0 to ")
