package example;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.File;
import java.io.IOException;
import java.time.Duration;
import java.time.Instant;
import java.util.Objects;
import java.util.stream.Stream;

/** A sidecar of a test. It ends when its standard input closes, and so with this program, however that ends. */
final class Sidecar implements AutoCloseable {
  private final Process process;
  private final BufferedWriter told;
  private final BufferedReader said;
  private final String address;

  Sidecar(String... options) throws IOException {
    var command = Stream.concat(Stream.of("abridged", "serve", "--ephemeral"), Stream.of(options)).toList();
    process = new ProcessBuilder(command).redirectError(new File("target/sidecar.log")).start();
    told = process.outputWriter();
    said = process.inputReader();
    address = Objects.requireNonNull(said.readLine(), "the sidecar has ended: target/sidecar.log says why");
  }

  String address() {
    return address;
  }

  /** Moves the sidecar's clock, and returns the time that it is then. */
  Instant advance(Duration duration) throws IOException {
    told.write("advance " + duration.toSeconds() + "\n");
    told.flush();
    return Instant.parse(said.readLine().replace("now ", ""));
  }

  @Override
  public void close() throws IOException {
    told.close();
  }

  /** Waits for the end after {@link #close}: its log is whole then. */
  void join() throws InterruptedException {
    process.waitFor();
  }
}
