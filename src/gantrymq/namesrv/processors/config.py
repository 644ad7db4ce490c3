"""Requests about values that tools store at the name server, and about its own settings.

Source: DefaultRequestProcessor.
"""

from __future__ import annotations

from gantrymq.config.properties import parse_properties
from gantrymq.errors import ConfigError, GantrymqError, NotHonouredError
from gantrymq.model.java import decode_utf8, encode_utf8
from gantrymq.namesrv.configuration import NamesrvConfiguration
from gantrymq.namesrv.kv_config import KVConfigManager
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import Processor


class ConfigProcessor:
    """Answers requests for the KV configuration and the settings.

    A change is answered once it is on disk. If it cannot be written, the answer is SYSTEM_ERROR.
    """

    def __init__(self, kv: KVConfigManager, configuration: NamesrvConfiguration) -> None:
        self._kv, self._configuration = kv, configuration

    def by_code(self) -> dict[int, Processor]:
        """The processors by request code."""
        return {
            RequestCode.PUT_KV_CONFIG: self.put,
            RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.DELETE_KV_CONFIG: self.delete,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.list_namespace,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update,
            RequestCode.GET_NAMESRV_CONFIG: self.settings,
        }

    async def put(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """PUT_KV_CONFIG: set a value."""
        header = request.read(PutKVConfigRequestHeader)
        try:
            await self._kv.put(header.namespace, header.key, header.value)
        except (OSError, GantrymqError) as error:
            return request.response(ResponseCode.SYSTEM_ERROR, str(error))
        return request.response(ResponseCode.SUCCESS)

    def get(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_KV_CONFIG: the value of a key."""
        header = request.read(GetKVConfigRequestHeader)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return request.response(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.response(ResponseCode.SUCCESS, header=GetKVConfigResponseHeader(value=value))

    async def delete(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """DELETE_KV_CONFIG: delete a value."""
        header = request.read(DeleteKVConfigRequestHeader)
        try:
            await self._kv.delete(header.namespace, header.key)
        except (OSError, GantrymqError) as error:
            return request.response(ResponseCode.SYSTEM_ERROR, str(error))
        return request.response(ResponseCode.SUCCESS)

    def list_namespace(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_KVLIST_BY_NAMESPACE: all values of a namespace."""
        namespace = request.read(GetKVListByNamespaceRequestHeader).namespace
        body = self._kv.encoded_namespace(namespace)
        if body is None:
            return request.response(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return request.response(ResponseCode.SUCCESS, body=body)

    async def update(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_NAMESRV_CONFIG: change settings at run time.

        RocketMQ answers SUCCESS even to an invalid value, and stores it.
        """
        entries = parse_properties(decode_utf8(request.body))
        if self._configuration.is_black(entries):
            return request.response(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        try:
            if entries:
                await self._configuration.update(entries)
        except ConfigError as error:
            return request.response(ResponseCode.INVALID_PARAMETER, str(error))
        except NotHonouredError as error:
            return request.response(ResponseCode.INVALID_PARAMETER, error.while_running)
        except (OSError, GantrymqError) as error:
            return request.response(ResponseCode.SYSTEM_ERROR, str(error))
        return request.response(ResponseCode.SUCCESS)

    def settings(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_NAMESRV_CONFIG: the current settings, as properties."""
        return request.response(ResponseCode.SUCCESS, body=encode_utf8(self._configuration.text()))
