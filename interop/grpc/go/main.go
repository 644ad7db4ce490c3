// RocketMQ's gRPC SDK for Go behind the line protocol of interop/grpc/README.md: JSON lines on stdin and stdout.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

// request has the fields of all commands.
type request struct {
	ID            any            `json:"id"`
	Do            string         `json:"do"`
	Name          string         `json:"name"`
	Client        string         `json:"client"`
	Endpoints     string         `json:"endpoints"`
	TLS           bool           `json:"tls"`
	Namespace     string         `json:"namespace"`
	AccessKey     string         `json:"accessKey"`
	SecretKey     string         `json:"secretKey"`
	Check         string         `json:"check"`
	Topics        []string       `json:"topics"`
	Group         string         `json:"group"`
	Subscriptions []subscription `json:"subscriptions"`
	AwaitMs       int64          `json:"awaitMs"`
	Fail          int32          `json:"fail"`
	ConsumeMs     int64          `json:"consumeMs"`
	Message       wanted         `json:"message"`
	Transaction   string         `json:"transaction"`
	Resolution    string         `json:"resolution"`
	Max           int32          `json:"max"`
	InvisibleMs   int64          `json:"invisibleMs"`
	Handle        json.Number    `json:"handle"`
	Ms            int64          `json:"ms"`
	Count         int            `json:"count"`
	TimeoutMs     int64          `json:"timeoutMs"`
}

type subscription struct {
	Topic      string `json:"topic"`
	Type       string `json:"type"`
	Expression string `json:"expression"`
}

func main() {
	clients := newClients()
	var out sync.Mutex
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		go func() {
			answer, err := json.Marshal(answer(clients, line))
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			out.Lock()
			defer out.Unlock()
			os.Stdout.Write(append(answer, '\n'))
		}()
	}
}

func answer(clients *clients, line []byte) map[string]any {
	var one request
	if err := json.Unmarshal(line, &one); err != nil {
		return map[string]any{"error": errorLine(err)}
	}
	result, err := clients.run(&one)
	if err != nil {
		return map[string]any{"id": one.ID, "error": errorLine(err)}
	}
	return map[string]any{"id": one.ID, "result": result}
}

// errorLine: the code is the server's status; it is null where the SDK gave up before it had one.
func errorLine(err error) map[string]any {
	line := map[string]any{"type": fmt.Sprintf("%T", err), "code": nil, "message": err.Error()}
	if status, ok := rmq.AsErrRpcStatus(err); ok {
		line["code"] = status.Code
	}
	return line
}
