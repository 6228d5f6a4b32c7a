#!/usr/bin/env bash
# Checks and measures everything on a real GPU: `cargo xtask gpu` builds the bundle and calls this.
# On a machine without Rust, copy the repository with its target/gpu and run: bash bench/gpu.sh target/gpu nvidia|amd [--tiny]
# --tiny: small sizes and few rounds, for slow or emulated devices.
set -u
bundle=$1
driver=${2:-nvidia}
tiny=${3:-}
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
check "$bundle/bandwidth" --driver "$driver" ${tiny:+--rounds 3 --max-mib 4}

section "op cases on the device, and who ran their steps"
counts=$(mktemp)
check env EXEC_TEST_DEVICE=gpu EXEC_TEST_COUNTS="$counts" "$bundle/ops" --quiet
cut -f1,2 "$counts" | sort | uniq -c | sort -rn
section "op cases with their steps offered to hipDNN, and who ran them"
: >"$counts"
dnn_library=
[ "$driver" = nvidia ] && dnn_library=$PWD/$bundle/lib/libhipdnn_cudnn.so
if [ "$driver" = nvidia ] || ldconfig -p 2>/dev/null | grep -q libhipdnn_backend || [ -n "${AMDGPU_EP_HIPDNN_LIBRARY:-}" ]; then
    check env EXEC_TEST_DEVICE=gpu EXEC_TEST_HIPDNN=1 EXEC_TEST_COUNTS="$counts" \
        AMDGPU_EP_HIPDNN_LIBRARY="${AMDGPU_EP_HIPDNN_LIBRARY:-$dnn_library}" "$bundle/ops" --quiet
    awk -F'\t' '{ print $1 "\t" ($2 == "device" && $3 ? "hipDNN: " $3 : $2) }' "$counts" | sort | uniq -c | sort -rn
else
    echo "skipped: there is no libhipdnn_backend on the loader's path, and AMDGPU_EP_HIPDNN_LIBRARY is not set"
fi
if [ "$driver" = nvidia ] && [ -z "$tiny" ] && command -v compute-sanitizer >/dev/null; then
    section "op cases under compute-sanitizer"
    for tool in memcheck racecheck initcheck; do
        check env EXEC_TEST_DEVICE=gpu timeout 300 compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5 \
            "$bundle/ops" --quiet ${SANITIZED_OPS:-softmax norm reduce matmul}
    done
fi

section "kernels that only move memory"
check "$bundle/gpu_kernels" --driver "$driver" ${tiny:+--mib 1 --rounds 3}

if [ "$driver" = nvidia ] && [ -z "$tiny" ]; then
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

section "networks in ONNX Runtime, beside PyTorch where it is installed"
check env AMDGPU_EP_DRIVER="$driver" python3 bench/gpu_models.py "$AMDGPU_EP_LIBRARY" ${tiny:+--tiny}

section "ONNX's node tests on the device"
check env AMDGPU_EP_DRIVER="$driver" python3 python/conformance.py --library "$AMDGPU_EP_LIBRARY" \
    --option profile=hip ${tiny:+--only Add,Conv,Gemm,LayerNormalization,MatMul,MaxPool,ReduceSum,Softmax,Transpose}

section "integration suite"
if python3 -c 'import pytest' 2>/dev/null; then
    check env AMDGPU_EP_TEST_DRIVER="$driver" python3 -m pytest --quiet -rs -p no:cacheprovider \
        tests/python/test_{registration,options,exports,sessions,memory}.py
else
    echo "skipped: the integration suite needs pytest"
fi

exit $failed
