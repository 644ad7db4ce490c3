"""What a proxy passes on, addresses that are not 127.0.0.1, and connections of users that were deleted."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable

import pytest
from broker_cases import TIMEOUT_MS
from test_user_access import ALICE, NO, OK, ROOT, Guarded, allow, guarded, start_guarded  # noqa: F401

from gantrymq.remoting.acl import SessionCredentials
from gantrymq.remoting.bodies.auth import AccessInfo, CheckAccessRequestBody
from gantrymq.remoting.bodies.client import HeartbeatData, ProducerData
from gantrymq.remoting.codes import OwnRequestCode, RequestCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.forwarded import CallerProof
from gantrymq.remoting.transport.client import RemotingClient
from source_address import relay_from

pytestmark = pytest.mark.asyncio
DATE = "20261130T060000Z"
ONLY_SUPER = "only a super user passes on requests of others"
FROM = "User:alice has no permission to access Topic:T from {}, no matched policies."


def proof(user: SessionCredentials, ip: str = "10.1.2.3", password: str = "") -> CallerProof:
    digest = hmac.digest((password or user.secret_key).encode(), DATE.encode(), "sha1")
    return CallerProof(user.access_key, DATE, digest, ip)


async def forwarded(
    guarded: Guarded,  # noqa: F811
    caller: CallerProof,
    *,
    by: SessionCredentials = ROOT,
    code: int = OwnRequestCode.CHECK_ACCESS,
    change: Callable[[RemotingCommand], None] = lambda request: None,
) -> tuple[int, str | None]:
    body = CheckAccessRequestBody(accesses=[AccessInfo(resource="Topic:T", actions=["Pub"])]).encode()
    request = RemotingCommand(code, ext_fields={"topic": "T"}, body=body)
    caller.forward(request, by)
    change(request)
    answer = await guarded.case.client.invoke(guarded.case.server.address, request, TIMEOUT_MS)
    return answer.code, answer.remark


async def test_forwarded_request_is_decided_for_caller_and_its_address(guarded: Guarded) -> None:  # noqa: F811
    await guarded.create("alice", allow("Topic:T", "Pub", sourceIps=["10.0.0.0/8"]))
    assert (await forwarded(guarded, proof(ALICE)))[0] == OK
    assert await forwarded(guarded, proof(ALICE, "127.0.0.1")) == (NO, FROM.format("127.0.0.1"))
    assert await forwarded(guarded, proof(ALICE, password="guess")) == (NO, "check signature failed.")
    assert await forwarded(guarded, proof(SessionCredentials("eve", "pw"))) == (NO, "User:eve is not found.")
    assert await forwarded(guarded, proof(SessionCredentials("", "pw"))) == (NO, "username cannot be null.")


async def test_request_forwarded_by_others_than_super_users_is_refused(guarded: Guarded) -> None:  # noqa: F811
    await guarded.create("alice")
    for by in (ALICE, SessionCredentials("root", "guess"), SessionCredentials("nobody", "pw")):
        assert await forwarded(guarded, proof(ROOT), by=by) == (NO, ONLY_SUPER)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("AccessKey", "root"), ("CallerAddress", "10.9.9.9"), ("CallerSignature", "00"), ("topic", "U"),
        ("ProxySignature", "00"), ("CallerDateTime", "20261130T060001Z"), ("more", "1"),
    ],
)  # fmt: skip
async def test_altered_forwarded_request_is_refused(guarded: Guarded, name: str, text: str) -> None:  # noqa: F811
    await guarded.create("alice", allow("Topic:T", "Pub"))

    def alter(request: RemotingCommand) -> None:
        request.ext_fields[name] = text

    assert await forwarded(guarded, proof(ALICE), change=alter) == (NO, ONLY_SUPER)


async def test_forwarded_request_with_another_code_is_refused(guarded: Guarded) -> None:  # noqa: F811
    def alter(request: RemotingCommand) -> None:
        request.code = RequestCode.DELETE_TOPIC_IN_BROKER

    assert await forwarded(guarded, proof(ROOT), change=alter) == (NO, ONLY_SUPER)


async def test_forwarded_super_user_creates_no_super_user(guarded: Guarded) -> None:  # noqa: F811
    def ask_for_user(request: RemotingCommand) -> None:
        request.body = b'{"username":"eve","password":"evepw","userType":"Super"}'
        request.ext_fields["username"] = "eve"
        proof(ROOT).forward(request, ROOT)

    answer = await forwarded(guarded, proof(ROOT), code=RequestCode.AUTH_CREATE_USER, change=ask_for_user)
    assert answer == (1, "The super user can only be create by super user")


async def test_policy_counts_address_of_connection(guarded: Guarded) -> None:  # noqa: F811
    assert (await guarded.send("T", ROOT))[0] == OK
    await guarded.create("alice", allow("Topic:T", "Get", sourceIps=["127.0.0.2"]))
    address = guarded.case.server.address
    with relay_from("127.0.0.2", address) as relay:
        client = RemotingClient()
        for asked, code in ((address, NO), (relay, OK)):
            request = RemotingCommand(RequestCode.GET_TOPIC_CONFIG, ext_fields={"topic": "T"})
            ALICE.sign(request)
            answer = await client.invoke(asked, request, TIMEOUT_MS)
            assert answer.code == code, answer.remark
        await client.close()


@pytest.mark.parametrize("change", ["delete", "disable", "password"])
async def test_connection_of_member_is_closed_after_change_of_its_user(
    guarded: Guarded,  # noqa: F811
    change: str,
) -> None:
    """A broker sends messages of its own to members of groups: it asks about transactions, for example."""
    await guarded.create("alice")
    await guarded.create("bob")
    beat = HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name="P")]).encode()
    client, other = RemotingClient(), RemotingClient()
    address = guarded.case.server.address
    for of, user in ((client, ALICE), (other, SessionCredentials("bob", "bobpw"))):
        request = RemotingCommand(RequestCode.HEART_BEAT, body=beat)
        user.sign(request)
        assert (await of.invoke(address, request, TIMEOUT_MS)).code == OK
    channel, kept = await client.channel(address), await other.channel(address)
    if change == "delete":
        assert (await guarded.ask(3003, username="alice"))[0] == OK
    else:
        body = {"userStatus": "disable"} if change == "disable" else {"password": "other"}
        assert (await guarded.ask(3002, body=body, username="alice"))[0] == OK
    async with asyncio.timeout(30):
        while not channel.is_closed:
            await asyncio.sleep(0.005)
    assert not kept.is_closed
    await client.close()
    await other.close()
