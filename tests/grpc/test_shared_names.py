"""Keys and properties that the broker and its gRPC server share: both treat them alike."""

from __future__ import annotations

from dataclasses import fields

from gantrymq.broker.appends.send_properties import ACTED_ON
from gantrymq.config.broker_settings import BrokerConfig
from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.grpc.protocol.convert import RESERVED
from gantrymq.model.message import PROPERTY_INNER_NUM


def test_property_with_effect_is_not_a_user_property() -> None:
    assert {PROPERTY_INNER_NUM} == ACTED_ON - RESERVED, "a send with INNER_NUM is refused, so no reader sees it"


def test_key_of_broker_and_grpc_is_start_only_in_both_or_neither() -> None:
    keys = [{one.metadata["key"]: one.metadata["at_start"] for one in fields(of)} for of in (BrokerConfig, GrpcConfig)]
    shared = keys[0].keys() & keys[1].keys()
    assert "channelExpiredTimeout" in shared
    assert [name for name in sorted(shared) if keys[0][name] != keys[1][name]] == []
