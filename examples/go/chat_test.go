package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "example.com/chat/abridged/v1"
)

const (
	lines = "chat.jsonl"
	day   = 24 * time.Hour
)

var record = flag.Bool("record", false, "play the chat, and write its log to "+lines)

// TestChat asserts on a chat that was recorded. One sidecar, which takes most of the time, serves all of its parts.
func TestChat(t *testing.T) {
	if *record {
		play(t)
	}
	if _, err := os.Stat(lines); err != nil {
		t.Fatalf("no chat is recorded, go test -record: %v", err)
	}
	sidecar := start(t, "--log", lines)
	chats := pb.NewConversationServiceClient(sidecar.conn)

	t.Run("window", func(t *testing.T) {
		window := fetch(t.Context(), chats)
		summary, newest := window.Messages[0], window.Messages[len(window.Messages)-1]
		answer, _ := ask(window.RenderedJson)
		expect(t, "compacted", window.Compacted, true)
		expect(t, "first message", summary.Message.Id, window.SummaryId)
		expect(t, "newest message", newest.Message.Content, answer)
		expect(t, "message version", window.MessageVersion, 24)
	})

	t.Run("record", func(t *testing.T) {
		window := fetch(t.Context(), chats)
		found, err := chats.GetSummary(t.Context(), &pb.GetSummaryRequest{ConversationId: chat, SummaryId: window.SummaryId})
		require(t, err)
		expect(t, "provenance", found.Summary.Provenance, pb.Provenance_PROVENANCE_MODEL)
		expect(t, "messages covered", found.Summary.CoveredMessageCount, 17)
	})

	t.Run("append", func(t *testing.T) {
		more := question(fork(t, chats), "Which of them was the first?")
		once, err := chats.AppendMessages(t.Context(), more)
		require(t, err)
		again, err := chats.AppendMessages(t.Context(), more)
		require(t, err)
		sidecar.waitIdle(t)
		newest := again.Context.Messages[len(again.Context.Messages)-1]
		expect(t, "message version", once.MessageVersion, 25)
		expect(t, "message version after a repeat", again.MessageVersion, 25)
		expect(t, "newest message", proto.Equal(newest.Message, more.Messages[0]), true)
	})

	t.Run("a day later", func(t *testing.T) {
		branch := fork(t, chats)
		now := sidecar.advance(t, day)
		_, err := chats.AppendMessages(t.Context(), question(branch, "Good morning"))
		require(t, err)
		sidecar.waitIdle(t)
		found, err := chats.GetConversation(t.Context(), &pb.GetConversationRequest{ConversationId: branch})
		require(t, err)
		opened, appended := found.Conversation.CreateTime.AsTime(), found.Conversation.UpdateTime.AsTime()
		expect(t, "a day passed", appended.Sub(opened) >= day, true)
		expect(t, "by the sidecar's clock", appended.Before(now), false)
	})
}

// play records the chat of main.go. To record your own model's summaries, set its own summarizer.models.
func play(t *testing.T) {
	sidecar := start(t, "--record", lines)
	os.Args = []string{"chat", sidecar.address}
	main()
	sidecar.stop()
}

// fork gives a test a branch of its own, so that no other sees what it appends.
func fork(t *testing.T, chats pb.ConversationServiceClient) string {
	t.Helper()
	forked, err := chats.ForkConversation(t.Context(),
		&pb.ForkConversationRequest{ConversationId: chat, ForkId: strings.ReplaceAll(t.Name(), "/", ".")})
	require(t, err)
	return forked.Conversation.Id
}

func question(conversation, content string) *pb.AppendMessagesRequest {
	return &pb.AppendMessagesRequest{ConversationId: conversation, Context: &pb.ContextOptions{},
		Messages: []*pb.Message{{Id: "u13", Role: pb.Role_ROLE_USER, Content: content}}}
}

// sidecar is a process that lives as long as its standard input, from which it takes lines that move its clock.
type sidecar struct {
	address string
	conn    *grpc.ClientConn
	stop    func()
	stdin   io.Writer
	stdout  *bufio.Scanner
}

func start(t *testing.T, options ...string) *sidecar {
	t.Helper()
	command := exec.Command("abridged", append([]string{"serve", "--ephemeral"}, options...)...)
	var stderr strings.Builder
	command.Stderr = &stderr
	stdin, err := command.StdinPipe()
	require(t, err)
	stdout, err := command.StdoutPipe()
	require(t, err)
	require(t, command.Start())
	stop := sync.OnceFunc(func() {
		stdin.Close()
		if err := command.Wait(); err != nil {
			t.Errorf("%v\n%s", err, &stderr)
		}
	})
	t.Cleanup(stop)

	answers := bufio.NewScanner(stdout)
	if !answers.Scan() {
		t.Fatal("the sidecar does not serve")
	}
	conn, err := grpc.NewClient(answers.Text(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(withDeadline))
	require(t, err)
	t.Cleanup(func() { conn.Close() })
	return &sidecar{answers.Text(), conn, stop, stdin, answers}
}

// advance moves the clock. Every pass that waited for a moment before the returned one has been requested by then.
func (s *sidecar) advance(t *testing.T, by time.Duration) time.Time {
	t.Helper()
	_, err := fmt.Fprintf(s.stdin, "advance %g\n", by.Seconds())
	require(t, err)
	s.stdout.Scan()
	now, err := time.Parse("now "+time.RFC3339, s.stdout.Text())
	require(t, err)
	return now
}

func (s *sidecar) waitIdle(t *testing.T) {
	t.Helper()
	answer, err := pb.NewServerInfoServiceClient(s.conn).WaitIdle(t.Context(),
		&pb.WaitIdleRequest{Timeout: durationpb.New(5 * time.Second)})
	require(t, err)
	expect(t, "idle", answer.Idle, true)
}

func require(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
