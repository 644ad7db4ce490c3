"""The real client and admin against a name server and a broker: what they find is what they find at the real ones."""

from collections.abc import Iterator

import pytest

from .client_cases import SETTINGS, names, play, recorded
from .java import Line
from .java_cluster import JavaCluster

CASES = sorted(recorded())


def test_every_case_is_recorded() -> None:
    assert sorted(names()) == CASES


@pytest.fixture(scope="module", params=["json", "binary"])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Line]]:
    """Every case once against the real name server and broker, with one kind of headers."""
    with JavaCluster(tmp_path_factory.mktemp("real") / "store", SETTINGS) as cluster:
        yield play(cluster.namesrv, binary=request.param == "binary")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_real_broker_is_as_recorded(real: dict[str, Line], case: str) -> None:
    same(real[case], case)


def same(line: Line, case: str) -> None:
    assert line["ok"], line["error"]
    assert line["facts"] == recorded()[case]
