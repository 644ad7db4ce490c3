"""The delays of RocketMQ: its delay levels, and which of them a failed message waits for.

A message that fails for the first time waits for level 3, the next time for level 4, and so on. Brokers, consumers and
the 5.x clients must agree on that, so all of them ask here.

Source: MessageStoreConfig.messageDelayLevel, ConsumerSendMsgBackProcessor, CustomizedRetryPolicy,
DefaultMQPushConsumerImpl (popDelayLevel), PopReviveService (ckRewriteIntervalsInSeconds).
"""

from gantrymq.model.spans import parse_delay_ms

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
FIRST_RETRY_LEVEL = 3
_POP_STEP_S = 20  # only PopReviveService has this step


def parse_delay_levels_ms(text: str) -> tuple[int, ...]:
    """Return the delay of each level in milliseconds, level 1 first; empty if the text is invalid."""
    levels = []
    for word in text.split():
        delay_ms = parse_delay_ms(word)
        if delay_ms is None:
            return ()
        levels.append(delay_ms)
    return tuple(levels)


DELAYS_S = tuple(delay_ms // 1000 for delay_ms in parse_delay_levels_ms(DELAY_LEVELS))


def retry_level(failures: int) -> int:
    """Return the delay level of a message that has failed ``failures`` times before this time."""
    return FIRST_RETRY_LEVEL + max(failures, 0)


def retry_delay(failures: int, delays: "list[int] | tuple[int, ...]" = DELAYS_S) -> int:
    """Return the delay after that many earlier failures, of a list that begins with level 1; the last one above it."""
    return delays[min(retry_level(failures), len(delays)) - 1]


def pop_rewrite_delays_s() -> tuple[int, ...]:
    """Return the delays (s) after which a popped message that could not be put is tried again."""
    return tuple(sorted({*DELAYS_S[FIRST_RETRY_LEVEL - 1 :], _POP_STEP_S}))
