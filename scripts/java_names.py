"""Write tests/compatibility/rocketmq-5.5.0.json and rocketmq-5.5.1.json: RocketMQ's request codes, keys and attributes.

    .venv/bin/python scripts/java_names.py [FOLDER]

It reads the source jars in FOLDER (default ~/.m2/repository/org/apache/rocketmq). Fetch a missing one with
`mvn dependency:get -Dartifact=org.apache.rocketmq:rocketmq-auth:5.5.0:jar:sources`. There is no auth of 5.5.1, so that
of 5.5.0 is read. A file has

- `requestCodes`: the constants of RequestCode;
- `keys`: for each configuration class the keys that MixAll.properties2Object sets, because they have a setter, with
  the value of the field (null where it depends on the machine);
- `withoutSetter`: fields of these classes that no file can set;
- `startup`: keys that BrokerStartup reads itself;
- `topicAttributes`, `groupAttributes`: the names.

A slow test (tests/compatibility) compares a file with the classes by reflection.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path

RELEASES = ("5.5.0", "5.5.1")
UNCHANGED = {"auth": "5.5.0"}  # modules that later releases do not have
FOLDER = Path(__file__).resolve().parents[1] / "tests" / "compatibility"
CONFIGS = {
    "BrokerConfig": ("common", "common/BrokerConfig", "common/BrokerIdentity"),
    "MessageStoreConfig": ("store", "store/config/MessageStoreConfig"),
    "NettyServerConfig": ("remoting", "remoting/netty/NettyServerConfig"),
    "NettyClientConfig": ("remoting", "remoting/netty/NettyClientConfig"),
    "AuthConfig": ("auth", "auth/config/AuthConfig"),
    "NamesrvConfig": ("common", "common/namesrv/NamesrvConfig"),
}
_TYPES = "int|Integer|long|Long|double|Double|boolean|Boolean|float|Float|String"  # that properties2Object reads
_SETTER = re.compile(rf"public void set(\w)(\w*)\(\s*(?:final )?(?:{_TYPES}) ")
_FIELD = re.compile(r"^    (?:private|protected) (?:volatile )?\w+ (\w+)(?: = (.+))?;$", re.MULTILINE)
_CODE = re.compile(r"public static final int (\w+) = (\d+);")
_ATTRIBUTE = re.compile(r"new \w+Attribute\(\s*\"([\w.]+)\"")
_STARTUP = re.compile(r"properties\.getProperty\(\"(\w+)\"")
# Constants that defaults are written with. Their values are those of both releases.
_CONSTANTS = {
    "Integer.MAX_VALUE": "2147483647",
    "Byte.MAX_VALUE": "127",
    "BatchConsumeQueue.CQ_STORE_UNIT_SIZE": "46",
    "ConsumeQueue.CQ_STORE_UNIT_SIZE": "20",
    "SizeUnit.GB": str(1 << 30),
    "SizeUnit.MB": str(1 << 20),
    "TimeUnit.MINUTES.toMillis": "60000 * ",
    "PermName.PERM_READ | PermName.PERM_WRITE": "6",
    "MixAll.MASTER_ID": "0",
    "DEFAULT_CLUSTER_NAME": '"DefaultCluster"',
    "MixAll.DEFAULT_TRACE_REGION_ID": '"DefaultRegion"',
    "TopicValidator.RMQ_SYS_TRACE_TOPIC": '"RMQ_SYS_TRACE_TOPIC"',
    "BrokerRole.ASYNC_MASTER": '"ASYNC_MASTER"',
    "FlushDiskType.ASYNC_FLUSH": '"ASYNC_FLUSH"',
    "MessageRequestMode.PULL": '"PULL"',
    "MetricsExporterType.DISABLE": '"DISABLE"',
    "ConfigManagerVersion.V1.getVersion()": '"v1"',
    'StoreType.DEFAULT.getStoreType() + ";" + StoreType.DEFAULT_ROCKSDB.getStoreType()': '"default;defaultRocksDB"',
    "StoreType.DEFAULT.getStoreType()": '"default"',
    "CompressionType.ZSTD_COMPRESSION.getLibraryName()": '"zstd"',
    "CompressionType.LZ4_COMPRESSION.getLibraryName()": '"lz4"',
}
_ARITHMETIC = re.compile(r"[-\d.*/()\s]+")


class Sources:
    """The source jars of a release below ``folder``."""

    def __init__(self, folder: Path, release: str) -> None:
        self._folder, self._release = folder, release

    def read(self, module: str, path: str) -> str:
        """The source of the class ``path`` below org/apache/rocketmq, of the jar of ``module``."""
        release = UNCHANGED.get(module, self._release)
        jar = self._folder / f"rocketmq-{module}" / release / f"rocketmq-{module}-{release}-sources.jar"
        with zipfile.ZipFile(jar) as entries:
            return entries.read(f"org/apache/rocketmq/{path}.java").decode()


def default(expression: str | None) -> str | None:
    """The text of a field's default; None if it depends on the machine."""
    if expression is None or expression == "null":
        return ""
    for name, value in _CONSTANTS.items():
        expression = expression.replace(name, value)
    if expression in ("true", "false"):
        return expression
    if re.fullmatch(r'"[^"]*"', expression):
        return expression[1:-1]
    number = re.sub(r"(?<=[\d])L|(?<=\d)_(?=\d)", "", expression)
    if not _ARITHMETIC.fullmatch(number):
        return None
    return str(eval(number if "." in number else number.replace("/", "//")))


def read_class(texts: list[str]) -> tuple[dict[str, str | None], list[str]]:
    """The keys with their defaults, and the fields without a setter, of one configuration class and its parents."""
    fields = {name: default(value or None) for text in texts for name, value in _FIELD.findall(text)}
    settable = {first.lower() + rest for text in texts for first, rest in _SETTER.findall(text)}
    by_key = {name.lower(): value for name, value in fields.items()}
    keys = {key: by_key.get(key.lower(), by_key.get(f"is{key.lower()}")) for key in sorted(settable)}
    with_setter = {key.lower() for key in settable}
    return keys, sorted(name for name in fields if name.lower() not in with_setter)


def names(sources: Sources) -> dict[str, object]:
    """What a file has."""
    keys, unset = {}, {}
    for name, (module, *paths) in CONFIGS.items():
        keys[name], unset[name] = read_class([sources.read(module, path) for path in paths])
    codes = _CODE.findall(sources.read("remoting", "remoting/protocol/RequestCode"))
    return {
        "requestCodes": {name: int(number) for name, number in codes},
        "keys": keys,
        "withoutSetter": unset,
        "startup": sorted(_STARTUP.findall(sources.read("broker", "broker/BrokerStartup"))),
        "topicAttributes": sorted(_ATTRIBUTE.findall(sources.read("common", "common/TopicAttributes"))),
        "groupAttributes": sorted(_ATTRIBUTE.findall(sources.read("common", "common/SubscriptionGroupAttributes"))),
    }


def main() -> None:
    """Write the files."""
    jars = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.home() / ".m2/repository/org/apache/rocketmq"
    for release in RELEASES:
        found = names(Sources(jars, release))
        (FOLDER / f"rocketmq-{release}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
