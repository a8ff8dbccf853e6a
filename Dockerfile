# syntax=docker/dockerfile:1
FROM python:3.12-slim AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
# `--build-arg RECALL=1` adds what SearchHistory needs to search by meaning: 165 MiB. Searches by words need none of it.
ARG RECALL=""
# `--build-arg POSTGRES=1` adds the driver of PostgreSQL, for a log at `log.url`.
ARG POSTGRES=""
# `--build-arg ENCRYPTION=1` adds what an encrypted log needs.
ARG ENCRYPTION=""

# Locks first: this layer stays while only sources change.
COPY requirements-build.txt requirements-encryption.txt requirements-postgres.txt requirements-recall.txt \
    requirements.txt ./
RUN python -m venv /opt/abridged \
    && /opt/abridged/bin/pip install --require-hashes --only-binary=:all: -r requirements.txt \
    && if [ -n "$RECALL" ]; then /opt/abridged/bin/pip install --require-hashes --only-binary=:all: --no-deps \
    -r requirements-recall.txt; fi \
    && if [ -n "$POSTGRES" ]; then /opt/abridged/bin/pip install --require-hashes --only-binary=:all: --no-deps \
    -r requirements-postgres.txt; fi \
    && if [ -n "$ENCRYPTION" ]; then /opt/abridged/bin/pip install --require-hashes --only-binary=:all: --no-deps \
    -r requirements-encryption.txt; fi \
    && python -m pip install --require-hashes --only-binary=:all: -r requirements-build.txt

COPY . .
RUN python -m hatchling build -t wheel -d /dist \
    && /opt/abridged/bin/pip install --no-deps /dist/*.whl \
    && /opt/abridged/bin/pip uninstall --yes pip \
    && install -d -m 0700 /state


FROM python:3.12-slim

COPY --from=build /opt/abridged /opt/abridged
# A fresh volume mounted here is a folder that the process can write.
COPY --from=build --chown=65532:65532 /state /var/lib/abridged

# gRPC stays on loopback, for a sidecar in a pod; other machines need server.listen and server.tokens.
# The HTTP port may be scraped and probed from outside; without server.tokens it takes no calls there.
ENV PATH=/opt/abridged/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ABRIDGED_SERVER__HTTP_LISTEN=0.0.0.0:7421 \
    ABRIDGED_TELEMETRY__LOG_FORMAT=json

USER 65532:65532
WORKDIR /var/lib/abridged
VOLUME ["/var/lib/abridged"]
EXPOSE 7420 7421

# Asks /livez at server.http_listen, as the container's variables set it.
HEALTHCHECK --interval=15s --timeout=5s --start-period=10s --retries=3 \
    CMD ["abridged", "doctor", "--live"]

ENTRYPOINT ["abridged"]
CMD ["serve"]
