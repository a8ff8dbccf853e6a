fn main() -> Result<(), Box<dyn std::error::Error>> {
    let contract = protox::compile(["abridged/v1/conversation_service.proto"], ["contract"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(contract)?;
    Ok(())
}
