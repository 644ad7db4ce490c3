"""Users and policies over gRPC at a broker: signatures, the permissions of each call, and changes at once."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from sdk_round_trip import send_and_receive
from test_access_control import signed

from gantrymq import AdminClient, EmbeddedBroker
from gantrymq.client.settings import ClientConfig
from gantrymq.grpc.protocol import messages
from gantrymq.grpc.protocol.codes import Code
from grpc_client import GrpcClient, message

USERS = {
    "root": "rootpw",
    "shop": {
        "password": "shoppw",
        "policies": [
            {"resource": "Topic:orders", "actions": ["Pub", "Sub"], "decision": "Allow"},
            {"resource": "Group:billing", "actions": ["Sub"], "decision": "Allow"},
        ],
    },
    "gone": {"password": "gonepw", "userStatus": "disable"},
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(users=USERS, grpc=True) as broker:
        for topic in ("orders", "secrets"):
            broker.create_topic(topic)
        yield broker


def admin_of(broker: EmbeddedBroker) -> AdminClient:
    return AdminClient(ClientConfig(broker.namesrv, access_key="root", secret_key="rootpw"))


def test_user_sends_and_receives_with_sdk(guarded: EmbeddedBroker) -> None:
    send_and_receive(guarded.grpc, "shop", "shoppw")


@pytest.mark.parametrize(
    ("name", "password", "text"),
    [
        ("shop", "wrong", "check signature failed."),
        ("nobody", "pw", "User:nobody is not found."),
        ("gone", "gonepw", "User:gone is disabled."),
    ],
)
def test_call_without_valid_signature_is_unauthorized(
    guarded: EmbeddedBroker, name: str, password: str, text: str
) -> None:
    with signed(guarded.grpc, name, password) as client:
        refused = client.send(message("orders")).status
        assert (refused.code, refused.message) == (Code.UNAUTHORIZED, text)
        assert client.receive("billing", "orders")[:2] == (Code.UNAUTHORIZED, text)
        with pytest.raises(grpc.RpcError):
            client.be_producer("orders")


def test_unsigned_call_is_unauthorized(guarded: EmbeddedBroker) -> None:
    with GrpcClient(guarded.grpc) as client:
        refused = client.send(message("orders")).status
        assert (refused.code, refused.message) == (Code.UNAUTHORIZED, "username cannot be null.")


def test_call_without_permission_is_unauthorized(guarded: EmbeddedBroker) -> None:
    text = "User:shop has no permission to access {} from 127.0.0.1, no matched policies."
    with signed(guarded.grpc, "shop", "shoppw") as client:
        assert client.send(message("orders")).status.code == Code.OK
        refused = client.send(message("secrets")).status
        assert (refused.code, refused.message) == (Code.UNAUTHORIZED, text.format("Topic:secrets"))
        route = messages.QueryRouteRequest()
        route.topic.name = "secrets"
        assert client.call("QueryRoute", route).status.code == Code.UNAUTHORIZED
        route.topic.name = "orders"
        assert client.call("QueryRoute", route).status.code == Code.OK
        with pytest.raises(grpc.RpcError, match="Topic:secrets"):
            client.be_producer("secrets")
    with signed(guarded.grpc, "shop", "shoppw") as client:
        assignment = messages.QueryAssignmentRequest()
        assignment.topic.name, assignment.group.name = "orders", "other"
        assert client.call("QueryAssignment", assignment).status.message == text.format("Group:other")
        client.be_consumer("billing", "orders")
        assert client.receive("billing", "secrets")[:2] == (Code.UNAUTHORIZED, text.format("Topic:secrets"))
        assert client.receive("other", "orders")[:2] == (Code.UNAUTHORIZED, text.format("Group:other"))


def test_deleted_user_is_refused_at_next_call(guarded: EmbeddedBroker) -> None:
    with admin_of(guarded) as admin, signed(guarded.grpc, "brief", "briefpw") as client:
        admin.create_user(guarded.address, "brief", "briefpw", "Super")
        assert client.send(message("secrets")).status.code == Code.OK
        admin.update_user(guarded.address, "brief", user_status="disable")
        assert client.send(message("secrets")).status.message == "User:brief is disabled."
        admin.update_user(guarded.address, "brief", user_status="enable", user_type="Normal")
        assert "no permission" in client.send(message("secrets")).status.message
        admin.delete_user(guarded.address, "brief")
        refused = client.send(message("secrets")).status
        assert (refused.code, refused.message) == (Code.UNAUTHORIZED, "User:brief is not found.")
