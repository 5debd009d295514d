#!/usr/bin/env bash
# What `make test-deploy` checks the files of deploy/ with: Kubernetes' schemas, and the parsers of SkyPilot and dstack.
#
#   scripts/launchers.sh FOLDER
#
# Each into an environment of its own in FOLDER, unless it is there already (770 MB): what they depend on differs from what
# Groupscope does, and between them.
set -euo pipefail
folder=$(realpath -m "${1:?a folder to install into}")

for package in kubernetes-validate==1.37.0 skypilot==0.14.1 dstack==0.22.5; do
    place=$folder/${package%%==*}
    [ -e "$place/$package" ] && continue
    "${PYTHON:-python3}" -m venv --clear "$place"
    # shellcheck disable=SC2086  # several arguments
    "$place/bin/pip" install --quiet --disable-pip-version-check ${PIP_ARGS:-} "$package"
    touch "$place/$package"
done
