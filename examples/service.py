"""A web service that sends a message for each request, and handles messages while it runs (Starlette; FastAPI alike).

    pip install 'gantrymq[console]'         # brings starlette and uvicorn
    gantrymq serve --store ~/store &     # or a cluster of yours
    ROCKETMQ=127.0.0.1:9876 uvicorn examples.service:app
    curl -X POST -d '{"cents": 4700}' http://127.0.0.1:8000/orders/4711
    curl http://127.0.0.1:8000/handled

The clients live as long as the application: `lifespan` starts and closes them. A request is answered after the broker
has acknowledged the message.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from gantrymq import AsyncProducer, AsyncPushConsumer, ConsumeConcurrentlyStatus, Message
from gantrymq.errors import GantrymqError

TOPIC, GROUP = "orders", "service"


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    namesrv = os.environ["ROCKETMQ"]
    app.state.handled = []

    async def handle(messages, context) -> ConsumeConcurrentlyStatus:  # type: ignore[no-untyped-def]
        app.state.handled += [message.keys[0] for message in messages]
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async with (
        AsyncProducer(namesrv, producer_group=GROUP) as app.state.producer,
        AsyncPushConsumer(namesrv, consumer_group=GROUP, consume_from_where="CONSUME_FROM_FIRST_OFFSET") as consumer,
    ):
        consumer.subscribe(TOPIC)
        consumer.listen(handle)
        await consumer.start()
        yield


async def order(request: Request) -> JSONResponse:
    number = request.path_params["number"]
    try:
        result = await request.app.state.producer.send(Message(TOPIC, await request.body(), keys=(number,)))
    except GantrymqError as error:  # the order may be stored: the caller may repeat it, the listener knows its key
        return JSONResponse({"error": str(error)}, status_code=503)
    return JSONResponse({"msgId": result.msg_id}, status_code=202)


async def handled(request: Request) -> JSONResponse:
    return JSONResponse(sorted(set(request.app.state.handled)))


app = Starlette(
    routes=[Route("/orders/{number}", order, methods=["POST"]), Route("/handled", handled)], lifespan=lifespan
)
