// A chat that stays inside its model's context window: append, fetch the window, ask the model, append, report.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "example.com/chat/abridged/v1"
)

const chat, turns, patience = "go-example", 24, 30 * time.Second

// ask is where your model's call goes: the body of its request in, its answer and the tokens that it counted out.
func ask(body string) (answer string, promptTokens int64) {
	return "The dock of that order is free from noon on. " + strings.Repeat("Please have the papers ready. ", 3),
		int64(len(body) / 4)
}

func main() {
	retries, err := os.ReadFile("contract/service_config.json")
	check(err)
	conn, err := grpc.NewClient(os.Args[1],
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(string(retries)),
		grpc.WithUnaryInterceptor(withDeadline),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20))) // a window may exceed gRPC's default of 4 MiB
	check(err)
	chats := pb.NewConversationServiceClient(conn)

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go watch(ctx, chats)

	said := map[string]any{}
	for turn := 1; turn <= turns && said["compacted"] != true; turn++ {
		say(ctx, chats, pb.Role_ROLE_USER, fmt.Sprintf("u%d", turn),
			fmt.Sprintf("Where does order %d go? ", turn)+strings.Repeat("It has to be there by noon. ", 3))
		window := fetch(ctx, chats)
		answer, promptTokens := ask(window.RenderedJson)
		say(ctx, chats, pb.Role_ROLE_ASSISTANT, fmt.Sprintf("a%d", turn), answer)
		report(ctx, chats, window, promptTokens)
		said["turns"], said["compacted"], said["ratio"] = turn, window.Compacted, window.Usage.Ratio
	}

	_, refused := chats.GetConversation(ctx, &pb.GetConversationRequest{ConversationId: "nobody"})
	said["reason"] = reason(refused)
	check(json.NewEncoder(os.Stdout).Encode(said))
}

func withDeadline(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn,
	call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return call(ctx, method, request, answer, conn, options...)
}

// say appends a message. Its id makes a repeated call safe.
func say(ctx context.Context, chats pb.ConversationServiceClient, role pb.Role, id, content string) {
	_, err := chats.AppendMessages(ctx, &pb.AppendMessagesRequest{ConversationId: chat,
		Messages: []*pb.Message{{Id: id, Role: role, Content: content}},
		Settings: &pb.ConversationSettings{ContextLength: 1024}})
	check(err)
}

// fetch waits a while for a pass that is under way, and takes the window as it is otherwise.
func fetch(ctx context.Context, chats pb.ConversationServiceClient) *pb.GetContextResponse {
	window, err := chats.GetContext(ctx, &pb.GetContextRequest{ConversationId: chat,
		Rendering: pb.Rendering_RENDERING_OPENAI, Wait: durationpb.New(10 * time.Second)})
	check(err)
	return window
}

// report corrects the sidecar's estimates by the tokens that the model's API counted.
func report(ctx context.Context, chats pb.ConversationServiceClient, window *pb.GetContextResponse, promptTokens int64) {
	_, err := chats.ReportUsage(ctx, &pb.ReportUsageRequest{ConversationId: chat,
		MessageVersion: window.MessageVersion, SummaryId: window.SummaryId, Epoch: window.Epoch, PromptTokens: promptTokens})
	check(err)
}

// watch prints events, and goes on after the newest event when the connection breaks.
func watch(ctx context.Context, chats pb.ConversationServiceClient) {
	var after int64
	for ; ctx.Err() == nil; time.Sleep(time.Second / 10) {
		stream, err := chats.WatchConversation(ctx, &pb.WatchConversationRequest{ConversationId: chat, AfterVersion: after})
		for err == nil {
			var next *pb.WatchConversationResponse
			if next, err = stream.Recv(); next.GetEvent() != nil {
				after = next.GetEvent().Version
				log.Printf("event %d: %s", after, next.GetEvent().Type)
			}
		}
	}
}

// reason is the name that a program decides by; the message is for people.
func reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is {
			return info.Reason
		}
	}
	return ""
}

func check(err error) {
	if err != nil {
		log.Fatalf("%v (%s)", err, reason(err))
	}
}
