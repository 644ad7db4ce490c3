"""Where the connection of a command comes from: options, a named profile, the environment, the default profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer

from gantrymq.cli import connection
from gantrymq.cli.connection import ClusterConnection, connects
from gantrymq.client.settings import ClientConfig
from gantrymq.errors import ConfigError

PROFILES = """
[profile.default]
namesrv = "default:9876"
namespace = "mine"

[profile.prod]
namesrv = "prod-1:9876;prod-2:9876"
access_key = "admin"
secret_key = "12345678"
tls = true
tls_trust = "/etc/ca.pem"
"""


@pytest.fixture(autouse=True)
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of profiles, and no variable of the environment."""
    for value in connection._VALUES:
        monkeypatch.delenv(value.variable, raising=False)
    monkeypatch.delenv("GANTRYMQ_PROFILE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "gantrymq" / "profile.toml"
    path.parent.mkdir()
    path.write_text(PROFILES)
    path.chmod(0o600)
    return path


def test_connection_value_comes_from_option_then_profile_then_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ClusterConnection.read({"namesrv": None}) == ClusterConnection("default:9876", "mine")
    monkeypatch.setenv("NAMESRV_ADDR", "shell:9876")
    assert ClusterConnection.read({}).name_servers == "shell:9876"
    assert ClusterConnection.read({}).namespace == "mine"  # each value on its own
    assert ClusterConnection.read({}, "prod").name_servers == "prod-1:9876;prod-2:9876"
    assert ClusterConnection.read({"namesrv": "here:9876"}, "prod").name_servers == "here:9876"
    monkeypatch.setenv("GANTRYMQ_PROFILE", "prod")
    assert ClusterConnection.read({}).name_servers == "prod-1:9876;prod-2:9876"


def test_profile_accepts_settings_of_client() -> None:
    read = ClusterConnection.read({}, "prod")
    config = ClientConfig(read.name_servers, **read.settings)  # type: ignore[arg-type]
    assert config.credentials is not None
    assert config.tls == {
        "tls.enable": "true",
        "tls.client.trustCertPath": "/etc/ca.pem",
        "tls.client.authServer": "true",
    }
    assert "12345678" not in repr(read)


def test_tls_file_option_enables_tls_and_no_tls_disables_it() -> None:
    assert ClusterConnection.read({"tls_trust": "/ca"}).tls["tls.enable"] == "true"
    assert ClusterConnection.read({"tls": False}, "prod").tls["tls.enable"] == "false"
    assert ClusterConnection.read({}).tls == {}
    with pytest.raises(ConfigError, match="true or false"):
        ClusterConnection.read({"tls": "perhaps"})


@pytest.mark.parametrize(
    ("text", "named", "problem"),
    [
        ("[profile.a", None, "TOML"),
        ("[profile.a]\nnamesrv = 1", "a", "a text"),
        ("[profile.a]\naccesskey = 'x'", "a", "one of namesrv, "),
        ("[profile.a]\n[profile.b]\n", "c", r"\[profile.NAME\] of .*: a, b"),
        ("profile = 1", "a", "none is there"),
    ],
)
def test_wrong_profile_is_named_in_error(profiles: Path, text: str, named: str | None, problem: str) -> None:
    profiles.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        ClusterConnection.read({"namesrv": "here:9876"}, named)


def test_missing_profile_file_is_error_only_for_named_profile(profiles: Path) -> None:
    profiles.unlink()
    assert ClusterConnection.read({"namesrv": "here:9876"}) == ClusterConnection("here:9876")
    with pytest.raises(ConfigError, match="does not exist"):
        ClusterConnection.read({"namesrv": "here:9876"}, "prod")
    with pytest.raises(typer.BadParameter, match="NAMESRV_ADDR"):
        ClusterConnection.read({})


def test_secret_in_file_readable_by_others_causes_warning(profiles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ClusterConnection.read({}, "prod")
    assert capsys.readouterr().err == ""
    profiles.chmod(0o644)
    ClusterConnection.read({}, "prod")
    assert "chmod 600" in capsys.readouterr().err


def test_connection_options_reach_command_as_one_connection() -> None:
    came: list[tuple[str, ClusterConnection | None]] = []

    def command(
        connection: ClusterConnection | None, word: str, store: Annotated[str | None, typer.Option("--store")] = None
    ) -> None:
        came.append((word, connection))

    app = typer.Typer()
    app.command()(connects(command, unless="store"))
    app(["x", "-n", "here:9876", "--namespace", "two"], standalone_mode=False)
    app(["y", "--store", "dir"], standalone_mode=False)
    assert came == [("x", ClusterConnection("here:9876", "two")), ("y", None)]
    with pytest.raises(Exception, match="--tls-trust is for a cluster"):
        app(["y", "--store", "dir", "--tls-trust", "f"], standalone_mode=False)
