"""Access control of a name server by the users of the brokers. RocketMQ's name server has none.

======================================  =======================================================================
request                                 needs, with authorizationEnabled
======================================  =======================================================================
a topic's route                         Pub, Sub or Get on the topic; of a retry topic Sub or Get on its group
other reads                             Get on the cluster
registrations, changes, other requests  Update on the cluster
======================================  =======================================================================

The cluster has no name here, so that ``Cluster:*`` is its policy. Users and policies are those of usersDirectory:
``users.json`` and ``acls.json`` as a broker writes them below ``config/``, its own directory or a copy of it. They are
read again when they change. initAuthenticationUser and innerClientAuthenticationCredentials are super users as well,
unless the files have these names.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from gantrymq.auth.audit import RefusalLog
from gantrymq.auth.decision import ResourceAccess, UserPermissions
from gantrymq.auth.directory import NO_USERS, AccessDirectory
from gantrymq.auth.files import AccessFiles
from gantrymq.auth.login import LoginCheck
from gantrymq.auth.policies import Action, Resource, ResourceType
from gantrymq.clock import Clock
from gantrymq.errors import ConfigError, GantrymqError, StoreError
from gantrymq.format.names import ACLS, USERS
from gantrymq.fs.api import FileSystem
from gantrymq.logs import get_logger
from gantrymq.model.host import ip_of
from gantrymq.model.system_names import RETRY_PREFIX, group_of_retry
from gantrymq.namesrv.settings import NamesrvConfig
from gantrymq.remoting.acl import ACCESS_KEY, signature_matches
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.namesrv import GetRouteInfoRequestHeader
from gantrymq.remoting.transport.channel import Channel

RELOAD_S = 0.5
_READS = ("GET_", "QUERY_")

_Stamps = tuple[tuple[int, int, int] | None, ...]

log = get_logger("gantrymq.namesrv")


class NamesrvAccess:
    """Checks each request of a name server. Raises StoreError for a damaged file, ConfigError without any user.

    Thread rule: the event loop's thread.
    """

    def __init__(self, config: NamesrvConfig, fs: FileSystem, clock: Clock) -> None:
        self._directory = Path(config.users_directory) if config.users_directory.strip() else None
        self._files = AccessFiles(fs, self._directory) if self._directory is not None else None
        self._own = NO_USERS.with_initial_users(config)
        self._stamps = self._read_stamps()
        self._users = self._read()
        if not self._users.users:
            allowed = "a directory with a users.json that has users, or initAuthenticationUser"
            raise ConfigError("usersDirectory", config.users_directory, allowed)
        self._checks_policies = config.authorization_enabled
        self._refusals = RefusalLog(clock)
        self._logins = LoginCheck(lambda: self._users, self._refusals)
        self._known: dict[str, UserPermissions] = {}
        self._reported = ""

    def refusal(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """The answer that refuses a request, or None if the request is allowed."""
        ip, name = ip_of(channel.address), request.ext_fields.get(ACCESS_KEY, "")
        wrong = self._logins.refusal(ip, name, partial(signature_matches, request)) or self._denied(ip, name, request)
        return None if wrong is None else request.response(ResponseCode.NO_PERMISSION, wrong)

    def reload(self) -> None:
        """Read the files again if they changed, and log what was refused. Call it every half second.

        If they cannot be read, the old users stay in force, and one line says so.
        """
        self._refusals.flush()
        stamps = self._read_stamps()
        if stamps == self._stamps:
            return
        try:
            self._users = self._read()
        except (StoreError, OSError) as error:
            if str(error) != self._reported:
                log.error("users not reloaded, the old ones stay in force", reason=str(error))
                self._reported = str(error)
            return
        self._stamps, self._reported = stamps, ""
        self._known.clear()
        log.info("users reloaded", users=len(self._users.users))

    def _denied(self, ip: str, name: str, request: RemotingCommand) -> str | None:
        if not self._checks_policies:
            return None
        permissions = self._known.get(name)
        if permissions is None:
            permissions = UserPermissions(self._users.users[name], self._users.acls.get(name))
            self._known[name] = permissions
        if permissions.user.is_super:
            return None
        try:
            access = _access_of(request)
        except GantrymqError:
            return "parse authorization context error."
        verdict = permissions.check((access,), ip)
        if verdict.is_allowed:
            return None
        actions = ",".join(action.value for action in access.actions)
        self._logins.denied(name, actions, ip, access.resource.key, request.code)
        return verdict.refusal

    def _read(self) -> AccessDirectory:
        directory = self._files.load() if self._files is not None else NO_USERS
        return replace(directory, users={**self._own.users, **directory.users})

    def _read_stamps(self) -> _Stamps:
        directory = self._directory
        return tuple(_stamp(directory / name) for name in (USERS, ACLS)) if directory is not None else ()


def _access_of(request: RemotingCommand) -> ResourceAccess:
    """What a request needs. Raises GantrymqError if it cannot be read."""
    if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
        topic = request.read(GetRouteInfoRequestHeader).topic
        if topic.startswith(RETRY_PREFIX):
            return ResourceAccess(Resource(ResourceType.GROUP, group_of_retry(topic)), (Action.SUB, Action.GET))
        return ResourceAccess(Resource(ResourceType.TOPIC, topic), (Action.PUB, Action.SUB, Action.GET))
    known = RequestCode._value2member_map_.get(request.code)
    is_read = isinstance(known, RequestCode) and (known.name.startswith(_READS) or "_GET_" in known.name)
    return ResourceAccess(Resource(ResourceType.CLUSTER, ""), (Action.GET if is_read else Action.UPDATE,))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """The identity, mtime and size of a file; None if it cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
