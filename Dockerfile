# syntax=docker/dockerfile:1
# Builds the program and nothing else into a small image that runs without root: port 2049 is not
# one of the privileged ones, and the owners of files are kept in the volume, not on this disk.

FROM rust:1.95-slim-trixie AS build
WORKDIR /build
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    cargo build --release --locked --package forebay \
 && install -D target/release/forebay /out/forebay

FROM debian:trixie-slim
# The certificates of the public authorities, for stores over TLS.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 2049 forebay \
 && useradd --system --uid 2049 --gid 2049 --home-dir /var/lib/forebay --shell /usr/sbin/nologin forebay \
 && install -d -m 0700 -o forebay -g forebay /var/lib/forebay
COPY --from=build /out/forebay /usr/local/bin/forebay

# Within a container the loopback address reaches nobody. Who may mount is still decided by
# FOREBAY_CLIENTS, which lets in nobody but this container until it is set.
ENV FOREBAY_DATA_DIR=/var/lib/forebay \
    FOREBAY_LISTEN=0.0.0.0:2049
USER forebay
VOLUME /var/lib/forebay
EXPOSE 2049/tcp
HEALTHCHECK --interval=10s --timeout=12s --start-period=60s --start-interval=1s --retries=3 \
    CMD forebay status --check; [ $? -lt 2 ]
ENTRYPOINT ["forebay"]
CMD ["serve"]
