#!/usr/bin/env bash
# Checks and measures the driver layer on a real GPU: `cargo xtask gpu` builds the bundle and calls this.
# On a machine without Rust, copy the repository with its target/gpu and run: bash bench/gpu.sh target/gpu nvidia
set -u
bundle=$1
driver=${2:-nvidia}
failed=0

export AMDGPU_EP_HIP_HOST_LIBRARY=$PWD/$bundle/lib/libhip-host.so
# The CUDA libraries of pip packages are on no loader path.
wheels=$(python3 - <<'PY' 2>/dev/null
import glob, os, site
folders = [f for s in site.getsitepackages() for f in glob.glob(os.path.join(s, "nvidia", "*", "lib"))]
print(os.pathsep.join(folders))
PY
)
export AMDGPU_EP_CUDA_LIBRARY_PATH=${AMDGPU_EP_CUDA_LIBRARY_PATH:-$wheels}

section() { printf '\n== %s\n' "$1"; }
check() { "$@" || { failed=1; echo "FAILED: $*"; }; }

section "doctor"
"$bundle/bin/amdgpu-ep" doctor || true

section "driver rows (host and $driver)"
check "$bundle/driver"

section "bandwidth of the $driver driver, against its own functions"
check "$bundle/bandwidth" --driver "$driver"

if [ "$driver" = nvidia ]; then
    section "hipDNN's sample and what the frontend costs, through cuDNN"
    dnn=(env AMDGPU_EP_DRIVER=nvidia AMDGPU_EP_HIPDNN_LIBRARY="$PWD/$bundle/lib/libhipdnn_cudnn.so")
    check "${dnn[@]}" "$bundle/conv_fprop_dynamic"
    check "${dnn[@]}" "$bundle/overhead"

    section "hipDNN's operations through cuDNN"
    check "$bundle/hipdnn-suite" "$bundle/lib/libhipdnn_cudnn.so" --driver nvidia --share "${HIPDNN_SHARE:-10}"
fi

section "ONNX Runtime on the $driver driver"
export AMDGPU_EP_LIBRARY=$PWD/$bundle/lib/libamdgpu-ep.so
check env AMDGPU_EP_DRIVER="$driver" python3 python/demo.py --library "$AMDGPU_EP_LIBRARY"
if python3 -c 'import pytest' 2>/dev/null; then
    # The other suites need a backend, and those run on the host driver so far.
    check env AMDGPU_EP_TEST_DRIVER="$driver" python3 -m pytest --quiet -rs -p no:cacheprovider \
        tests/python/test_{registration,options,exports,sessions,memory}.py
else
    echo "skipped: the integration suite needs pytest"
fi

exit $failed
