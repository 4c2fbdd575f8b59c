# The gateway alone: Python and what is pinned by hash in locks/image.txt. Runs as a user of its own, on a read-only root, without capabilities and
# without a shell: only /var/lib/gateway (the ledger) and /run/gateway (the control socket) are written. Both stages stand on one base, any with Python
# 3.11 or newer as python3; name it by its digest where you build for good: --build-arg BASE_IMAGE=docker.io/library/python@sha256:…
ARG BASE_IMAGE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
WORKDIR /source
COPY locks/build.txt locks/image.txt locks/
RUN python3 -m venv /build \
 && python3 -m venv --without-pip /opt/gateway \
 && /build/bin/pip install --no-cache-dir --require-hashes -r locks/build.txt \
 && /build/bin/pip --python /opt/gateway/bin/python install --no-cache-dir --require-hashes -r locks/image.txt \
 && /build/bin/pip --python /opt/gateway/bin/python uninstall --yes pip
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY gateway gateway
RUN /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /build/bin/pip --python /opt/gateway/bin/python install --no-cache-dir --no-deps --no-index --find-links /wheels model-gateway \
 && mkdir -p /empty/lib /empty/run

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="model-gateway" \
      org.opencontainers.image.description="The metered way from sandboxed agents to a model server of your own" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/gateway /opt/gateway
COPY --from=build --chown=10001:10001 --chmod=0700 /empty/lib /var/lib/gateway
COPY --from=build --chown=10001:10001 --chmod=0700 /empty/run /run/gateway
ENV PATH=/opt/gateway/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    GATEWAY_SOCKET=/run/gateway/gateway.sock
USER 10001:10001
WORKDIR /var/lib/gateway
VOLUME ["/var/lib/gateway"]
EXPOSE 8080 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["/opt/gateway/bin/python", "-m", "gateway.client.ready"]
ENTRYPOINT ["/opt/gateway/bin/gateway"]
CMD ["serve", "--config", "/etc/gateway/gateway.toml"]
