#!/usr/bin/env bash
# Installs what the browser tests need: Chromium with its driver (Debian), and axe-core (npm), which
# is kept in a cache outside the tree. Does nothing where all of it is there. Needs root for apt-get.
set -euo pipefail
AXE_VERSION=4.14.0
cache="${GLOCAL_BROWSER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/glocal-browser}"

missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v chromedriver >/dev/null || missing+=(chromium-driver)
[ -f "$cache/axe-$AXE_VERSION.js" ] || command -v npm >/dev/null || missing+=(npm)
if [ ${#missing[@]} -gt 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" fonts-noto-core fonts-noto-color-emoji >/dev/null
fi
if [ ! -f "$cache/axe-$AXE_VERSION.js" ]; then
  mkdir -p "$cache"
  work=$(mktemp -d)
  (cd "$work" && npm pack --silent "axe-core@$AXE_VERSION" >/dev/null && tar xzf axe-core-*.tgz)
  mv "$work/package/axe.min.js" "$cache/axe-$AXE_VERSION.js"
  rm -r "$work"
fi
