//! A chat that stays inside its model's context window: append, fetch the window, ask the model, append, report.

use abridged::{watch_conversation_response::Item, *};
use serde_json::json;
use std::error::Error;
use std::time::{Duration, Instant};
use tonic::{Code, Request, Response, Status, transport::Endpoint};
use tonic_types::StatusExt;

#[allow(clippy::all)]
mod abridged {
    tonic::include_proto!("abridged.v1");
}

type Chats = conversation_service_client::ConversationServiceClient<tonic::transport::Channel>;

const CHAT: &str = "rust-example";
const TURNS: i32 = 24;
const PATIENCE: Duration = Duration::from_secs(30);

/// Where your model's call goes: the body of its request in, its answer and the tokens that it counted out.
fn ask(body: &str) -> (String, i64) {
    let papers = "Please have the papers ready. ".repeat(3);
    (format!("The dock of that order is free from noon on. {papers}"), body.len() as i64 / 4)
}

#[tokio::main]
async fn main() -> Result<(), Status> {
    let address = std::env::args().nth(1).expect("an address");
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    // A window may exceed tonic's default of 4 MiB.
    let chats = Chats::new(endpoint.connect_lazy()).max_decoding_message_size(16 << 20);
    tokio::spawn(watch(chats.clone()));

    let (mut turns, mut window) = (0, GetContextResponse::default());
    while turns < TURNS && !window.compacted {
        turns += 1;
        let question = format!("Where does order {turns} go? {}", "It has to be there by noon. ".repeat(3));
        say(&chats, Role::User, format!("u{turns}"), question).await?;
        window = fetch(&chats).await?;
        let (answer, prompt_tokens) = ask(&window.rendered_json);
        say(&chats, Role::Assistant, format!("a{turns}"), answer).await?;
        report(&chats, &window, prompt_tokens).await?;
    }

    let nobody = GetConversationRequest { conversation_id: "nobody".into() };
    let refused = call(&chats, Chats::get_conversation, nobody).await.expect_err("nobody is there");
    // The reason is the name that a program decides by; the message is for people.
    let reason = refused.get_details_error_info().map(|info| info.reason);
    let ratio = window.usage.map(|usage| usage.ratio);
    println!("{}", json!({"turns": turns, "compacted": window.compacted, "ratio": ratio, "reason": reason}));
    Ok(())
}

/// Appends a message. Its id makes a repeated call safe.
async fn say(chats: &Chats, role: Role, id: String, content: String) -> Result<AppendMessagesResponse, Status> {
    let messages = vec![Message { id, role: role.into(), content, ..Default::default() }];
    let settings = Some(ConversationSettings { context_length: 1024, ..Default::default() });
    let append = AppendMessagesRequest { conversation_id: CHAT.into(), messages, settings, ..Default::default() };
    call(chats, Chats::append_messages, append).await
}

/// Waits a while for a pass that is under way, and takes the window as it is otherwise.
async fn fetch(chats: &Chats) -> Result<GetContextResponse, Status> {
    let rendering = Rendering::Openai.into();
    let wait = Some(prost_types::Duration { seconds: 10, nanos: 0 });
    let window = GetContextRequest { conversation_id: CHAT.into(), rendering, wait, ..Default::default() };
    call(chats, Chats::get_context, window).await
}

/// Corrects the sidecar's estimates by the tokens that the model's API counted.
async fn report(chats: &Chats, window: &GetContextResponse, prompt_tokens: i64) -> Result<ReportUsageResponse, Status> {
    let usage = ReportUsageRequest {
        conversation_id: CHAT.into(),
        message_version: window.message_version,
        summary_id: window.summary_id.clone(),
        epoch: window.epoch,
        prompt_tokens,
        ..Default::default()
    };
    call(chats, Chats::report_usage, usage).await
}

/// Prints events, and goes on after the newest event when the connection breaks.
async fn watch(mut chats: Chats) {
    let mut after_version = 0;
    loop {
        let request = WatchConversationRequest { conversation_id: CHAT.into(), after_version };
        if let Ok(mut stream) = chats.watch_conversation(request).await.map(Response::into_inner) {
            while let Ok(Some(next)) = stream.message().await {
                let Some(Item::Event(event)) = next.item else { continue };
                after_version = event.version;
                eprintln!("event {after_version}: {}", event.r#type);
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Makes a call that is safe to repeat, by the retries of contract/service_config.json, which tonic does not read.
async fn call<Q: Clone, A>(
    chats: &Chats,
    method: impl AsyncFn(&mut Chats, Request<Q>) -> Result<Response<A>, Status>,
    body: Q,
) -> Result<A, Status> {
    let end = Instant::now() + PATIENCE;
    let pauses = [100, 200, 400].map(Duration::from_millis);
    let mut pauses = pauses.into_iter().take_while(|&pause| Instant::now() + pause < end);
    loop {
        let mut request = Request::new(body.clone());
        request.set_timeout(end - Instant::now());
        match (method(&mut chats.clone(), request).await, pauses.next()) {
            // A status that tonic makes of a broken connection has a source; the sidecar's own have none.
            (Err(status), Some(pause)) if status.code() == Code::Unavailable || status.source().is_some() => {
                tokio::time::sleep(pause).await;
            }
            (ended, _) => return ended.map(Response::into_inner),
        }
    }
}
