// The basic paths of RocketMQ's Go client against a name server and its broker: a JSON object on stdout says what came of
// each. Usage: interop-go NAMESRV BROKER
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	topic  = "go-plain"
	sorted = "go-sorted"
	each   = 10
	wait   = 60 * time.Second
)

type scene struct {
	resolver primitive.NsResolver
	broker   string
	facts    map[string]any
}

func main() {
	rlog.SetLogLevel("error")
	s := &scene{primitive.NewPassthroughResolver([]string{os.Args[1]}), os.Args[2], map[string]any{}}
	for _, step := range []func() error{s.topics, s.send, s.consume, s.consumeTags, s.retry, s.order} {
		if err := step(); err != nil {
			fmt.Fprintln(os.Stderr, "interop-go:", err)
			os.Exit(1)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(s.facts); err != nil {
		os.Exit(1)
	}
}

// topics are made, listed and deleted by the administration.
func (s *scene) topics() error {
	tool, err := admin.NewAdmin(admin.WithResolver(s.resolver))
	if err != nil {
		return err
	}
	defer tool.Close()
	for _, name := range []string{topic, sorted, "go-gone"} {
		err = tool.CreateTopic(context.Background(), admin.WithTopicCreate(name), admin.WithBrokerAddrCreate(s.broker),
			admin.WithReadQueueNums(4), admin.WithWriteQueueNums(4))
		if err != nil {
			return err
		}
	}
	if err = tool.DeleteTopic(context.Background(), admin.WithTopicDelete("go-gone"),
		admin.WithBrokerAddrDelete(s.broker)); err != nil {
		return err
	}
	list, err := tool.FetchAllTopicList(context.Background())
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, name := range list.TopicList {
		known[name] = true
	}
	queues, err := tool.FetchPublishMessageQueues(context.Background(), topic)
	if err != nil {
		return err
	}
	s.facts["topics"] = []bool{known[topic], known[sorted], known["go-gone"]}
	s.facts["queues"] = len(queues)
	return nil
}

// send: each message answered, answered later, not answered, and ten in one batch.
func (s *scene) send() error {
	p, err := s.producer()
	if err != nil {
		return err
	}
	defer p.Shutdown()
	answered := 0
	for i := 0; i < each; i++ {
		result, err := p.SendSync(context.Background(), message(topic, "sync", i))
		if err != nil {
			return err
		}
		if result.Status == primitive.SendOK {
			answered++
		}
	}
	var later sync.WaitGroup
	var failed error
	later.Add(each)
	for i := 0; i < each; i++ {
		err = p.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) {
			if err != nil {
				failed = err
			}
			later.Done()
		}, message(topic, "async", i))
		if err != nil {
			return err
		}
	}
	later.Wait()
	for i := 0; i < each; i++ {
		if err = p.SendOneWay(context.Background(), message(topic, "oneway", i)); err != nil {
			return err
		}
	}
	batch := make([]*primitive.Message, each)
	for i := range batch {
		batch[i] = message(topic, "batch", i)
	}
	result, err := p.SendSync(context.Background(), batch...)
	if err != nil {
		return err
	}
	s.facts["answered"], s.facts["batch"] = answered, result.Status == primitive.SendOK
	return failed
}

// consume finds all that was sent.
func (s *scene) consume() error {
	bodies, err := s.gather("go-all", topic, "*", 4*each, 0)
	s.facts["consumed"] = bodies
	return err
}

// consumeTags finds what has one of two tags.
func (s *scene) consumeTags() error {
	bodies, err := s.gather("go-tags", topic, "async || batch", 2*each, 0)
	s.facts["tagged"] = bodies
	return err
}

// retry: what is refused the first time comes again.
func (s *scene) retry() error {
	bodies, err := s.gather("go-retry", topic, "sync", 2*each, 1)
	s.facts["retried"] = bodies
	return err
}

// order: the messages of each queue come in the order in which they were sent.
func (s *scene) order() error {
	p, err := s.producer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		return err
	}
	defer p.Shutdown()
	for i := 0; i < 4*each; i++ {
		one := message(sorted, "n", i).WithShardingKey(strconv.Itoa(i % 4))
		if _, err = p.SendSync(context.Background(), one); err != nil {
			return err
		}
	}
	c, err := s.consumer("go-orderly", consumer.WithConsumerOrder(true))
	if err != nil {
		return err
	}
	var lock sync.Mutex
	shards, came, done := map[string][]string{}, 0, make(chan struct{})
	err = c.Subscribe(sorted, consumer.MessageSelector{}, func(_ context.Context,
		messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		for _, one := range messages {
			shards[one.GetShardingKey()] = append(shards[one.GetShardingKey()], string(one.Body))
			if came++; came == 4*each {
				close(done)
			}
		}
		return consumer.ConsumeSuccess, nil
	})
	if err == nil {
		err = run(c, done, func() string { return fmt.Sprint(came, " of ", 4*each, " in order") })
	}
	lock.Lock()
	defer lock.Unlock()
	s.facts["order"] = shards
	return err
}

func (s *scene) producer(options ...producer.Option) (rocketmq.Producer, error) {
	options = append(options, producer.WithNsResolver(s.resolver), producer.WithGroupName("go-producer"),
		producer.WithRetry(2), producer.WithSendMsgTimeout(20*time.Second))
	p, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	return p, p.Start()
}

func (s *scene) consumer(group string, options ...consumer.Option) (rocketmq.PushConsumer, error) {
	options = append(options, consumer.WithNsResolver(s.resolver), consumer.WithGroupName(group),
		consumer.WithInstance(group), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	return rocketmq.NewPushConsumer(options...)
}

// gather the bodies, in alphabetical order, of the first wanted messages; each is refused so many times.
func (s *scene) gather(group, topic, tags string, wanted, refused int) ([]string, error) {
	c, err := s.consumer(group)
	if err != nil {
		return nil, err
	}
	var lock sync.Mutex
	var bodies []string
	done := make(chan struct{})
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: tags}
	err = c.Subscribe(topic, selector, func(_ context.Context,
		messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		result := consumer.ConsumeSuccess
		for _, one := range messages {
			bodies = append(bodies, string(one.Body))
			if len(bodies) == wanted {
				close(done)
			}
			if int(one.ReconsumeTimes) < refused {
				result = consumer.ConsumeRetryLater
			}
		}
		return result, nil
	})
	if err == nil {
		err = run(c, done, func() string { return fmt.Sprint(len(bodies), " of ", wanted, " for ", group) })
	}
	lock.Lock()
	defer lock.Unlock()
	sort.Strings(bodies)
	return bodies, err
}

func run(c rocketmq.PushConsumer, done chan struct{}, state func() string) error {
	if err := c.Start(); err != nil {
		return err
	}
	defer c.Shutdown()
	select {
	case <-done:
		return nil
	case <-time.After(wait):
		return fmt.Errorf("only %s after %s", state(), wait)
	}
}

func message(topic, tag string, number int) *primitive.Message {
	one := primitive.NewMessage(topic, []byte(fmt.Sprintf("%s-%02d", tag, number)))
	return one.WithTag(tag).WithKeys([]string{fmt.Sprintf("key-%d", number)})
}
