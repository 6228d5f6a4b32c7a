#!/usr/bin/env bash
# Runs hipDNN's test suite through cuDNN on an NVIDIA GPU: bash bench/hipdnn.sh FOLDER [SHARE], where FOLDER contains
# hipdnn-suite and libhipdnn_cudnn.so, and SHARE is the percentage of cases to run.
set -u
folder=$1
share=${2:-10}
# CUDA libraries of pip packages are not on the loader's path.
wheels=$(python3 - <<'PY' 2>/dev/null
import glob, os, site
folders = [f for s in site.getsitepackages() for f in glob.glob(os.path.join(s, "nvidia", "*", "lib"))]
print(os.pathsep.join(folders))
PY
)
export AMDGPU_EP_CUDA_LIBRARY_PATH=${AMDGPU_EP_CUDA_LIBRARY_PATH:-$wheels}
time "$folder/hipdnn-suite" "$folder/libhipdnn_cudnn.so" --driver nvidia --share "$share" --threads "$(nproc)"
