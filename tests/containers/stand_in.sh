#!/usr/bin/env bash
# Makes the image that stands for python:3.11-slim where no registry of images can be reached: stand_in.sh IMAGE (as root, on Debian).
# It is the smallest Debian whose Python is 3.11, with `python` and Python's headers where the real one has them, and without a compiler.
set -euo pipefail
folder=$(mktemp -d -p /var/tmp)
trap 'rm -rf --one-file-system "$folder"' EXIT
root=$folder/root
# In a mount namespace of its own: what it mounts inside the folder goes with it.
unshare --mount debootstrap --variant=minbase --include=python3,python3-pip,python3-venv,ca-certificates bookworm "$root"
ln -s /usr/bin/python3 "$root/usr/local/bin/python"
# Only the headers: the package would bring those of the C library too, and the Dockerfile has to ask for these by itself.
chroot "$root" sh -c 'cd /tmp && apt-get download libpython3.11-dev && apt-get clean'
dpkg-deb -x "$root"/tmp/libpython3.11-dev_*.deb "$folder/headers"
cp -r "$folder/headers/usr/include" "$root/usr/"
rm "$root"/tmp/libpython3.11-dev_*.deb
tar -C "$root" -c . | podman import - "$1"
