// RocketMQ's SDK for Node.js behind the line protocol of interop/grpc/README.md: JSON lines on stdin and stdout.
'use strict';

const { createHash } = require('node:crypto');
const { createInterface } = require('node:readline');
const { setTimeout: sleep } = require('node:timers/promises');
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const OWN_CODES = 20000; // a status of the protocol; lower codes are gRPC's own
const quiet = () => {};
const logger = { debug: quiet, info: quiet, warn: quiet, error: quiet, close: quiet };
const clients = new Map();
const inboxes = new Map();
const checks = new Map();
const transactions = new Map();
const messages = [];

// Notes every message, takes `consumeMs` for it, and fails it if its delivery attempt is at most `fail`.
class Inbox {
  constructor(fail, consumeMs) {
    this.fail = fail;
    this.consumeMs = consumeMs;
    this.lines = [];
    this.waiting = [];
  }

  async consume(message) {
    this.lines.push(lineOf(message));
    this.waiting = this.waiting.filter(one => !one());
    if (this.consumeMs) await sleep(this.consumeMs);
    return message.deliveryAttempt <= this.fail ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
  }

  wait(count, timeoutMs) {
    if (this.lines.length >= count) return this.lines;
    return new Promise(resolve => {
      const timer = setTimeout(() => resolve(this.lines), timeoutMs);
      this.waiting.push(() => {
        if (this.lines.length < count) return false;
        clearTimeout(timer);
        resolve(this.lines);
        return true;
      });
    });
  }
}

function lineOf(message) {
  return {
    id: message.messageId,
    topic: message.topic,
    sha256: createHash('sha256').update(message.body).digest('hex'),
    size: message.body.length,
    tag: message.tag || null,
    keys: [ ...message.keys ].sort(),
    properties: Object.fromEntries(message.properties),
    group: message.messageGroup || null,
    attempt: message.deliveryAttempt,
    deliverAtMs: message.deliveryTimestamp ? message.deliveryTimestamp.getTime() : null,
    priority: message.priority || null,
    atMs: Date.now(),
  };
}

function messageOf({ topic, body, size, tag, keys, properties, group, deliverAtMs, priority }) {
  return {
    topic,
    body: size === undefined ? Buffer.from(body) : Buffer.alloc(size, body),
    tag,
    keys,
    properties: new Map(Object.entries(properties ?? {})),
    messageGroup: group,
    deliveryTimestamp: deliverAtMs === undefined ? undefined : new Date(deliverAtMs),
    priority,
  };
}

function configuration({ endpoints, tls, namespace = '', accessKey, secretKey }) {
  const sessionCredentials = accessKey ? { accessKey, accessSecret: secretKey } : undefined;
  return { endpoints, namespace, sslEnabled: tls === true, requestTimeout: 10000, sessionCredentials, logger };
}

function filters(subscriptions) {
  const kinds = { TAG: FilterType.TAG, SQL92: FilterType.SQL };
  return new Map(subscriptions.map(one => [ one.topic, new FilterExpression(one.expression, kinds[one.type]) ]));
}

async function started(name, client) {
  await client.startup();
  clients.set(name, client);
  return { clientId: client.clientId };
}

const commands = {
  producer(request) {
    const asked = [];
    const checker = request.check && {
      async check(message) {
        asked.push([ ...message.keys ].sort());
        const { COMMIT, ROLLBACK, TRANSACTION_RESOLUTION_UNSPECIFIED } = TransactionResolution;
        return { COMMIT, ROLLBACK, UNKNOWN: TRANSACTION_RESOLUTION_UNSPECIFIED }[request.check];
      },
    };
    checks.set(request.name, asked);
    return started(request.name, new Producer({ ...configuration(request), topics: request.topics, checker }));
  },

  consumer(request) {
    return started(request.name, new SimpleConsumer({
      ...configuration(request),
      consumerGroup: request.group,
      subscriptions: filters(request.subscriptions),
      awaitDuration: request.awaitMs,
      maxRetryAttempts: 1,
    }));
  },

  push(request) {
    const messageListener = new Inbox(request.fail ?? 0, request.consumeMs ?? 0);
    inboxes.set(request.name, messageListener);
    return started(request.name, new PushConsumer({
      ...configuration(request),
      consumerGroup: request.group,
      subscriptions: filters(request.subscriptions),
      messageListener,
    }));
  },

  async send({ client, message, transaction }) {
    const producer = clients.get(client);
    const begun = transaction && producer.beginTransaction();
    const receipt = await producer.send(messageOf(message), begun);
    if (begun) transactions.set(transaction, begun);
    return { id: receipt.messageId, recall: receipt.recallHandle || null };
  },

  async end({ transaction, resolution }) {
    const begun = transactions.get(transaction);
    await (resolution === 'COMMIT' ? begun.commit() : begun.rollback());
    return {};
  },

  checks: ({ client }) => ({ keys: checks.get(client) }),

  async recall({ client, topic, handle }) {
    return { id: (await clients.get(client).recallMessage(topic, handle)).messageId };
  },

  async receive({ client, max, invisibleMs }) {
    const received = await clients.get(client).receive(max, invisibleMs);
    return { messages: received.map(message => ({ ...lineOf(message), handle: messages.push(message) - 1 })) };
  },

  async ack({ client, handle }) {
    await clients.get(client).ack(messages[handle]);
    return {};
  },

  async invisible({ client, handle, ms }) {
    await clients.get(client).changeInvisibleDuration(messages[handle], ms);
    return {};
  },

  async inbox({ client, count, timeoutMs }) {
    return { messages: await inboxes.get(client).wait(count, timeoutMs) };
  },

  async close({ client }) {
    await clients.get(client).shutdown();
    clients.delete(client);
    return {};
  },
};

async function answer({ id, do: command, ...request }) {
  let reply;
  try {
    reply = { id, result: await commands[command](request) };
  } catch (error) {
    const code = error.code >= OWN_CODES ? error.code : null;
    reply = { id, error: { type: error.constructor.name, code, message: String(error.message) } };
  }
  process.stdout.write(JSON.stringify(reply) + '\n');
}

// A call that failed in the background of the SDK is not the end of the program.
process.on('unhandledRejection', error => console.error('unhandled:', error));
process.on('uncaughtException', error => console.error('uncaught:', error));
createInterface({ input: process.stdin })
  .on('line', line => answer(JSON.parse(line)))
  .on('close', () => process.exit(0));
