"""The real client and admin against a name server and a broker: what they find is what they find at the real ones."""

import json
from collections.abc import Iterator

import pytest

from gantrymq import EmbeddedBroker

from .client_cases import SETTINGS, names, play, recorded
from .java import Line, as_by_old_release
from .java_cluster import JavaCluster
from .our_broker import OurBroker

CASES = sorted(recorded())
# A binary header cannot tell an empty text from none: the real broker trips over a topic that is none, ours says so.
NO_EMPTY_TEXT = {"refused-topic-names": "blank"}


def test_every_case_is_recorded() -> None:
    assert sorted(names()) == CASES


@pytest.fixture(scope="module", params=["json", "binary"])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Line]]:
    """Every case once against the real name server and broker, with one kind of headers."""
    store = tmp_path_factory.mktemp("real") / "store"
    with JavaCluster(store, SETTINGS) as cluster:
        yield play(cluster.namesrv, binary=request.param == "binary")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_real_broker_has_recorded_results(real: dict[str, Line], case: str) -> None:
    same(real[case], case)


@pytest.fixture(scope="module")
def ours() -> Iterator[dict[str, Line]]:
    """Every case once against our broker behind our name server."""
    with EmbeddedBroker(settings=SETTINGS) as broker:
        yield play(broker.namesrv)


@pytest.mark.parametrize("case", CASES)
def test_our_servers_have_results_of_real_ones(ours: dict[str, Line], case: str) -> None:
    same(ours[case], case)


@pytest.fixture(scope="module", params=["json", "binary"])
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Line]]:
    """Every case once against our broker behind the real name server, with one kind of headers."""
    store = tmp_path_factory.mktemp("ours") / "store"
    with JavaCluster(None, broker=False) as cluster, OurBroker(store, SETTINGS, namesrv=cluster.namesrv):
        yield play(cluster.namesrv, binary=request.param == "binary")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_our_broker_has_results_of_real_one(mixed: dict[str, Line], case: str) -> None:
    same(mixed[case], case)


def same(line: Line, case: str) -> None:
    assert line["ok"], line["error"]
    found, wanted = json.loads(as_by_old_release(json.dumps(line["facts"]))), dict(recorded()[case])
    unlike = NO_EMPTY_TEXT.get(case, "")
    if found.get(unlike, {}).get("type") == "MQClientException":
        del found[unlike], wanted[unlike]
    assert found == wanted
