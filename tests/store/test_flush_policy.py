"""The decisions about durability, setting by setting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gantrymq.config.settings import FlushDiskType, MessageStoreConfig
from gantrymq.store.flush_policy import FlushPolicy, Pace

ASYNC = MessageStoreConfig()
SYNC = replace(ASYNC, flush_disk_type=FlushDiskType.SYNC_FLUSH)


@pytest.mark.parametrize(
    ("config", "waits", "wakes_waiting", "wakes_other", "lends"),
    [
        (ASYNC, False, False, False, False),
        (replace(ASYNC, flush_commit_log_timed=False), False, True, True, False),
        (replace(ASYNC, transient_store_pool_enable=True), False, False, False, True),
        (SYNC, True, False, True, False),
        (replace(SYNC, flush_commit_log_timed=False), True, True, True, False),
        (replace(SYNC, transient_store_pool_enable=True), True, False, True, False),
    ],
)
def test_flush_policy_decides_waits_and_wakeups_of_put(
    config: MessageStoreConfig, waits: bool, wakes_waiting: bool, wakes_other: bool, lends: bool
) -> None:
    policy = FlushPolicy(config)
    assert policy.waits_for_disk() is policy.waits_for_disk(wait_store_msg_ok=True) is waits
    assert not policy.waits_for_disk(wait_store_msg_ok=False)
    assert policy.wakes_flush(waits=True) is wakes_waiting
    assert policy.wakes_flush(waits=False) is wakes_other
    assert policy.lends_buffers is lends


def test_flush_intervals_follow_settings_but_flush_type_does_not() -> None:
    policy = FlushPolicy(SYNC)
    assert policy.log_flush == Pace(500, 4, 10_000)
    assert policy.log_commit == Pace(200, 4, 200)
    assert policy.queue_flush == Pace(1_000, 2, 60_000)
    policy.config = replace(
        ASYNC, flush_interval_commit_log_ms=1, commit_commit_log_least_pages=0, sync_flush_timeout_ms=20
    )
    assert policy.log_flush.interval_ms == 1
    assert policy.log_commit.least_pages == 0
    assert policy.disk_timeout_s == 0.02
    assert policy.is_sync
