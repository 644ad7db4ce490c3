"""What all tests against the real RocketMQ share."""

import os
from collections.abc import Iterator

import pytest

from .java import JVM_OPTIONS, build_jar, java_available, java_required, use_class_archives
from .java_cluster import JavaCluster

# These processes live for seconds: what matters is how soon they have started. It halves their processor time. A client
# that sees one processor has too few threads to answer a broker while it asks it.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ActiveProcessorCount=2"


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    """The real RocketMQ, built; without Maven or a JDK the tests of this folder skip, or fail where it is required."""
    reason = java_available()
    if reason:
        (pytest.fail if java_required() else pytest.skip)(f"interop: {reason}")
    build_jar()
    if JVM_OPTIONS not in os.environ:
        os.environ[JVM_OPTIONS] = f"{QUICK} -Xlog:disable"
        use_class_archives()


@pytest.fixture(scope="session")
def cluster(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    """The real name server and broker, one for all tests: use topics of your own, and neither kill nor stop it."""
    with JavaCluster(tmp_path_factory.mktemp("cluster") / "store") as running:
        yield running
