//! Makes the calls that lines of JSON on standard input describe, and answers each with a line.

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::error::Error;
use std::time::{Duration, Instant};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic::metadata::AsciiMetadataKey;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstEncoder;
use tonic_types::StatusExt;

/// Names as in the specification: tonic's own are not in capitals.
const CODES: &str = "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS \
    PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE \
    DATA_LOSS UNAUTHENTICATED";

struct Runner {
    address: String,
    contract: DescriptorPool,
    retries: Value,
    channels: HashMap<String, Grpc<Channel>>,
}

impl Runner {
    fn channel(&mut self, wanted: &Value) -> &mut Grpc<Channel> {
        self.channels.entry(wanted.to_string()).or_insert_with(|| {
            let mut endpoint = Endpoint::from_shared(format!("http://{}", self.address)).expect("an address");
            if let Some(every) = wanted["keepaliveS"].as_u64() {
                endpoint = endpoint
                    .http2_keep_alive_interval(Duration::from_secs(every))
                    .keep_alive_timeout(Duration::from_secs(5))
                    .keep_alive_while_idle(true);
            }
            let channel = Grpc::new(endpoint.connect_lazy());
            match wanted["receiveBytes"].as_u64() {
                Some(bytes) => channel.max_decoding_message_size(bytes as usize),
                None => channel,
            }
        })
    }

    fn method(&self, call: &str) -> MethodDescriptor {
        let (service, name) = call.split_once('/').expect("a service and its method");
        let service = self.contract.get_service_by_name(service).expect("a service of the contract");
        service.methods().find(|method| method.name() == name).expect("a method of the service")
    }

    /// The pauses before a call is made again, which tonic does not take from a service config.
    fn pauses(&self, method: &MethodDescriptor, wanted: &Value) -> Vec<Duration> {
        let name = json!({"service": method.parent_service().full_name(), "method": method.name()});
        let configs = self.retries["methodConfig"].as_array().into_iter().flatten();
        let Some(config) = configs
            .filter(|_| wanted["retries"] == true)
            .find(|config| config["name"].as_array().is_some_and(|names| names.contains(&name)))
        else {
            return vec![];
        };
        let policy = &config["retryPolicy"];
        let seconds = |member: &str| policy[member].as_str()?.trim_end_matches('s').parse::<f64>().ok();
        let (first, longest) = seconds("initialBackoff").zip(seconds("maxBackoff")).expect("pauses");
        let growth = policy["backoffMultiplier"].as_f64().expect("a number");
        let retries = policy["maxAttempts"].as_i64().expect("a number") as i32 - 1;
        (0..retries).map(|made| Duration::from_secs_f64(longest.min(first * growth.powi(made)))).collect()
    }

    async fn answer(&mut self, asked: &Value) -> Value {
        let method = self.method(asked["call"].as_str().expect("a call"));
        let message = DynamicMessage::deserialize(method.input(), &asked["request"]).expect("a request");
        let end = Instant::now() + Duration::from_secs_f64(asked["deadlineS"].as_f64().unwrap_or(30.0));
        let pauses = self.pauses(&method, &asked["channel"]);
        let mut pauses = pauses.into_iter().take_while(|&pause| Instant::now() + pause < end);
        let channel = self.channel(&asked["channel"]);
        let mut responses = vec![];
        loop {
            let mut request = Request::new(message.clone());
            request.set_timeout(end - Instant::now());
            for (name, value) in asked["metadata"].as_object().into_iter().flatten() {
                let value = value.as_str().and_then(|text| text.parse().ok()).expect("a value");
                request.metadata_mut().insert(name.parse::<AsciiMetadataKey>().expect("a name"), value);
            }
            match (perform(channel, &method, request, &asked["stream"], &mut responses).await, pauses.next()) {
                // A status that tonic makes of a broken connection has a source; the sidecar's own have none.
                (Err(status), Some(pause)) if status.code() == Code::Unavailable || status.source().is_some() => {
                    tokio::time::sleep(pause).await;
                }
                (ended, _) => return said(&ended.err().unwrap_or_else(|| Status::ok("")), &responses),
            }
        }
    }
}

async fn perform(
    channel: &mut Grpc<Channel>,
    method: &MethodDescriptor,
    request: Request<DynamicMessage>,
    wanted: &Value,
    responses: &mut Vec<Value>,
) -> Result<(), Status> {
    channel.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let path = path.try_into().expect("a path");
    if !method.is_server_streaming() {
        let response = channel.unary(request, path, Dynamic(method.output())).await?;
        responses.push(json!(response.into_inner()));
        return Ok(());
    }
    let mut stream = channel.server_streaming(request, path, Dynamic(method.output())).await?.into_inner();
    while (responses.len() as u64) < wanted.as_u64().unwrap_or(0)
        && let Some(response) = stream.message().await?
    {
        responses.push(json!(response));
    }
    Ok(())
}

fn said(status: &Status, responses: &[Value]) -> Value {
    let details = status.get_error_details();
    let violations = details.bad_request().map_or(&[][..], |refused| &refused.field_violations);
    json!({
        "code": CODES.split(' ').nth(status.code() as usize),
        "reason": details.error_info().map_or("", |info| &info.reason),
        "fields": violations.iter().map(|violation| &violation.field).collect::<Vec<_>>(),
        "retryAfterS": details.retry_info().and_then(|info| info.retry_delay).unwrap_or_default().as_secs_f64(),
        "responses": responses,
    })
}

/// The codec of messages that have no type of their own: responses are of this descriptor.
struct Dynamic(MessageDescriptor);

impl Codec for Dynamic {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = ProstEncoder<DynamicMessage>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self {
        Self(self.0.clone())
    }
}

impl Decoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        let message = DynamicMessage::decode(self.0.clone(), bytes);
        message.map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut runner = Runner {
        address: std::env::args().nth(1).expect("an address"),
        contract: DescriptorPool::decode(&include_bytes!(concat!(env!("OUT_DIR"), "/contract.bin"))[..])?,
        retries: serde_json::from_slice(&std::fs::read("contract/service_config.json")?)?,
        channels: HashMap::new(),
    };
    // Reading blocks this thread alone; the runtime's others keep the connections alive.
    for line in std::io::stdin().lines() {
        println!("{}", runner.answer(&serde_json::from_str(&line?)?).await);
    }
    Ok(())
}
