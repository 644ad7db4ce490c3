"""Sends orders and handles them in a consumer group, with the blocking client.

    python examples/orders.py [NAMESRV] [--orders N]

NAMESRV is the name server of a live cluster, such as 127.0.0.1:9876. Without it the program runs a broker of its own.
A message is committed after the listener has returned, so an order that fails comes again.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence
from contextlib import ExitStack

from gantrymq import ConsumeConcurrentlyStatus, EmbeddedBroker, Message, Producer, PushConsumer, ReceivedMessage

TOPIC, GROUP = "orders", "billing"


class Billing:
    """A listener that bills each order once, although an order may be delivered more than once."""

    def __init__(self, wanted: int) -> None:
        self.billed: set[str] = set()
        self.done = threading.Event()
        self._wanted = wanted
        self._lock = threading.Lock()

    def __call__(self, messages: Sequence[ReceivedMessage], context: object) -> ConsumeConcurrentlyStatus:
        for message in messages:
            with self._lock:
                self.billed.update(message.keys)
                if len(self.billed) >= self._wanted:
                    self.done.set()
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("namesrv", nargs="?")
    parser.add_argument("--orders", type=int, default=100)
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        namesrv = given.namesrv or stack.enter_context(EmbeddedBroker()).namesrv
        with Producer(namesrv, producer_group="shop") as producer:
            for number in range(given.orders):
                producer.send(Message(TOPIC, b'{"cents": 4700}', tags="paid", keys=(f"order-{number}",)))
        billing = Billing(given.orders)
        with PushConsumer(namesrv, consumer_group=GROUP, consume_from_where="CONSUME_FROM_FIRST_OFFSET") as consumer:
            consumer.subscribe(TOPIC, "paid")
            consumer.listen(billing)
            consumer.start()
            if not billing.done.wait(60):
                raise SystemExit(f"only {len(billing.billed)} of {given.orders} orders were delivered within a minute")
        print(f"{given.orders} orders sent, {len(billing.billed)} billed")


if __name__ == "__main__":
    main()
