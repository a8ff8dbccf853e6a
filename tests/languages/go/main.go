// Appends a message, fetches the window and reads the reason of a refusal: what every client does.
// It also validates a message with protovalidate: both register their files in one program.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"buf.build/go/protovalidate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "example.com/client/abridged/v1"
)

func main() {
	retries, err := os.ReadFile("contract/service_config.json")
	check(err)
	conn, err := grpc.NewClient(os.Args[1],
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(string(retries)))
	check(err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	chats := pb.NewConversationServiceClient(conn)

	message := &pb.Message{Id: "m1", Role: pb.Role_ROLE_USER, Content: "Good morning"}
	check(protovalidate.Validate(message))
	appended, err := chats.AppendMessages(ctx, &pb.AppendMessagesRequest{ConversationId: "go", Messages: []*pb.Message{message}})
	check(err)
	window, err := chats.GetContext(ctx, &pb.GetContextRequest{ConversationId: "go", Rendering: pb.Rendering_RENDERING_OPENAI})
	check(err)
	_, err = chats.GetConversation(ctx, &pb.GetConversationRequest{ConversationId: "nobody"})

	said, _ := json.Marshal(map[string]any{
		"version": appended.MessageVersion, "rendered": window.RenderedJson, "reason": reason(err)})
	fmt.Println(string(said))
}

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
		log.Fatal(err)
	}
}
