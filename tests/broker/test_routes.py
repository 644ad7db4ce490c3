"""The table of request codes: rows of all processors, none twice, each with a permission."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import cast

import pytest
from broker_cases import StartBroker

from gantrymq.broker import processors
from gantrymq.broker.acl.permissions import CHANGES_CLUSTER, Permission
from gantrymq.broker.processors import table
from gantrymq.broker.processors.route import Route
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel


def answer(channel: Channel, request: RemotingCommand) -> RemotingCommand:
    return request.response(ResponseCode.SUCCESS)


def test_merge_of_code_served_twice_is_refused() -> None:
    rows = {RequestCode.PEEK_MESSAGE: Route(answer, CHANGES_CLUSTER, after_dispatch=False)}
    assert set(
        table.merge([rows, {RequestCode.POP_MESSAGE: Route(answer, CHANGES_CLUSTER, after_dispatch=False)}])
    ) == {
        RequestCode.PEEK_MESSAGE,
        RequestCode.POP_MESSAGE,
    }
    with pytest.raises(ValueError, match=f"request code {int(RequestCode.PEEK_MESSAGE)} is served by two processors"):
        table.merge([rows, rows])


def test_route_without_permission_cannot_be_constructed() -> None:
    with pytest.raises(TypeError, match="permission"):
        Route(answer, after_dispatch=False)  # type: ignore[call-arg]


def test_route_without_after_dispatch_cannot_be_constructed() -> None:
    with pytest.raises(TypeError, match="after_dispatch"):
        Route(answer, CHANGES_CLUSTER)  # type: ignore[call-arg]


def test_routes_of_every_processor_file_are_merged() -> None:
    names = [info.name for info in pkgutil.iter_modules(processors.__path__, f"{processors.__name__}.")]
    served = {module.routes for name in names if hasattr(module := import_module(name), "routes")} - {table.routes}
    assert served == set(table.FAMILIES)
    assert len(table.FAMILIES) == len(served)


@pytest.mark.asyncio
async def test_routes_of_broker_have_permission_each(start_broker: StartBroker) -> None:
    broker = await start_broker()
    routes = broker.server.routes
    assert len(routes) > 80
    assert [code for code, route in routes.items() if not isinstance(cast(object, route.permission), Permission)] == []
