"""What users and policies cost a broker: the CPU time of a signed send, at a broker with them and at one without.

Each side runs both brokers from the first round to the last. A turn is one run of the real Java client, which signs, at
one and then at the other. The user is no super user and has Pub on the topic. What is added is the difference of two
figures of one turn, so it varies more than either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.race.process import Line, SideError, serve_ours, serving
from benchmarks.race.race import JAVA, OURS, Race, Row
from benchmarks.race.races.brokers import BODY_SIZE, SETTINGS, times
from benchmarks.race.track import Track
from gantrymq.client.admin.admin_client import AdminClient
from gantrymq.client.settings import ClientConfig
from gantrymq.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo

_TOPIC = "bench"
_ROOT, _USER = ("root", "the password of root"), ("producer", "the password of a producer")
_PACKAGE = "org.apache.rocketmq.auth"
_AUTH = {
    "authenticationEnabled": True,
    "authenticationProvider": f"{_PACKAGE}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_PACKAGE}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationEnabled": True,
    "authorizationProvider": f"{_PACKAGE}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_PACKAGE}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": f'{{"username":"{_ROOT[0]}","password":"{_ROOT[1]}"}}',
    "innerClientAuthenticationCredentials": f'{{"accessKey":"{_ROOT[0]}","secretKey":"{_ROOT[1]}"}}',
}
_GOAL = 1.0


def races(track: Track) -> Iterator[Race]:
    """Synchronous sends of one thread, and of several, which the broker reads together."""
    if track.java is None:
        return  # the client is Java's
    for threads in (1, 16):
        yield _race(track, threads)


def _race(track: Track, threads: int) -> Race:
    brokers = _Brokers(track, threads)
    name = f"broker signed sync send {BODY_SIZE} B, {threads} thread{'s' * (threads > 1)}"
    rows = [
        Row(f"{name}: CPU", "cpuMicros", "µs/message", less_is_better=True, note="user and system, with policies"),
        Row(f"{name}: CPU without users", "openMicros", "µs/message", less_is_better=True),
        Row(f"{name}: CPU that users add", "addedMicros", "µs/message", _GOAL, less_is_better=True),
    ]
    sides = track.sides(lambda _: brokers.turn(JAVA), lambda _: brokers.turn(OURS))
    return Race(rows, sides, standing=brokers)


class _Brokers:
    """Both brokers of both sides."""

    def __init__(self, track: Track, threads: int) -> None:
        self._track, self._threads = track, threads
        self._served: dict[tuple[str, bool], Line] = {}

    @contextmanager
    def __call__(self, folder: Path) -> Iterator[None]:
        """Start the brokers, create the user, and warm them up."""
        with ExitStack() as stack:
            for closed in (False, True):
                auth = _AUTH if closed else {}
                of_java = self._track.other.cluster(folder / f"theirs-{closed}", SETTINGS, auth)
                ours = serve_ours(folder / f"ours-{closed}", {**SETTINGS, **auth})
                for side, words in ((JAVA, of_java), (OURS, ours)):
                    self._served[side, closed] = served = stack.enter_context(serving(words))
                    if closed:
                        _create_user(served)
            for side, closed in self._served:
                self._load(side, closed)
            yield

    def turn(self, side: str) -> Line:
        """One run at the broker without users, and one at the other."""
        opened, closed = self._load(side, False)["cpuMicros"], self._load(side, True)["cpuMicros"]
        return {"openMicros": opened, "cpuMicros": closed, "addedMicros": closed - opened}

    def _load(self, side: str, closed: bool) -> Line:
        served = self._served[side, closed]
        line = self._track.other.load(
            served["namesrv"], mode="sync", topic=_TOPIC, size=BODY_SIZE, threads=self._threads,
            broker_pid=served["pid"], access_key=_USER[0], secret_key=_USER[1], **times(self._track),
        )  # fmt: skip
        if line["failed"]:
            raise SideError(f"{line['failed']} messages failed at {side}, the first by {line.get('failure')}")
        return line


def _create_user(served: Line) -> None:
    policy = PolicyInfo(
        policy_type="Custom",
        entries=[PolicyEntryInfo(resource=f"Topic:{_TOPIC}", actions=["Pub"], decision="Allow")],
    )
    with AdminClient(ClientConfig(served["namesrv"], access_key=_ROOT[0], secret_key=_ROOT[1])) as admin:
        admin.create_user(served["broker"], *_USER)
        admin.create_acl(served["broker"], AclInfo(subject=f"User:{_USER[0]}", policies=[policy]))
