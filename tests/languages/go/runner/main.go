// Makes the calls that lines of JSON on standard input describe, and answers each with a line.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "example.com/chat/abridged/v1"
)

type wanted struct {
	Retries      bool
	ReceiveBytes int
	KeepaliveS   int
}

type asked struct {
	Call      string
	Request   json.RawMessage
	DeadlineS float64
	Metadata  map[string]string
	Stream    int
	Channel   wanted
}

type answer struct {
	Code        string            `json:"code"`
	Reason      string            `json:"reason"`
	Fields      []string          `json:"fields"`
	RetryAfterS float64           `json:"retryAfterS"`
	Responses   []json.RawMessage `json:"responses"`
}

var channels = map[wanted]*grpc.ClientConn{}

func channel(w wanted) *grpc.ClientConn {
	if channels[w] == nil {
		options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
		if w.Retries {
			retries, err := os.ReadFile("contract/service_config.json")
			check(err)
			options = append(options, grpc.WithDefaultServiceConfig(string(retries)))
		} else {
			options = append(options, grpc.WithDisableRetry())
		}
		if w.ReceiveBytes > 0 {
			options = append(options, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(w.ReceiveBytes)))
		}
		if w.KeepaliveS > 0 {
			every := time.Duration(w.KeepaliveS) * time.Second
			options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{
				Time: every, Timeout: 5 * time.Second, PermitWithoutStream: true}))
		}
		conn, err := grpc.NewClient(os.Args[1], options...)
		check(err)
		channels[w] = conn
	}
	return channels[w]
}

func message(d protoreflect.MessageDescriptor) proto.Message {
	found, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	check(err)
	return found.New().Interface()
}

func perform(a asked) answer {
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(
		protoreflect.FullName(strings.ReplaceAll(a.Call, "/", ".")))
	check(err)
	method := found.(protoreflect.MethodDescriptor)
	request := message(method.Input())
	check(protojson.Unmarshal(a.Request, request))
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(a.DeadlineS*float64(time.Second)))
	defer cancel()
	ctx = metadata.NewOutgoingContext(ctx, metadata.New(a.Metadata))
	made := answer{Fields: []string{}, Responses: []json.RawMessage{}}
	if !method.IsStreamingServer() {
		response := message(method.Output())
		if err = channel(a.Channel).Invoke(ctx, "/"+a.Call, request, response); err == nil {
			made.add(response)
		}
		return made.ended(err)
	}
	stream, err := channel(a.Channel).NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+a.Call)
	if err == nil {
		if err = stream.SendMsg(request); err == nil || err == io.EOF {
			err = stream.CloseSend()
		}
	}
	for err == nil && len(made.Responses) < a.Stream {
		response := message(method.Output())
		if err = stream.RecvMsg(response); err == nil {
			made.add(response)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return made.ended(err)
}

func (a *answer) add(response proto.Message) {
	text, err := protojson.Marshal(response)
	check(err)
	a.Responses = append(a.Responses, text)
}

// Names as in the specification: Go's own are not in capitals.
var names = map[codes.Code]string{}

func (a answer) ended(err error) answer {
	refused := status.Convert(err)
	a.Code = names[refused.Code()]
	for _, detail := range refused.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			a.Reason = d.Reason
		case *errdetails.BadRequest:
			for _, violation := range d.FieldViolations {
				a.Fields = append(a.Fields, violation.Field)
			}
		case *errdetails.RetryInfo:
			a.RetryAfterS = d.RetryDelay.AsDuration().Seconds()
		}
	}
	return a
}

func main() {
	for _, name := range strings.Fields(`OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS
		PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE
		DATA_LOSS UNAUTHENTICATED`) {
		names[codes.Code(len(names))] = name
	}
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		next := asked{DeadlineS: 30}
		check(json.Unmarshal(line, &next))
		text, err := json.Marshal(perform(next))
		check(err)
		fmt.Println(string(text))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
