#!/bin/sh
# Installs the programs into which `vllm_router.litellm` and the like are plugged, for `make test-hosts`:
#   install_hosts.sh DIRECTORY [PYTHON]
# Each version has an environment of its own, DIRECTORY/<host>-<version>, from PyPI (2.5 GB in all).
#
# LiteLLM 1.82.7 and 1.82.8 carried malware on PyPI: versions are exact here, and nothing is ever "the latest".
# LiteLLM 1.110 has the present interface of plug-ins, 1.108 the former one. Of three packages that the proxy of 1.110
# requires PyPI has one not at all and two in other versions; none is needed without a database.
set -eu

directory=${1:?usage: install_hosts.sh DIRECTORY [PYTHON]}
python=${2:-python3}
uv=0.13.9
until=2026-11-29 # what they require in turn is as it was then
# What the package and the tests need there.
tests="numpy==2.4.6 PyYAML==6.0.4 rich==13.9.4 hypothesis==6.170.17 pytest==9.2.0 pytest-timeout==2.4.0"

mkdir -p "$directory"
cd "$directory"
test -x uv/bin/uv || { "$python" -m venv uv && uv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$uv"; }

# environment NAME PACKAGE...
environment() {
  name=$1
  shift
  test -x "$name/bin/python" || uv/bin/uv venv --quiet --python "$python" "$name"
  # shellcheck disable=SC2086
  uv/bin/uv pip install --quiet --exclude-newer "$until" --python "$name/bin/python" $tests "$@"
}

cat > litellm-1.110-proxy.txt <<END
litellm-proxy==0; python_version < "3"
litellm-proxy-extras==0.4.110
litellm-enterprise==0.1.83
END
environment litellm-1.110.2 --override litellm-1.110-proxy.txt "litellm[proxy]==1.110.2" openai==3.57.0
environment litellm-1.108.7 "litellm[proxy]==1.108.7" openai==3.57.0

# Ray 2.60 is the newest, and the first that loses no request under routers other than its own (2.58.1: 6 of 20 at once were
# routed). 2.61 has its line here beside it.
environment ray-2.60.0 "ray[serve]==2.60.0"

# Of verl one module is tested, which needs no torch. 0.9.1 is the newest version, and the first that has it: 0.9.0 and 0.8.0 take
# no class for the rollout router.
environment verl-0.9.1 ray==2.60.0 cachetools==8.0.2 omegaconf==2.4.0 packaging==26.4
uv/bin/uv pip install --quiet --no-deps --python verl-0.9.1/bin/python verl==0.9.1

# Clients of the router's APIs.
environment clients-1 langchain-openai==1.7.4 llama-index-llms-openai-like==0.8.1 agentic-api==0.9.0
