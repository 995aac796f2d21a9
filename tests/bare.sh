#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/bare.sh: ./run and ./test on a Debian 12 that has nothing but its base (debootstrap --variant=minbase), so that
# a program that they use and do not install is noticed. Needs root, debootstrap, and the right to mount; otherwise one
# line says what is missing and the rest is left out. build-bare/base is kept, and copied for every run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. cmake/setup.sh

left_out() {
  say "bare Debian: left out, $1"
  exit 0
}
[ "$(id -u)" -eq 0 ] || left_out "it needs root (chroot)"
command -v debootstrap >/dev/null || left_out "this machine has no debootstrap (apt-get install --no-install-recommends debootstrap)"
unshare --mount true 2>/dev/null || left_out "this machine does not allow mounts"

work=$PWD/build-bare
root=$work/root
mkdir -p "$work/archives/partial"
if [ ! -e "$work/base.complete" ]; then
  rm -rf "$work/base"
  if ! debootstrap --variant=minbase bookworm "$work/base" "${POSENC_DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap.log" 2>&1; then
    left_out "debootstrap failed (build-bare/debootstrap.log)"
  fi
  touch "$work/base.complete"
fi
rm -rf --one-file-system "$root"
cp -a "$work/base" "$root"

# The working tree as it is, without what git ignores, in a clone of its own.
git clone -q --no-hardlinks . "$root/posenc"
(cd "$root/posenc" && git ls-files -z | xargs -0 rm -f)
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  [ ! -e "$file" ] || printf '%s\0' "$file"
done | tar --null -T - -cf - | tar -xf - -C "$root/posenc"

# What names the network: no program.
for file in /etc/resolv.conf /etc/hosts; do [ ! -e "$file" ] || cp -L "$file" "$root$file"; done
variables=(PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb)
for name in http_proxy https_proxy no_proxy PIP_INDEX_URL PIP_TRUSTED_HOST; do
  [ -z "${!name:-}" ] || variables+=("$name=${!name}")
done
certificates=${PIP_CERT:-${SSL_CERT_FILE:-}}
if [ -n "$certificates" ]; then
  cp -L "$certificates" "$root/etc/certificates-of-the-host.crt"
  variables+=(PIP_CERT=/etc/certificates-of-the-host.crt)
fi

# Mounts are private to this command and end with it.
inside='
  mount --make-rprivate /
  mount -t proc proc "$0/proc"
  mount --rbind /dev "$0/dev"
  mount --bind "$1/archives" "$0/var/cache/apt/archives"
  exec chroot "$0" /usr/bin/env -i "${@:2}" bash -ec "cd /posenc; ./run; ./test" </dev/null'
if ! unshare --mount bash -ec "$inside" "$root" "$work" "${variables[@]}" >"$work/log" 2>&1; then
  tail -n 60 "$work/log" >&2
  say "bare Debian: ./run or ./test failed; the whole log: build-bare/log"
  exit 1
fi
say "bare Debian: ./run and ./test pass"
rm -rf --one-file-system "$root"
