"""Invalid requests: damaged bodies, and fields that are missing, of another type or too long."""

from __future__ import annotations

import random

import pytest
from namesrv_cases import NamesrvCase, registration, topics
from structlog.testing import capture_logs

from gantrymq.remoting.bodies.registration import encode_compressed
from gantrymq.remoting.bodies.topic import RegisterBrokerBody
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand

REQUESTS = 400
SAID = RegisterBrokerBody(topic_config_serialize_wrapper=topics("T", "A"))
BODIES = [
    *(
        SAID.encode(),
        encode_compressed(SAID),
        topics("T").data_version.encode(),
        b'{"queueDatas":[{"brokerName":"b"}]}',
    ),
    *(b"", b"{}", b"[]", b"null", b"{0:1}", b"key=value\n", b"\\u12"),
]
TEXTS = [
    "",
    "b",
    "C",
    "10.0.0.1:1",
    "0",
    "-1",
    str(1 << 63),
    "9" * 20,
    "true",
    "null",
    "\ud800",
    "x" * 3000,
    "../x",
    "T",
]
FIELDS = (
    "brokerName brokerAddr clusterName haServerAddr brokerId heartbeatTimeoutMillis enableActingMaster compressed "
    "bodyCrc32 namespace key value topic cluster acceptStandardJsonOnly __ZONE_NAME __ZONE_MODE"
).split()


def request(rng: random.Random, codes: list[int]) -> RemotingCommand:
    body = bytearray(rng.choice(BODIES))
    for _ in range(rng.choice([0, 0, 1, 3]) if body else 0):
        body[rng.randrange(len(body))] = rng.randrange(256)
    fields = {name: rng.choice(TEXTS) for name in FIELDS if rng.random() < 0.8}
    if rng.random() < 0.5:
        fields |= {"brokerId": str(rng.randint(-1, 3)), "bodyCrc32": "0", "compressed": rng.choice(["true", "false"])}
    code = rng.choice(codes) if rng.random() < 0.6 else RequestCode.REGISTER_BROKER
    return RemotingCommand(code, body=bytes(body), ext_fields=fields, version=rng.choice([0, 36, 37, 401, 513]))


@pytest.mark.asyncio
async def test_arbitrary_request_is_answered_and_server_survives(namesrv: NamesrvCase, rng: random.Random) -> None:
    codes = sorted(namesrv.server._dispatcher._processors)
    assert len(codes) == 23
    with capture_logs() as lines:
        for _ in range(REQUESTS):
            answer = await namesrv.client.invoke(namesrv.server.address, request(rng, codes), 60_000)
            assert answer.is_response
    assert [line for line in lines if line["log_level"] == "error"] == []
    await namesrv.register(registration(name="sound", cluster="Sound"), topics("Fine", "Too"))
    assert (await namesrv.route("Fine")).code == ResponseCode.SUCCESS
    namesrv.server.scan_not_active_broker()
