"""The parts that a broker's processors are built from, in groups. Each processor takes those that it needs."""

from __future__ import annotations

from dataclasses import dataclass

from gantrymq.broker.acl.user_access import UserAccess
from gantrymq.broker.answers import Answers
from gantrymq.broker.measures import Measures
from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.broker.pop.service import Pop
from gantrymq.broker.replication import Replication
from gantrymq.broker.sessions.sessions import Sessions
from gantrymq.broker.storage import Storage
from gantrymq.broker.tables.tables import Tables
from gantrymq.broker.transactions.decisions import Decisions
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """The parts of a broker. Functions that construct a part take the whole context, and parts take the groups.

    The periodic work and the collector of metrics are the exceptions, because they are about all of them.
    """

    config: LiveConfig
    clock: Clock
    storage: Storage
    tables: Tables
    sessions: Sessions
    pop: Pop
    measures: Measures
    decisions: Decisions
    outer: BrokerOuterAPI
    replication: Replication
    answers: Answers
    users: UserAccess | None
    address: str
