# The gateway as a container: built once, run as a user of its own, with the ledger on a volume.
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md ./
COPY gateway gateway
RUN python -m venv /opt/gateway && /opt/gateway/bin/pip install --no-cache-dir '.[postgres]'

FROM python:3.12-slim
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/gateway gateway
COPY --from=build /opt/gateway /opt/gateway
ENV PATH=/opt/gateway/bin:$PATH PYTHONUNBUFFERED=1
USER gateway
WORKDIR /var/lib/gateway
VOLUME /var/lib/gateway
EXPOSE 8700
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["python", "-c", "import sys, urllib.request as u; sys.exit(u.urlopen('http://127.0.0.1:8700/healthz', timeout=2).status != 200)"]
ENTRYPOINT ["gateway"]
CMD ["serve"]
