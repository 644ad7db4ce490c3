"""Spans of OpenTelemetry for what a producer sends and a consumer handles, as hooks of both.

    Producer("127.0.0.1:9876", hooks=[OpenTelemetryHook()])

It needs opentelemetry-api. The trace context travels in the properties of the message.
"""

from opentelemetry import context as contexts
from opentelemetry import propagate, trace


class OpenTelemetryHook:
    """One object may serve several clients."""

    tracer = trace.get_tracer("gantrymq")

    def send_message_before(self, context):
        topic = context.messages[0].topic
        span = self.tracer.start_span(f"send {topic}", kind=trace.SpanKind.PRODUCER)
        span.set_attributes({"messaging.system": "rocketmq", "messaging.destination.name": topic})
        for message in context.messages:
            propagate.inject(message.properties, trace.set_span_in_context(span))
        context.values["span"] = span

    def send_message_after(self, context):
        if context.error is not None:
            context.values["span"].record_exception(context.error)
        context.values["span"].end()

    def consume_message_before(self, context):
        parent = propagate.extract(context.messages[0].properties)
        span = self.tracer.start_span(f"process {context.queue.topic}", parent, kind=trace.SpanKind.CONSUMER)
        context.values["span"] = span, contexts.attach(trace.set_span_in_context(span, parent))

    def consume_message_after(self, context):
        span, token = context.values["span"]
        contexts.detach(token)
        if context.error is not None:
            span.record_exception(context.error)
        span.end()
