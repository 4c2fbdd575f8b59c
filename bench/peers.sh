#!/bin/sh
# Installs what the benchmark compares with, outside the checkout: wrk and nginx by apt (needs root), LiteLLM and rolter by pip, each in a
# virtualenv of its own in $GATEWAY_BENCH_PEERS (default: gateway-bench-peers in the temporary folder). Around 1 GB. Remove it by removing the folder.
# $PYTHON: the interpreter, python3 by default; give the one that .venv was made with, or the interpreters are compared.
set -eu
folder=${GATEWAY_BENCH_PEERS:-${TMPDIR:-/tmp}/gateway-bench-peers}
mkdir -p "$folder"

if command -v wrk >/dev/null && [ -x /usr/sbin/nginx ]; then
    echo "wrk and nginx are here"
elif [ "$(id -u)" = 0 ]; then
    apt-get update -qq
    # a policy that keeps the package from starting a server of its own
    printf '#!/bin/sh\nexit 101\n' >"$folder/no-start" && chmod +x "$folder/no-start"
    [ -e /usr/sbin/policy-rc.d ] || { ln -s "$folder/no-start" /usr/sbin/policy-rc.d && trap 'rm -f /usr/sbin/policy-rc.d' EXIT; }
    apt-get install -y -qq --no-install-recommends wrk nginx-light
else
    echo "problem: wrk or nginx is missing, and only root may install them. mend: apt-get install wrk nginx-light" >&2
fi

for peer in 'litellm[proxy]' rolter; do
    name=${peer%%\[*}
    [ -x "$folder/$name/bin/$name" ] && { echo "$name is here"; continue; }
    echo "installing $name"
    "${PYTHON:-python3}" -m venv "$folder/$name"
    "$folder/$name/bin/pip" --disable-pip-version-check --quiet install "$peer"
done
echo "peers are in $folder"
