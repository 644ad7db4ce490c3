"""The names behind the carriers' codes, for labels."""

from __future__ import annotations

_NAMES = {
    "9E": "Endeavor",
    "AA": "American",
    "AS": "Alaska",
    "B6": "JetBlue",
    "DL": "Delta",
    "EV": "ExpressJet",
    "F9": "Frontier",
    "FL": "AirTran",
    "HA": "Hawaiian",
    "MQ": "Envoy",
    "OO": "SkyWest",
    "UA": "United",
    "US": "US Airways",
    "VX": "Virgin America",
    "WN": "Southwest",
    "YV": "Mesa",
}


def airline(code: str) -> str:
    """The airline's name and code."""
    return f"{_NAMES[code]} {code}" if code in _NAMES else code
