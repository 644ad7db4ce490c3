"""The frame of the console: access, headers, errors, start and end."""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from gantrymq import EmbeddedBroker, Message, Producer
from gantrymq.client.runtime.loop_thread import LoopThread
from gantrymq.clock import ShiftedClock
from gantrymq.console.security import SESSION_S, Access, own_path
from gantrymq.console.server import ConsoleServer
from gantrymq.console.store.site import store_site
from gantrymq.console.visible import visible, visible_lines
from gantrymq.errors import ConfigError
from gantrymq.model.host import is_loopback


@pytest.fixture(scope="module")
def page(broker: EmbeddedBroker) -> Iterator[httpx.Client]:
    """A browser at the console of a broker without messages."""
    with httpx.Client(base_url=broker.console, timeout=30) as client:
        yield client


@contextmanager
def served(
    access: Access,
    path: Path,
    certificate: tuple[Path, Path] | None = None,
    trust: ssl.SSLContext | bool = True,
) -> Iterator[tuple[str, httpx.Client]]:
    """A console of a store: the address of its ready line, and a browser without cookies."""
    loop = LoopThread("console")
    server = ConsoleServer(store_site(path), access, certificate=certificate)
    try:
        loop.run(server.start())
        with httpx.Client(base_url=server.url, timeout=20, verify=trust) as client:
            yield str(server.announcement()["console"]), client
    finally:
        loop.close(server.shutdown())


def test_overview_shows_brokers(page: httpx.Client, broker: EmbeddedBroker) -> None:
    answer = page.get("/")
    assert answer.status_code == 200
    assert broker.address in answer.text
    assert "broker-a" in answer.text
    part = page.get("/live/overview")
    assert "<html" not in part.text
    assert broker.address in part.text
    [point] = page.get("/live/rates").json()["points"][:1]
    assert len(point) == 4


def test_every_response_has_security_headers(page: httpx.Client) -> None:
    for path in ("/", "/nowhere", "/live/rates", "/static/console.css"):
        headers = page.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == ("public, max-age=86400" if path.startswith("/static") else "no-store")


def test_pages_have_no_script_and_no_style_of_their_own(page: httpx.Client) -> None:
    text = page.get("/").text
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
    addresses = re.findall(r'(?:src|href|action)="([^"]*)"', text)
    assert addresses
    assert not [one for one in addresses if not one.startswith(("/", "#"))]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8580", "127.0.0.1.evil.example", "localhost@evil.example", "", "a b", "x:y"]
)
def test_another_host_name_is_refused(page: httpx.Client, host: str) -> None:
    answer = page.get("/", headers={"host": host})
    assert answer.status_code == 400
    assert "broker-a" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "localhost:8580", "127.0.0.1", "[::1]:8580", "192.168.1.7:80"])
def test_addresses_and_localhost_are_accepted(page: httpx.Client, host: str) -> None:
    assert page.get("/", headers={"host": host}).status_code == 200


def test_configured_host_name_is_accepted() -> None:
    access = Access(host_names=("mq.example.com",))
    assert access.is_known_host("MQ.example.com")
    assert not access.is_known_host("mq.example.org")


def test_errors_are_shown_as_pages(page: httpx.Client) -> None:
    answer = page.get("/nowhere/<script>alert(1)</script>")
    assert answer.status_code == 404
    assert "There is no such page" in answer.text
    assert "<script>alert" not in answer.text
    assert page.get("/static/../view.py").status_code == 404
    assert page.get("/static/vendor/LICENSE.htmx").status_code == 404


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gantrymq.console.cluster.site", None)
    with pytest.raises(ImportError, match="gantrymq\\[console\\]"), EmbeddedBroker(console=True):
        pytest.fail("it started")


def test_stopped_broker_is_reported_and_console_keeps_running(tmp_path: Path) -> None:
    with EmbeddedBroker(console=True) as broker, httpx.Client(base_url=broker.console, timeout=20) as client:
        assert client.get("/").status_code == 200
        broker.stop()
        away = client.get("/nowhere")
        assert away.status_code == 404
        broker.start()
        assert client.get("/").status_code == 200


# The token


def test_request_without_token_shows_only_login(tmp_path: Path) -> None:
    with served(Access(token="s3cret-token"), _store(tmp_path)) as (url, client):
        assert url.endswith("/?token=s3cret-token")
        refused = client.get("/")
        assert refused.status_code == 401
        assert "needs the console&#39;s access token" in refused.text
        assert str(tmp_path) not in refused.text
        assert client.get("/static/console.css").status_code == 200
        assert client.get("/", params={"token": "wrong"}).status_code == 401
        part = client.get("/", headers={"hx-request": "true"})
        assert (part.status_code, part.headers["hx-refresh"]) == (401, "true")
        entered = client.get("/", params={"token": "s3cret-token", "x": "1"})
        assert (entered.status_code, entered.headers["location"]) == (303, "/?x=1")
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "s3cret" not in cookie
        assert client.get("/").status_code == 200


def test_token_entered_in_form_opens_session(tmp_path: Path) -> None:
    with served(Access(token="s3cret-token"), _store(tmp_path)) as (_url, client):
        wrong = client.post("/login", data={"token": "no", "next": "/"})
        assert wrong.status_code == 401
        entered = client.post("/login", data={"token": "s3cret-token", "next": "//evil.example/x"})
        assert (entered.status_code, entered.headers["location"]) == (303, "/evil.example/x")
        assert client.get("/").status_code == 200


def test_login_leads_to_requested_page(tmp_path: Path) -> None:
    with served(Access(token="s3cret-token"), _store(tmp_path)) as (_url, client):
        refused = client.get("/topics/a%252Fb?q=x+y&token=wrong")
        assert 'name="next" value="/topics/a%252Fb?q=x+y"' in refused.text
        entered = client.post("/login", data={"token": "s3cret-token", "next": "/topics/a%252Fb?q=x+y"})
        assert entered.headers["location"] == "/topics/a%252Fb?q=x+y"


def test_session_expires_and_ends_with_console(tmp_path: Path) -> None:
    clock = ShiftedClock()
    access = Access(token="s3cret-token", clock=clock)
    session = access.new_session()
    assert access.session_problem(session) is None
    assert "earlier start" in str(Access(token="s3cret-token").session_problem(session))
    ends, _, signature = session.partition(".")
    assert "earlier start" in str(access.session_problem(f"{int(ends) + 1}.{signature}"))
    clock.advance(SESSION_S * 1000 + 1000)
    assert access.session_problem(session) == "The session has expired."


def test_cross_site_request_is_refused(tmp_path: Path) -> None:
    with served(Access(token="s3cret-token"), _store(tmp_path)) as (_url, client):
        for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
            refused = client.post("/login", data={"token": "s3cret-token"}, headers=headers)
            assert refused.status_code == 403
            assert "set-cookie" not in refused.headers


def test_page_refuses_to_load_in_frame_of_another_site(page: httpx.Client) -> None:
    def status(mode: str, dest: str) -> int:
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": mode, "sec-fetch-dest": dest}
        return page.get("/", headers=headers).status_code

    assert status("navigate", "document") == 200  # a link
    assert [status("no-cors", "image"), status("cors", "empty"), status("navigate", "iframe")] == [403] * 3


def test_console_with_certificate_speaks_https(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    trust = ssl.create_default_context(cafile=str(certificate[0]))
    with served(Access(token="s3cret-token"), _store(tmp_path), certificate, trust) as (url, client):
        assert url.startswith("https://127.0.0.1:")
        entered = client.get("/", params={"token": "s3cret-token"})
        assert "Secure" in entered.headers["set-cookie"]
        assert client.get("/").status_code == 200
    for wrong in ((tmp_path / "none", certificate[1]), (certificate[0], certificate[0])):
        with pytest.raises(ConfigError, match="https-cert"):
            ConsoleServer(store_site(tmp_path / "store"), Access(), certificate=wrong)


def test_loopback_addresses_and_own_paths_are_recognised() -> None:
    assert [is_loopback(one) for one in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "10.0.0.1")] == [
        *(True, True, True),
        *(False, False, False),
    ]
    assert [own_path(one) for one in ("/a?b", "//evil", "\\\\evil", "http://evil", "/a\r\nb")] == [
        *("/a?b", "/evil", "/evil", "/http://evil", "/"),
    ]


def self_signed(path: Path) -> tuple[Path, Path]:
    """The files of a certificate for 127.0.0.1 and of its key."""
    certificate, key = path / "certificate.pem", path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-subj", "/CN=console", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key)]
    subprocess.run([*words, "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


# Characters


def test_invisible_characters_are_made_visible() -> None:
    assert visible("a\x1b[31mb\x00\x7f\r\n") == "a⟨ESC⟩[31mb⟨NUL⟩⟨DEL⟩⟨CR⟩⟨LF⟩"
    assert visible("safe\u202etxt.exe\u2066\x9b") == "safe⟨U+202E⟩txt.exe⟨U+2066⟩⟨U+009B⟩"
    assert visible("\ud800") == "⟨U+D800⟩"
    assert visible("Ünï 漢字 👩‍👧") == "Ünï 漢字 👩‍👧"
    assert visible_lines("one\r\ntwo\tx\n\x1b") == "one\ntwo\tx\n⟨ESC⟩"


# A store


def test_store_overview_shows_its_numbers(tmp_path: Path) -> None:
    with served(Access(), _store(tmp_path)) as (url, client):
        text = client.get(url).text
        assert "orders" in text
        assert "Checkpoint" in text


def _store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    if not path.exists():
        with EmbeddedBroker(path) as broker, Producer(broker.namesrv) as producer:
            producer.send(Message("orders", b"hello"))
    return path
