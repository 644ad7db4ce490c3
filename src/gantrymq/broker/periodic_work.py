"""What a broker does again and again while it serves, and how often.

Source: BrokerController.initializeBrokerScheduledTasks, ClientHousekeepingService.
"""

from __future__ import annotations

from gantrymq.broker.acl.access_control import WATCH_INTERVAL_MS
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.schedule import Schedule
from gantrymq.broker.sessions.long_polling import CHECK_INTERVAL_MS
from gantrymq.broker.statistics import SAMPLE_MS
from gantrymq.broker.transactions.check import TICK_MS, TransactionalMessageCheckService
from gantrymq.clock import monotonic_ms
from gantrymq.remoting.transport.turns import in_slices

_EXPIRE_INTERVAL_MS = 1_000
_RATE_SAMPLE_MS = 1_000
_SCAN_INTERVAL_MS = 10_000  # ClientHousekeepingService


class PeriodicWork:
    """The periodic tasks of one broker. Thread rule: the event loop's thread."""

    def __init__(self, context: BrokerContext, transactions: TransactionalMessageCheckService) -> None:
        self._context, self._transactions = context, transactions
        self._began_ms = monotonic_ms(context.clock)

    def begin(self) -> Schedule:
        """Begin all tasks. The schedule that is returned stops them."""
        context, config, holds = self._context, self._context.config, self._context.sessions.holds
        schedule = Schedule()
        schedule.every("long polling, late", lambda: _EXPIRE_INTERVAL_MS, holds.expire)
        schedule.every("long polling, all", lambda: CHECK_INTERVAL_MS, holds.check)
        save = context.tables.persistence.save_all
        schedule.every("configuration", lambda: config.broker.flush_consumer_offset_interval_ms, save)
        schedule.every("silent clients", lambda: _SCAN_INTERVAL_MS, self.expire_clients)
        schedule.every("statistics", lambda: SAMPLE_MS, self._sample_stats)
        if not config.is_slave:
            self._begin_owed(schedule)
        if context.answers.access is not None:
            schedule.every("access control", lambda: WATCH_INTERVAL_MS, context.answers.access.reload)
        schedule.every("rates", lambda: _RATE_SAMPLE_MS, self._sample_rates)
        schedule.every("registration", self._registration_interval_ms, self._register_again)
        if config.broker.enable_slave_acting_master:
            beat = context.outer.heart_beat
            schedule.every("heart-beat", lambda: config.broker.broker_heartbeat_interval_ms, beat)
        return schedule

    def _begin_owed(self, schedule: Schedule) -> None:
        """Begin what a broker owes for stored messages. At a slave its master does that."""
        context, config = self._context, self._context.config
        write_ops = context.decisions.ops.write_all
        schedule.every("op messages", lambda: config.broker.transaction_op_batch_interval_ms, write_ops)
        schedule.every("transactions", lambda: TICK_MS, self._transactions.run_if_due)
        context.pop.schedule(schedule)

    def expire_clients(self) -> None:
        """Remove the clients, locks and filters whose time is over."""
        sessions, tables, broker = self._context.sessions, self._context.tables, self._context.config.broker
        now_ms = monotonic_ms(self._context.clock)
        sessions.producers.expire(now_ms)
        sessions.locks.expire(now_ms)
        tables.filters.expire()
        sessions.consumers.expire(now_ms, broker.channel_expired_timeout_ms, broker.subscription_expired_timeout_ms)
        # By now all connected clients have sent a heartbeat.
        if now_ms - self._began_ms > broker.channel_expired_timeout_ms:
            tables.offsets.forget_resets(
                lambda topic, group: topic in tables.topics or sessions.consumers.group(group) is not None
            )

    async def _sample_stats(self) -> None:
        async for _ in in_slices(self._context.measures.stats.samples(monotonic_ms(self._context.clock))):
            pass

    def _sample_rates(self) -> None:
        measures = self._context.measures
        measures.store.sample(self._context.clock.now_ms(), measures.stats.put_total, measures.stats.get_total)

    def _registration_interval_ms(self) -> int:
        return max(10_000, min(self._context.config.broker.register_name_server_period_ms, 60_000))

    async def _register_again(self) -> None:
        outer = self._context.outer
        outer.look_again()
        if self._context.config.broker.force_register or await outer.needs_register():
            await outer.register()
