"""Lite topics of RocketMQ's brokers: ``lite broker|parent|topic|client|group|dispatch``."""

from __future__ import annotations

from typing import Annotated

import typer

from gantrymq.cli.admin.session import Broker, Cluster, Session, Target, admin_command, watched

Parent = Annotated[str, typer.Argument(metavar="TOPIC", help="The parent topic.", show_default=False)]
Lite = Annotated[str, typer.Argument(metavar="LITETOPIC", help="The lite topic.", show_default=False)]
Group = Annotated[str, typer.Option("-g", "--group", metavar="GROUP", help="The group.", show_default=False)]
Client = Annotated[str | None, typer.Option("--client", metavar="ID", help="Only this consumer.", show_default=False)]


def _brokers_of(session: Session, topic: str, broker: str | None = None) -> list[Target]:
    """The masters that have a topic. Raises MQClientError if there is no such topic."""
    names = {data.broker_name for data in session.admin.topic_route(topic).broker_datas}
    return [master for master in session.masters(broker) if master.name in names]


@watched
def lite_broker(session: Session, broker: Broker = None, cluster: Cluster = None) -> None:
    """Show how many light queues and subscriptions each broker has.

    Examples of use:

        gantrymq admin lite broker -b broker-a
    """
    from msgspec import to_builtins

    answers = session.each(
        session.masters(broker, cluster), lambda target: session.admin.broker_lite_info(target.address)
    )
    rows = [{**target.fields(), **to_builtins(answer)} for target, answer in answers]
    columns = {
        "brokerName": "broker",
        "storeType": "store",
        "maxLmqNum": ">most",
        "currentLmqNum": ">light queues",
        "liteSubscriptionCount": ">subscriptions",
        "orderInfoCount": ">ordered",
        "cqTableSize": ">queues",
        "offsetTableSize": ">offsets",
        "eventMapSize": ">events",
    }
    session.rows(rows, columns)


@watched
def lite_parent(session: Session, topic: Parent) -> None:
    """Show how many lite topics a topic has at each broker, and its groups.

    Examples of use:

        gantrymq admin lite parent orders
    """
    answers = session.each(
        _brokers_of(session, topic), lambda target: session.admin.parent_topic_info(target.address, topic)
    )
    rows = [
        {
            **target.fields(),
            "topic": topic,
            "ttl": answer.ttl,
            "liteTopicCount": answer.lite_topic_count,
            "lmqNum": answer.lmq_num,
            "groups": answer.groups,
        }
        for target, answer in answers
    ]
    columns = {
        "brokerName": "broker",
        "ttl": ">minutes",
        "liteTopicCount": ">lite topics",
        "lmqNum": ">light queues",
        "groups": "groups",
    }
    session.rows(rows, columns)


@watched
def lite_topic(session: Session, topic: Parent, lite: Lite) -> None:
    """Show the offsets and the subscribers of a lite topic at each broker.

    Examples of use:

        gantrymq admin lite topic orders order-4711
    """
    answers = session.each(
        _brokers_of(session, topic), lambda target: session.admin.lite_topic_info(target.address, topic, lite)
    )
    rows = [
        {
            **target.fields(),
            "topic": topic,
            "liteTopic": lite,
            "minOffset": answer.topic_offset.min_offset,
            "maxOffset": answer.topic_offset.max_offset,
            "lastUpdateTimestamp": answer.topic_offset.last_update_timestamp,
            "shardingToBroker": answer.sharding_to_broker,
            "subscribers": [f"{subscriber.client_id}@{subscriber.group}" for subscriber in answer.subscriber],
        }
        for target, answer in answers
    ]
    columns = {
        "brokerName": "broker",
        "minOffset": ">min",
        "maxOffset": ">max",
        "lastUpdateTimestamp": "last message",
        "shardingToBroker": "here",
        "subscribers": "subscribers",
    }
    session.rows(rows, columns)


@watched
def lite_client(
    session: Session,
    topic: Parent,
    client: Annotated[str, typer.Argument(metavar="ID", help="The consumer's id.", show_default=False)],
    group: Group,
) -> None:
    """Show the lite topics that a consumer subscribes to.

    Examples of use:

        gantrymq admin lite client orders 10.0.0.1@4711 -g invoices
    """
    answers = session.each(
        _brokers_of(session, topic), lambda target: session.admin.lite_client_info(target.address, topic, group, client)
    )
    rows = [
        {
            **target.fields(),
            "topic": topic,
            "group": group,
            "clientId": client,
            "liteTopicCount": answer.lite_topic_count,
            "lastAccessTimestamp": answer.last_access_time,
            "lastConsumeTimestamp": answer.last_consume_time,
            "liteTopics": answer.lite_topic_set,
        }
        for target, answer in answers
    ]
    columns = {
        "brokerName": "broker",
        "liteTopicCount": ">lite topics",
        "lastAccessTimestamp": "seen",
        "lastConsumeTimestamp": "consumed",
        "liteTopics": "topics",
    }
    session.rows(rows, columns)


@watched
def lite_group(
    session: Session,
    topic: Parent,
    group: Group,
    lite: Annotated[str | None, typer.Option("--lite-topic", metavar="NAME", help="Only this lite topic.")] = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="The N lite topics that are furthest.")] = 20,
) -> None:
    """Show how far a group is behind in lite topics.

    Examples of use:

        gantrymq admin lite group orders -g invoices --top 5
        gantrymq admin lite group orders -g invoices --lite-topic order-4711
    """
    answers = session.each(
        _brokers_of(session, topic),
        lambda target: session.admin.lite_group_info(target.address, group, lite, top_k=top),
    )
    rows: list[dict[str, object]] = []
    for target, answer in answers:
        base = {
            **target.fields(),
            "topic": topic,
            "group": group,
            "totalLagCount": answer.total_lag_count,
            "earliestUnconsumedTimestamp": answer.earliest_unconsumed_timestamp,
        }
        wrapper = answer.lite_topic_offset_wrapper
        if lite is not None:
            offsets = {
                "liteTopic": lite,
                "brokerOffset": wrapper.broker_offset if wrapper else None,
                "consumerOffset": wrapper.consumer_offset if wrapper else None,
                "lagCount": wrapper.broker_offset - wrapper.consumer_offset if wrapper else None,
                "lastTimestamp": wrapper.last_timestamp if wrapper else None,
            }
            rows.append({**base, **offsets})
            continue
        tops = {lag.lite_topic: lag for lag in (*answer.lag_count_top_k, *answer.lag_timestamp_top_k)}
        rows += [
            {
                **base,
                "liteTopic": lag.lite_topic,
                "lagCount": lag.lag_count,
                "unconsumedTimestamp": lag.earliest_unconsumed_timestamp,
            }
            for lag in sorted(tops.values(), key=lambda lag: -lag.lag_count)
        ] or [base]
    columns = {
        "brokerName": "broker",
        "totalLagCount": ">behind",
        "liteTopic": "lite topic",
        "lagCount": ">in it",
        **({} if lite is None else {"brokerOffset": ">end", "consumerOffset": ">committed"}),
    }
    session.rows(rows, columns)


@admin_command
def lite_dispatch(session: Session, topic: Parent, group: Group, client: Client = None, broker: Broker = None) -> None:
    """Make brokers look for messages for the consumers of a group now.

    Examples of use:

        gantrymq admin lite dispatch orders -g invoices
    """
    done = session.each(
        _brokers_of(session, topic, broker),
        lambda target: session.admin.trigger_lite_dispatch(target.address, group, client),
    )
    rows = [{**target.fields(), "group": group, "done": "dispatched"} for target, _ in done]
    session.rows(rows, {"brokerName": "broker", "group": "group", "done": "done"})
