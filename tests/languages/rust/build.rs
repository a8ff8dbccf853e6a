fn main() -> std::io::Result<()> {
    let files = ["conversation_service", "event_log_service", "server_info_service", "text_service"]
        .map(|name| format!("contract/abridged/v1/{name}.proto"));
    tonic_prost_build::configure().build_server(false).compile_protos(&files, &["contract".to_string()])
}
