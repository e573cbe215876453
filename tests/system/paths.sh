# Where the image is kept, for the scripts that source this. Never in the repository: it holds a
# whole system.
# shellcheck shell=bash
CACHE=${PORTSD_SYSTEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/portsd-system-test}
export CACHE
