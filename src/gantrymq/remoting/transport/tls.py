"""TLS with RocketMQ's tls.* settings, over memory buffers. A server detects TLS by a connection's first byte.

Source: TlsSystemConfig, TlsHelper, NettyRemotingServer (HandshakeHandler), FileWatchService.
"""

import os
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from gantrymq.errors import ConfigError, RemotingCommandError
from gantrymq.logs import get_logger
from gantrymq.remoting.transport.self_signed import self_signed_context

HANDSHAKE_BYTE = 0x16
_READ_BYTES = 256 * 1024
# A memory BIO never shrinks. Larger pieces would make each connection keep megabytes.
_CHUNK_BYTES = 16 * 1024
_WATCHED = ("tls.server.certPath", "tls.server.keyPath", "tls.server.trustCertPath")

_State = tuple[tuple[int, int, int] | None, ...]

log = get_logger("gantrymq.remoting")


class TlsMode(Enum):
    """``tls.server.mode``: whether a server accepts plain connections, TLS, or both."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(slots=True)
class TlsServer:
    """A server's TLS: ``context``, or the result of ``make`` on the first TLS connection.

    ``files`` are the files that ``make`` reads; :meth:`reload` watches them.
    """

    mode: TlsMode = TlsMode.PERMISSIVE
    context: ssl.SSLContext | None = None
    make: Callable[[], ssl.SSLContext] | None = self_signed_context
    files: tuple[str, ...] = ()
    _seen: _State = field(init=False)
    _reported: tuple[_State, str] | None = field(default=None, init=False)  # the last reported error, while it lasts

    def __post_init__(self) -> None:
        """Record the state of the files, to detect changes from now on."""
        self._seen = _state(self.files)

    def answering(self) -> ssl.SSLContext | None:
        """The context for a TLS connection; None if TLS is switched off.

        Raises RemotingCommandError if there is no certificate and none can be made.
        """
        if self.mode is TlsMode.DISABLED:
            return None
        if self.context is None and self.make is not None:
            try:
                self.context = self.make()
            except ConfigError as error:
                raise RemotingCommandError(f"TLS was spoken, which is not answered here: {error}") from error
        return self.context

    def reload(self) -> None:
        """Reload changed files, for new connections. If they cannot be loaded, the old context stays in use.

        The load is retried at each call, because certificate and key may be replaced one after the other. Each change
        is reported once.
        """
        state, failure = _state(self.files), None
        if state != self._seen and self.make is not None:
            try:
                self.context, self._seen = self.make(), state
                log.info("TLS certificate reloaded", files=self.files)
            except ConfigError as error:
                failure = state, str(error)
                if failure != self._reported:
                    log.error("TLS certificate not reloaded", files=self.files, reason=str(error))
        self._reported = failure


def _state(files: tuple[str, ...]) -> _State:
    """The inode, mtime and size of each file; None for a file that cannot be read."""
    return tuple(map(_file_state, files))


def _file_state(file: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def tls_server(settings: Mapping[str, str]) -> TlsServer:
    """The server's side of tls.properties.

    Keys: ``tls.server.mode`` (permissive), ``tls.server.certPath``, ``tls.server.keyPath``, ``tls.server.keyPassword``,
    ``tls.server.authClient`` (false), ``tls.server.need.client.auth`` (none, optional, require),
    ``tls.server.trustCertPath``, ``tls.ciphers``, ``tls.protocols``. Without a certificate the server makes one, unless
    ``tls.test.mode.enable`` (true) is false; with mode enforcing the key must be set to true explicitly.
    :meth:`TlsServer.reload` reloads changed files.

    Raises ConfigError for an invalid value or a file that cannot be loaded.
    """
    given = settings.get("tls.server.mode", TlsMode.PERMISSIVE.value)
    modes = [mode.value for mode in TlsMode]
    if given not in modes:
        raise ConfigError("tls.server.mode", given, "one of " + ", ".join(modes))
    mode = TlsMode(given)
    certificate = settings.get("tls.server.certPath")
    test_mode = settings.get("tls.test.mode.enable", "" if mode is TlsMode.ENFORCING else "true").lower() == "true"
    if mode is TlsMode.DISABLED or (certificate is None and not test_mode):
        if mode is TlsMode.ENFORCING:
            raise ConfigError("tls.server.certPath", None, "a certificate's path where tls.server.mode=enforcing")
        return TlsServer(mode, make=None)
    files = tuple(settings[key] for key in _WATCHED if key in settings)
    make = partial(_server_context, settings)
    # At once, so that a file that cannot be loaded fails the start.
    return TlsServer(mode, make(), make, files)


def tls_client(settings: Mapping[str, str]) -> ssl.SSLContext | None:
    """The client's side: None unless ``tls.enable`` is true. Raises as :func:`tls_server` does.

    As in RocketMQ the server's certificate is verified only with ``tls.client.authServer``, against
    ``tls.client.trustCertPath``. Its host name is not verified. ``tls.client.certPath``, ``tls.client.keyPath`` and
    ``tls.client.keyPassword`` are for servers that authenticate clients.
    """
    if settings.get("tls.enable", "false").lower() != "true":
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if settings.get("tls.client.authServer", "false").lower() == "true":
        _load_trusted(context, settings, "client")
    else:
        context.verify_mode = ssl.CERT_NONE
    if settings.get("tls.client.certPath"):
        _load_chain(context, settings, "client")
    _restrict(context, settings)
    return context


def _server_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    own = settings.get("tls.server.certPath") is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if own else self_signed_context()
    if own:
        _load_chain(context, settings, "server")
    context.verify_mode = _client_verify_mode(settings)
    if context.verify_mode is not ssl.CERT_NONE:
        _load_trusted(context, settings, "server")
    _restrict(context, settings)
    return context


def _client_verify_mode(settings: Mapping[str, str]) -> ssl.VerifyMode:
    modes = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
    given = settings.get("tls.server.need.client.auth", "none").lower()
    if given not in modes:
        raise ConfigError("tls.server.need.client.auth", given, "one of " + ", ".join(modes))
    authenticates = settings.get("tls.server.authClient", "false").lower() == "true"
    return ssl.CERT_REQUIRED if authenticates else modes[given]


def _load_chain(context: ssl.SSLContext, settings: Mapping[str, str], end: str) -> None:
    certificate, key = settings[f"tls.{end}.certPath"], settings.get(f"tls.{end}.keyPath")
    password = settings.get(f"tls.{end}.keyPassword")
    try:
        # Without a password function OpenSSL would ask on the terminal.
        context.load_cert_chain(certificate, key, lambda: password or "")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"tls.{end}.certPath", certificate, f"a certificate with its key {key!r}: {error}") from error


def _load_trusted(context: ssl.SSLContext, settings: Mapping[str, str], end: str) -> None:
    trusted = settings.get(f"tls.{end}.trustCertPath")
    try:
        if trusted is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(trusted)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"tls.{end}.trustCertPath", trusted, f"certificates to trust: {error}") from error


def _restrict(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    ciphers, protocols = settings.get("tls.ciphers"), settings.get("tls.protocols")
    if ciphers:
        try:
            context.set_ciphers(ciphers.replace(",", ":"))
        except ssl.SSLError as error:
            raise ConfigError("tls.ciphers", ciphers, "names of ciphers, separated by commas") from error
    if protocols:
        known = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
        wanted = [name.strip() for name in protocols.split(",")]
        if not set(wanted) <= set(known):
            raise ConfigError("tls.protocols", protocols, "TLSv1.2 and TLSv1.3, separated by commas")
        context.minimum_version = min(known[name] for name in wanted)
        context.maximum_version = max(known[name] for name in wanted)


class TlsSession:
    """One TLS connection over memory buffers. Data that is sent before the end of the handshake waits for it.

    ``error`` is set if the stream cannot be decrypted any further, ``is_over`` after the other end's close_notify.
    """

    def __init__(self, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self._established = False
        self._waiting = bytearray()
        self._written: list[bytes] = []
        self.error: ssl.SSLError | None = None
        self.is_over = False
        if not server_side:
            self._handshake()

    def receive(self, data: bytes) -> bytes:
        """Decrypt received bytes. Raises ssl.SSLError if the handshake fails or the other end is not trusted."""
        if self.is_over:
            return b""  # bytes after close_notify are ignored, because OpenSSL would buffer them for ever
        decrypted: list[bytes] = []
        for begin in range(0, len(data), _CHUNK_BYTES):
            self._incoming.write(data[begin : begin + _CHUNK_BYTES])
            if (self._established or self._handshake()) and not self._has_ended:
                self._read(decrypted)
        return b"".join(decrypted)

    @property
    def _has_ended(self) -> bool:
        return self.is_over or self.error is not None

    def _read(self, decrypted: list[bytes]) -> None:
        try:
            while part := self._ssl.read(_READ_BYTES):
                decrypted.append(part)
            self.is_over = True
        except ssl.SSLWantReadError:
            pass  # the record is incomplete
        except ssl.SSLError as error:
            self.error = error.with_traceback(None)  # a traceback would keep this object and the bytes alive in a cycle

    def send(self, data: bytes) -> None:
        """Encrypt ``data``. :meth:`take` returns the bytes to write."""
        if self._established:
            self._write(data)
        else:
            self._waiting += data

    def _write(self, data: bytes | bytearray) -> None:
        view = memoryview(data)
        for begin in range(0, len(view), _CHUNK_BYTES):
            self._ssl.write(view[begin : begin + _CHUNK_BYTES])
            self._written.append(self._outgoing.read())

    def send_close_notify(self) -> None:
        """Send close_notify if the handshake is done. Its answer is not awaited."""
        if self._established:
            with suppress(ssl.SSLError):
                self._ssl.unwrap()

    @property
    def is_established(self) -> bool:
        """Whether the handshake is done."""
        return self._established

    @property
    def buffered_bytes(self) -> int:
        """The size of an incomplete record, in bytes."""
        return self._incoming.pending

    @property
    def waiting_bytes(self) -> int:
        """The size of data that waits for the end of the handshake, in bytes."""
        return len(self._waiting)

    def take(self) -> bytes:
        """The bytes to write now, including those of the handshake."""
        return b"".join(self.take_pieces())

    def take_pieces(self) -> list[bytes]:
        """The bytes of :meth:`take` in pieces."""
        self._written.append(self._outgoing.read())
        pieces, self._written = self._written, []
        return pieces

    def _handshake(self) -> bool:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self._established = True
        if self._waiting:
            self._written.append(self._outgoing.read())
            self._write(bytes(self._waiting))
        self._waiting.clear()
        return True
