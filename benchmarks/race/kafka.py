"""A real Kafka broker, its Python clients, Spark's connector and Delta for Spark, for the races beside Kafka.

Kafka's connector is complete on Maven Central for Spark 4.0.0. Spark's versions do not mix, so it runs with that
PySpark in its own environment. Everything is cached in a directory.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Self

from benchmarks.race.process import free_port

KAFKA = "3.9.0"
CLIENTS = ("aiokafka==0.14.0", "confluent-kafka==2.16.1")
SPARK = "4.0.0"
DELTA = "4.0.0"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>gantrymq.race</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{dependencies}</dependencies></project>
"""
_DEPENDENCY = """<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
<exclusions>{exclusions}</exclusions></dependency>"""
# The jars of the connector and of Delta, and only those of their dependencies that Spark does not bring along.
_NOT_WANTED = (
    *(("org.apache.spark", f"spark-{part}_2.13") for part in ("sql", "tags", "core", "catalyst")),
    ("org.scala-lang", "*"),
)
_SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={logs}
num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
_READY_S = 60


def missing() -> bool:
    """Whether Java or Maven is missing, which a Kafka broker needs."""
    return shutil.which("java") is None or shutil.which("mvn") is None


def home() -> Path:
    """The cache directory of everything here."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "gantrymq" / "kafka"


def fetch_broker() -> Path:
    """Fetch Kafka if it is missing. Returns its jars."""
    return _copied("kafka", [_dependency("org.apache.kafka", "kafka_2.13", KAFKA, ())])


def fetch_clients() -> Path:
    """Fetch aiokafka and confluent-kafka if they are missing. Returns the Python that has them."""
    return _with_packages("clients", CLIENTS)


def fetch_spark() -> tuple[Path, Path]:
    """Fetch what is missing. Returns (the connector's jars, the Python that has PySpark for it)."""
    of_spark = [
        _dependency("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK, _NOT_WANTED),
        _dependency("io.delta", "delta-spark_2.13", DELTA, _NOT_WANTED),
    ]
    return _copied("connectors", of_spark), _with_packages("venv", (f"pyspark=={SPARK}",))


def _with_packages(name: str, packages: tuple[str, ...]) -> Path:
    python = home() / name / "bin" / "python"
    done = home() / name / f".{'-'.join(packages)}"
    if not done.exists():
        print(f"  {' '.join(packages)} …", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home() / name)], check=True)
        subprocess.run([python, "-m", "pip", "-q", "install", *packages], check=True)
        done.touch()
    return python


def _dependency(group: str, artifact: str, version: str, exclusions: tuple[tuple[str, str], ...]) -> str:
    left_out = "".join(
        f"<exclusion><groupId>{one}</groupId><artifactId>{other}</artifactId></exclusion>" for one, other in exclusions
    )
    return _DEPENDENCY.format(group=group, artifact=artifact, version=version, exclusions=left_out)


def _copied(name: str, dependencies: list[str]) -> Path:
    target = home() / name
    if not (target / ".done").exists():
        print(f"  {name} …", file=sys.stderr)
        target.mkdir(parents=True, exist_ok=True)
        pom = home() / f"{name}.xml"
        pom.write_text(_POM.format(name=name, dependencies="".join(dependencies)))
        words = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
        subprocess.run(words, check=True, stdout=sys.stderr)
        (target / ".done").touch()
    return target


class KafkaBroker:
    """A broker that is also its own controller, on free ports of 127.0.0.1. Use it as a context manager."""

    def __init__(self, jars: Path, directory: Path) -> None:
        self._classes, self._directory = f"{jars}/*", directory
        self.address = ""

    def __enter__(self) -> Self:
        """Start the broker. Raises RuntimeError with its output if it does not answer."""
        port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        self._directory.mkdir(parents=True, exist_ok=True)
        settings = self._directory / "server.properties"
        settings.write_text(_SETTINGS.format(port=port, controller=controller, logs=self._directory / "logs"))
        formats = ["format", "-t", uuid.uuid4().hex[:22], "-c", str(settings)]
        words = self._java("kafka.tools.StorageTool", *formats)
        formatted = subprocess.run(words, capture_output=True, text=True, check=False)
        if formatted.returncode:
            raise RuntimeError(formatted.stderr[-2000:])
        with (self._directory / "kafka.out").open("w") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(settings)), stdout=log, stderr=subprocess.STDOUT
            )
        try:
            self._await(port)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _await(self, port: int) -> None:
        deadline = time.monotonic() + _READY_S
        while not _answers(port):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError((self._directory / "kafka.out").read_text()[-2000:])
            time.sleep(0.2)

    def __exit__(self, *_: object) -> None:
        """Kill the broker."""
        self._process.kill()
        self._process.wait()

    def _java(self, main: str, *arguments: str) -> list[str]:
        return ["java", "-Xmx1g", "-cp", self._classes, main, *arguments]


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
