"""Access control of gRPC: the accounts of plain_acl.yml, by signature and by permission."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from sdk_round_trip import send_and_receive

from gantrymq import Message as Remote
from gantrymq import Producer
from gantrymq.embedded.broker import EmbeddedBroker
from gantrymq.grpc.protocol import messages
from gantrymq.grpc.protocol.codes import Code
from grpc_client import GrpcClient, message, signed

ACL = """
accounts:
  - {accessKey: adminKey, secretKey: adminSecret, admin: true}
  - accessKey: shopKey
    secretKey: shopSecret
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [orders=PUB|SUB]
    groupPerms: [billing=SUB]
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    accounts = Path(tmp_path_factory.mktemp("acl"), "plain_acl.yml")
    accounts.write_text(ACL)
    with EmbeddedBroker(settings={"aclEnable": True, "aclPlainFile": str(accounts)}, grpc=True) as broker:
        with Producer(broker.namesrv, access_key="adminKey", secret_key="adminSecret") as admin:
            for topic in ("orders", "secrets"):
                admin.send(Remote(topic, b"the first creates the topic"))
        yield broker


def test_signature_of_sdk_is_verified(guarded: EmbeddedBroker) -> None:
    send_and_receive(guarded.grpc, "shopKey", "shopSecret")


@pytest.mark.parametrize(
    ("access_key", "secret", "text"),
    [
        ("shopKey", "wrong", "Check signature failed for accessKey=shopKey"),
        ("nobody", "shopSecret", "No acl config for nobody"),
    ],
)
def test_wrong_signature_is_unauthorized(guarded: EmbeddedBroker, access_key: str, secret: str, text: str) -> None:
    with signed(guarded.grpc, access_key, secret) as client:
        refused = client.send(message("orders")).status
        assert (refused.code, refused.message) == (Code.UNAUTHORIZED, text)
        assert client.receive("billing", "orders")[:2] == (Code.UNAUTHORIZED, text)
        with pytest.raises(grpc.RpcError):
            client.be_producer("orders")


def test_account_is_limited_to_its_permissions(guarded: EmbeddedBroker) -> None:
    with signed(guarded.grpc, "shopKey", "shopSecret") as client:
        assert client.send(message("orders")).status.code == Code.OK
        assert client.send(message("secrets")).status.code == Code.FORBIDDEN
        route = messages.QueryRouteRequest()
        route.topic.name = "secrets"
        assert client.call("QueryRoute", route).status.code == Code.FORBIDDEN
        client.be_consumer("billing", "orders")
        assert client.receive("billing", "secrets")[0] == Code.FORBIDDEN
        assert client.receive("other", "orders")[0] == Code.FORBIDDEN
    with GrpcClient(guarded.grpc) as unsigned:
        assert unsigned.send(message("orders")).status.code == Code.UNAUTHORIZED
        with pytest.raises(grpc.RpcError):
            unsigned.be_consumer("billing", "orders")


def test_client_id_belongs_to_account_that_used_it_first(guarded: EmbeddedBroker) -> None:
    with (
        signed(guarded.grpc, "shopKey", "shopSecret") as shop,
        signed(guarded.grpc, "adminKey", "adminSecret") as other,
    ):
        shop.be_producer("orders")
        other._metadata[0] = ("x-mq-client-id", shop.client_id)
        assert other.call("NotifyClientTermination", messages.NotifyClientTerminationRequest()).status.code == (
            Code.UNAUTHORIZED
        )
        settled = messages.AckMessageRequest()  # would end the renewal of the other client's message
        settled.group.name, settled.topic.name = "billing", "orders"
        settled.entries.add(message_id="m", receipt_handle="0 9000000000000 60000 0 0 broker-a 0 0 0")
        assert other.call("AckMessage", settled).status.code == Code.UNAUTHORIZED
