package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sort"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

// wanted is a message to send.
type wanted struct {
	Topic       string            `json:"topic"`
	Body        string            `json:"body"`
	Size        *int              `json:"size"`
	Tag         *string           `json:"tag"`
	Keys        []string          `json:"keys"`
	Properties  map[string]string `json:"properties"`
	Group       *string           `json:"group"`
	DeliverAtMs *int64            `json:"deliverAtMs"`
	Priority    *int32            `json:"priority"`
}

// inbox notes every message, takes pause for it, and fails it if its delivery attempt is at most fail.
type inbox struct {
	lock  sync.Mutex
	fail  int32
	pause time.Duration
	lines []map[string]any
}

func (i *inbox) consume(message *rmq.MessageView) rmq.ConsumerResult {
	i.lock.Lock()
	i.lines = append(i.lines, lineOf(message))
	i.lock.Unlock()
	time.Sleep(i.pause)
	if message.GetDeliveryAttempt() <= i.fail {
		return rmq.FAILURE
	}
	return rmq.SUCCESS
}

func (i *inbox) await(count int, timeout time.Duration) []map[string]any {
	end := time.Now().Add(timeout)
	for {
		i.lock.Lock()
		lines := append([]map[string]any{}, i.lines...)
		i.lock.Unlock()
		if len(lines) >= count || time.Now().After(end) {
			return lines
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// requestTimeout is that of the other SDKs' programs. Go's waits in a receive for this time and its await duration, and
// has the server poll for half of this time less.
const requestTimeout = 10 * time.Second

type timed interface{ SetRequestTimeout(time.Duration) }

// clients are what the commands made, by name.
type clients struct {
	lock         sync.Mutex
	tls          sync.Once
	producers    map[string]rmq.Producer
	consumers    map[string]rmq.SimpleConsumer
	pushes       map[string]rmq.PushConsumer
	inboxes      map[string]*inbox
	checks       map[string][][]string
	transactions map[string]rmq.Transaction
	messages     []*rmq.MessageView
}

func newClients() *clients {
	return &clients{
		producers: map[string]rmq.Producer{}, consumers: map[string]rmq.SimpleConsumer{},
		pushes: map[string]rmq.PushConsumer{}, inboxes: map[string]*inbox{}, checks: map[string][][]string{},
		transactions: map[string]rmq.Transaction{},
	}
}

func (c *clients) run(r *request) (map[string]any, error) {
	commands := map[string]func(*request) (map[string]any, error){
		"producer": c.producer, "consumer": c.consumer, "push": c.push, "send": c.send, "end": c.end,
		"checks": c.checked, "receive": c.receive, "ack": c.ack, "invisible": c.invisible, "inbox": c.inbox,
		"close": c.close,
	}
	command, ok := commands[r.Do]
	if !ok {
		return nil, fmt.Errorf("this SDK has no %s", r.Do)
	}
	return command(r)
}

// config; whether the SDK uses TLS is one variable for the whole program.
func (c *clients) config(r *request) *rmq.Config {
	c.tls.Do(func() { rmq.EnableSsl = r.TLS })
	keys := &credentials.SessionCredentials{AccessKey: r.AccessKey, AccessSecret: r.SecretKey}
	return &rmq.Config{Endpoint: r.Endpoints, NameSpace: r.Namespace, ConsumerGroup: r.Group, Credentials: keys}
}

func (c *clients) producer(r *request) (map[string]any, error) {
	options := []rmq.ProducerOption{rmq.WithTopics(r.Topics...)}
	if r.Check != "" {
		check := func(message *rmq.MessageView) rmq.TransactionResolution {
			c.lock.Lock()
			defer c.lock.Unlock()
			c.checks[r.Name] = append(c.checks[r.Name], sorted(message.GetKeys()))
			return map[string]rmq.TransactionResolution{"COMMIT": rmq.COMMIT, "ROLLBACK": rmq.ROLLBACK}[r.Check]
		}
		options = append(options, rmq.WithTransactionChecker(&rmq.TransactionChecker{Check: check}))
	}
	made, err := rmq.NewProducer(c.config(r), options...)
	if err != nil {
		return nil, err
	}
	made.(timed).SetRequestTimeout(requestTimeout)
	if err = made.Start(); err != nil {
		return nil, err
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	c.producers[r.Name] = made
	return map[string]any{}, nil
}

func (c *clients) consumer(r *request) (map[string]any, error) {
	made, err := rmq.NewSimpleConsumer(c.config(r),
		rmq.WithSimpleAwaitDuration(milliseconds(r.AwaitMs)), rmq.WithSimpleSubscriptionExpressions(filters(r)))
	if err != nil {
		return nil, err
	}
	made.(timed).SetRequestTimeout(requestTimeout)
	if err = made.Start(); err != nil {
		return nil, err
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	c.consumers[r.Name] = made
	return map[string]any{}, nil
}

func (c *clients) push(r *request) (map[string]any, error) {
	in := &inbox{fail: r.Fail, pause: milliseconds(r.ConsumeMs)}
	made, err := rmq.NewPushConsumer(c.config(r), rmq.WithPushSubscriptionExpressions(filters(r)),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: in.consume}))
	if err != nil {
		return nil, err
	}
	made.(timed).SetRequestTimeout(requestTimeout)
	c.lock.Lock()
	c.pushes[r.Name], c.inboxes[r.Name] = made, in
	c.lock.Unlock()
	return map[string]any{}, made.Start()
}

func (c *clients) send(r *request) (map[string]any, error) {
	producer := get(c, c.producers, r.Client)
	var receipts []*rmq.SendReceipt
	var err error
	if r.Transaction == "" {
		receipts, err = producer.Send(context.Background(), r.Message.message())
	} else {
		begun := producer.BeginTransaction()
		receipts, err = producer.SendWithTransaction(context.Background(), r.Message.message(), begun)
		c.lock.Lock()
		c.transactions[r.Transaction] = begun
		c.lock.Unlock()
	}
	if err != nil {
		return nil, err
	}
	return map[string]any{"id": receipts[0].MessageID, "recall": nil}, nil
}

func (c *clients) end(r *request) (map[string]any, error) {
	begun := get(c, c.transactions, r.Transaction)
	if r.Resolution == "COMMIT" {
		return map[string]any{}, begun.Commit()
	}
	return map[string]any{}, begun.RollBack()
}

func (c *clients) checked(r *request) (map[string]any, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	return map[string]any{"keys": append([][]string{}, c.checks[r.Client]...)}, nil
}

func (c *clients) receive(r *request) (map[string]any, error) {
	received, err := get(c, c.consumers, r.Client).Receive(context.Background(), r.Max, milliseconds(r.InvisibleMs))
	if status, ok := rmq.AsErrRpcStatus(err); ok && status.Code == int32(v2.Code_MESSAGE_NOT_FOUND) {
		received, err = nil, nil // the other SDKs return no messages
	}
	if err != nil {
		return nil, err
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	lines := []map[string]any{}
	for _, message := range received {
		line := lineOf(message)
		line["handle"] = len(c.messages)
		c.messages = append(c.messages, message)
		lines = append(lines, line)
	}
	return map[string]any{"messages": lines}, nil
}

func (c *clients) ack(r *request) (map[string]any, error) {
	message, err := c.message(r)
	if err != nil {
		return nil, err
	}
	return map[string]any{}, get(c, c.consumers, r.Client).Ack(context.Background(), message)
}

func (c *clients) invisible(r *request) (map[string]any, error) {
	message, err := c.message(r)
	if err != nil {
		return nil, err
	}
	return map[string]any{}, get(c, c.consumers, r.Client).ChangeInvisibleDuration(message, milliseconds(r.Ms))
}

func (c *clients) inbox(r *request) (map[string]any, error) {
	return map[string]any{"messages": get(c, c.inboxes, r.Client).await(r.Count, milliseconds(r.TimeoutMs))}, nil
}

func (c *clients) close(r *request) (map[string]any, error) {
	if producer := get(c, c.producers, r.Client); producer != nil {
		return map[string]any{}, producer.GracefulStop()
	}
	if consumer := get(c, c.consumers, r.Client); consumer != nil {
		return map[string]any{}, consumer.GracefulStop()
	}
	return map[string]any{}, get(c, c.pushes, r.Client).GracefulStop()
}

func (c *clients) message(r *request) (*rmq.MessageView, error) {
	handle, err := r.Handle.Int64()
	if err != nil {
		return nil, err
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.messages[handle], nil
}

func get[T any](c *clients, table map[string]T, name string) T {
	c.lock.Lock()
	defer c.lock.Unlock()
	return table[name]
}

func (w *wanted) message() *rmq.Message {
	body := []byte(w.Body)
	if w.Size != nil {
		body = make([]byte, *w.Size)
		for i := range body {
			body[i] = w.Body[i%len(w.Body)]
		}
	}
	message := &rmq.Message{Topic: w.Topic, Body: body}
	if w.Tag != nil {
		message.SetTag(*w.Tag)
	}
	message.SetKeys(w.Keys...)
	for key, value := range w.Properties {
		message.AddProperty(key, value)
	}
	if w.Group != nil {
		message.SetMessageGroup(*w.Group)
	}
	if w.DeliverAtMs != nil {
		message.SetDelayTimestamp(time.UnixMilli(*w.DeliverAtMs))
	}
	return message
}

func lineOf(message *rmq.MessageView) map[string]any {
	sum := sha256.Sum256(message.GetBody())
	properties := message.GetProperties()
	if properties == nil {
		properties = map[string]string{}
	}
	line := map[string]any{
		"id": message.GetMessageId(), "topic": message.GetTopic(), "sha256": hex.EncodeToString(sum[:]),
		"size": len(message.GetBody()), "tag": message.GetTag(), "keys": sorted(message.GetKeys()),
		"properties": properties, "group": message.GetMessageGroup(), "attempt": message.GetDeliveryAttempt(),
		"deliverAtMs": nil, "priority": nil, "atMs": time.Now().UnixMilli(),
	}
	if at := message.GetDeliveryTimestamp(); at != nil {
		line["deliverAtMs"] = at.UnixMilli()
	}
	return line
}

func filters(r *request) map[string]*rmq.FilterExpression {
	kinds := map[string]rmq.FilterExpressionType{"TAG": rmq.TAG, "SQL92": rmq.SQL92}
	made := map[string]*rmq.FilterExpression{}
	for _, one := range r.Subscriptions {
		made[one.Topic] = rmq.NewFilterExpressionWithType(one.Expression, kinds[one.Type])
	}
	return made
}

func sorted(keys []string) []string {
	copied := append([]string{}, keys...)
	sort.Strings(copied)
	return copied
}

func milliseconds(count int64) time.Duration {
	return time.Duration(count) * time.Millisecond
}
