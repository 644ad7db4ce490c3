"""The blocking client for the administration of a cluster.

with AdminClient("127.0.0.1:9876") as admin:
    admin.create_topic("TopicTest", read_queue_nums=4, write_queue_nums=4)

Source: DefaultMQAdminExt.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self, Unpack

from gantrymq.client.admin.auth import AuthAdmin
from gantrymq.client.admin.groups import GroupAdmin
from gantrymq.client.admin.lite import LiteAdmin
from gantrymq.client.admin.messages import MessageAdmin
from gantrymq.client.admin.servers import ServerAdmin
from gantrymq.client.admin.topics import TopicAdmin
from gantrymq.client.settings import ClientConfig, ClientSettings


class AdminClient(TopicAdmin, GroupAdmin, MessageAdmin, ServerAdmin, AuthAdmin, LiteAdmin):
    """All administrative methods. Each method's docstring names RocketMQ's method.

    ``name_servers`` is the list of name servers, with fields of :class:`gantrymq.client.settings.ClientConfig` as
    ``settings``, or a ClientConfig. A method that takes ``broker`` (an address) or ``cluster`` acts on all masters if
    neither is given.

    Thread rule: one thread at a time.
    """

    def __init__(self, name_servers: ClientConfig | str, **settings: Unpack[ClientSettings]) -> None:
        super().__init__(ClientConfig.of(name_servers, settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
