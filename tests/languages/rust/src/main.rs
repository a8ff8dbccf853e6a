//! Appends a message, fetches the window and reads the reason of a refusal: what every client does.

use abridged::conversation_service_client::ConversationServiceClient;
use tonic_types::StatusExt;

#[allow(clippy::all)]
mod abridged {
    tonic::include_proto!("abridged.v1");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).expect("an address");
    let mut chats = ConversationServiceClient::connect(format!("http://{address}")).await?;

    let message = abridged::Message {
        id: "m1".into(),
        role: abridged::Role::User.into(),
        content: "Good morning".into(),
        ..Default::default()
    };
    let appended = chats
        .append_messages(abridged::AppendMessagesRequest {
            conversation_id: "rust".into(),
            messages: vec![message],
            ..Default::default()
        })
        .await?
        .into_inner();
    let window = chats
        .get_context(abridged::GetContextRequest {
            conversation_id: "rust".into(),
            rendering: abridged::Rendering::Openai.into(),
            ..Default::default()
        })
        .await?
        .into_inner();
    let refused = chats
        .get_conversation(abridged::GetConversationRequest { conversation_id: "nobody".into() })
        .await
        .expect_err("nobody is there");
    let reason = refused.get_details_error_info().map(|info| info.reason).unwrap_or_default();

    let said = serde_json::json!({
        "version": appended.message_version,
        "rendered": window.rendered_json,
        "reason": reason,
    });
    println!("{said}");
    Ok(())
}
