# One image for the API, the workers and the migrations; the command says which.
# A tag may move. Pin the base by its digest: docs/guides/operator-install.md.

ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
# Two builds of one commit with the same base write the same files: pip compiles nothing, because a compiled file states
# when its source was installed, which also changes with the times of a layer. All files are compiled below, in one order.
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 SOURCE_DATE_EPOCH=1577836800
WORKDIR /build

# Dependencies first: this layer changes only with the lock.
COPY requirements/ requirements/
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes --only-binary :all: --requirement requirements/build.lock \
    && python -m venv /opt/grovekeeper \
    && /opt/grovekeeper/bin/pip install --require-hashes --only-binary :all: --requirement requirements/runtime.lock

COPY pyproject.toml README.md LICENSE NOTICE ./
COPY migrations/ migrations/
COPY clients/python/grovekeeper_client/ clients/python/grovekeeper_client/
COPY clients/python/grovekeeper_common/ clients/python/grovekeeper_common/
COPY packages/forests/grovekeeper_forests/ packages/forests/grovekeeper_forests/
COPY packages/verifier/grovekeeper_verifier/ packages/verifier/grovekeeper_verifier/
COPY app/ app/
RUN /opt/build/bin/hatchling build --target wheel --directory /build/dist \
    && /opt/grovekeeper/bin/pip install --no-deps --no-index /build/dist/*.whl \
    && /opt/grovekeeper/bin/pip uninstall --yes pip \
    && find /opt/grovekeeper -name __pycache__ -prune -exec rm -r {} + \
    && PYTHONHASHSEED=0 /opt/grovekeeper/bin/python -B -m compileall -q --invalidation-mode unchecked-hash /opt/grovekeeper/lib


FROM ${PYTHON_IMAGE}
ARG SOURCE_DATE_EPOCH=1577836800
RUN groupadd --gid 10001 grovekeeper \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/grovekeeper --shell /usr/sbin/nologin \
        grovekeeper \
    && install --directory --owner grovekeeper --group root --mode 0770 /var/lib/grovekeeper \
    && install --directory --owner grovekeeper --group root --mode 1770 /var/cache/grovekeeper
COPY --from=build /opt/grovekeeper /opt/grovekeeper

# Any other user may run the image, too. OpenShift gives each project a number that has no entry in /etc/passwd, in the
# group of root; so that group may write to both folders, and no process has to enter the home to start.
# XDG_CACHE_HOME: compiled kernels are in /var/cache/grovekeeper/numba, and outlive the container if a volume is mounted
# above it. They depend on the processor, so they are not compiled into the image. NUMBA_CACHE_DIR would be used also
# where another user may write to it, or this one may not.
ENV PATH=/opt/grovekeeper/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    GROVEKEEPER_HOME=/var/lib/grovekeeper \
    GROVEKEEPER_HOST=0.0.0.0 \
    GROVEKEEPER_PORT=8731 \
    XDG_CACHE_HOME=/var/cache

USER 10001:10001
WORKDIR /
VOLUME ["/var/lib/grovekeeper"]
EXPOSE 8731
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['GROVEKEEPER_PORT'] + '/healthz', timeout=2)"]
ENTRYPOINT ["grovekeeper"]
CMD ["api"]
