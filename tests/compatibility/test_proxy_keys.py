"""The page compatibility/proxy-keys.md: every key of RocketMQ 5.5.0's proxy is there, and does what the page says."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gantrymq.config.auth_settings import CLASSES
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.config.grpc_settings import WITHOUT_EFFECT, GrpcConfig
from gantrymq.config.keys import fields_by_key, write_fields
from gantrymq.config.properties import parse_json
from gantrymq.config.proxy_settings import ProxyConfig, proxy_warnings, read_proxy_config
from gantrymq.errors import ConfigError
from interop.grpc.sdks import built_by_maven
from interop.java import INTEROP, java_available, java_program

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "broker_keys_page.py"))
KEYS: dict[str, str | None] = json.loads((Path(__file__).parent / "proxy-5.5.0.json").read_text())
# Where our default is another one than RocketMQ's.
OWN_DEFAULTS = {"grpcMaxInboundMessageSize", "localServeAddr"}


def test_every_key_has_field_or_reason() -> None:
    fields = set(fields_by_key(ProxyConfig))
    assert set(KEYS) - fields - set(WITHOUT_EFFECT) == set()
    assert set(WITHOUT_EFFECT) - set(KEYS) == set()
    assert set(WITHOUT_EFFECT) & fields == set()


def test_defaults_are_rocketmqs_but_for_a_few() -> None:
    ours = write_fields(ProxyConfig())
    assert {key for key in ours if KEYS.get(key) not in (None, ours[key])} == OWN_DEFAULTS
    wrong = {key: row.default for key, row in WITHOUT_EFFECT.items() if row.default not in (None, "…", KEYS[key])}
    assert wrong == {}


def test_each_key_with_effect_is_read_in_code() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    # The names of classes are compared before the settings are read (config/refused_keys.py).
    fields = [spec.name for key, spec in fields_by_key(ProxyConfig).items() if key not in CLASSES]
    assert [name for name in fields if not re.search(rf"\.{name}\b", source)] == []


def test_file_of_rocketmq_proxy_is_accepted() -> None:
    text = '{"namesrvAddr": "ns:9876", "grpcServerPort": 0, "enableProxyAutoRenew": false, "regionId": null}'
    config = read_proxy_config(parse_json(text))
    assert (config.name_servers, config.grpc_server_port, config.renews) == (["ns:9876"], 0, False)
    for wrong in ("[]", "{", '{"namesrvAddr": ["a"]}', "[" * 100_000):
        with pytest.raises(ConfigError):
            parse_json(wrong)


def test_proxy_keys_without_effect_are_named_at_start() -> None:
    entries = {"traceOn": "true", "remotingListenPort": "8080", "useDelayLevel": "true", "grpcBossLoopNum": "9"}
    (trace, delays) = proxy_warnings(entries)
    assert trace.startswith("traceOn has no effect here: ")
    assert delays.startswith("useDelayLevel has no effect here: ")
    live = LiveConfig()
    live.update(entries | {"maxUserPropertySize": "99", "aclCacheMaxNum": "1000"})  # 1000: the default of a broker
    assert live.warnings() == [delays]  # a broker's own key is not the proxy's
    assert live.grpc.max_user_property_bytes == 99
    assert "maxUserPropertySize=99\n" in live.to_properties()
    with pytest.raises(ConfigError, match="only a start reads it"):
        live.update({"maxUserPropertySize": "98"}, running=True)


def test_unworkable_proxy_values_are_refused() -> None:
    wrong: list[Callable[[], Any]] = [
        lambda: GrpcConfig(metric_collector_mode="on"),
        lambda: GrpcConfig(metric_collector_mode="sometimes"),
        lambda: GrpcConfig(min_polling_ms=30_000),
        lambda: GrpcConfig(renew_period_ms=0),
    ]
    for make in wrong:
        with pytest.raises(ConfigError):
            make()


@pytest.mark.slow
def test_key_names_equal_those_of_java_class() -> None:
    if reason := java_available():
        pytest.skip(reason)
    lib = built_by_maven("proxy") / "lib"
    words = [java_program(), "-cp", f"{lib}/*", str(INTEROP / "grpc" / "proxy" / "ConfigKeys.java")]
    java = json.loads(subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout)
    assert set(java) == set(KEYS)
    assert {key: text for key, text in KEYS.items() if text not in (None, java[key])} == {}
