"""Every instrument of a broker can be measured: the names of its labels fit, before a scrape asks for them."""

from __future__ import annotations

from gantrymq.broker.metrics import catalog
from gantrymq.broker.metrics.meter import ReviveKind
from gantrymq.broker.metrics.recorder import RecordingMeter
from gantrymq.clock import ManualClock
from gantrymq.format.pop_checkpoint import PopKey
from gantrymq.metrics.instruments import Counter, Histogram
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.store.put_result import PutMessageResult


def measured() -> RecordingMeter:
    """A meter after one call of each kind."""
    meter = RecordingMeter(ManualClock(0), lambda topic: False, lambda group: True, 100)
    request = RemotingCommand.request(RequestCode.HEART_BEAT)
    meter.received([request])
    meter.answered(request, ResponseCode.SUCCESS, is_sent=True)
    meter.stored(PutMessageResult(PutMessageStatus.PUT_OK, "T", 0, size_bytes=100), "")
    meter.got("G", "T", 1, 100)
    meter.got("G", "T", 1, 100, is_retry=True)
    meter.sent_to_dlq("G", "T")
    meter.committed("T", 1)
    meter.rolled_back("T")
    key = PopKey("T", "G", 0, 0, 0, "broker-a")
    meter.revive_record_put(key, ReviveKind.ACK, PutMessageStatus.PUT_OK)
    meter.revive_record_read(key, ReviveKind.ACK, 0)
    meter.revived(key, PutMessageStatus.PUT_OK)
    meter.buffer_scanned(1)
    meter.topics_updated(1, is_done=True, is_system=False)
    meter.groups_updated(1, is_done=True)
    meter.store.delivered("T", 100)
    meter.store.timer_enqueued("T", 5)
    meter.store.timer_dequeued("T")
    return meter


def test_each_instrument_has_series_after_one_call_of_each_kind() -> None:
    instruments: list[Counter | Histogram] = measured().instruments()
    assert [one.metric.name for one in instruments if not list(one.points())] == []


def test_series_with_labels_in_differing_orders_keep_their_values() -> None:
    by_name = {one.metric.name: one for one in measured().instruments()}
    out, dlq = by_name["rocketmq_messages_out_total"], by_name["rocketmq_send_to_dlq_messages_total"]
    for instrument in (out, dlq):
        for point in instrument.points():
            labels = dict(zip(instrument.metric.labels, point.labels, strict=True))
            if labels["consumer_group"] == "G":
                assert labels["topic"] == "T"


def test_cached_series_differ_in_every_label_of_calls() -> None:
    meter = RecordingMeter(ManualClock(0), lambda topic: topic == "S", lambda group: True, 100)
    for topic in ("T", "S"):
        for properties in ("", "DELAY\x011\x02"):
            meter.stored(PutMessageResult(PutMessageStatus.PUT_OK, topic, 0, size_bytes=1), properties)
        for group in ("G", "CID_SYS_RMQ_TRANS"):
            for is_retry in (None, True, False):
                meter.got(group, topic, 1, 1, is_retry=is_retry)
    for code in (RequestCode.HEART_BEAT, RequestCode.PULL_MESSAGE):
        for answer in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR):
            for is_suspended in (False, True):
                for is_sent in (False, True):
                    request = RemotingCommand.request(code)
                    request.is_suspended = is_suspended
                    meter.received([request])
                    meter.answered(request, answer, is_sent=is_sent)
    counts = {one.metric: len(list(one.points())) for one in meter.instruments()}
    assert counts[catalog.MESSAGES_IN] == counts[catalog.THROUGHPUT_IN] == counts[catalog.MESSAGE_SIZE] == 2 * 2
    assert counts[catalog.MESSAGES_OUT] == counts[catalog.THROUGHPUT_OUT] == 2 * 2 * 3
    assert counts[catalog.RPC_LATENCY] == 2 * 2 * 2 * 2
