/// Keeps the descriptors of the whole contract, beside the stubs.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["conversation_service", "event_log_service", "server_info_service", "text_service"]
        .map(|name| format!("abridged/v1/{name}.proto"));
    let mut compiler = protox::Compiler::new(["contract"])?;
    compiler.include_imports(true).open_files(files)?;
    std::fs::write(format!("{}/contract.bin", std::env::var("OUT_DIR")?), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure().build_server(false).compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
