#!/usr/bin/env bash
# Checks and benchmarks everything on a real GPU: `cargo xtask gpu` builds the bundle and calls this.
# On a machine without Rust, copy the repository including target/gpu and run
#     bash bench/gpu.sh target/gpu amd|nvidia [--tiny]
# --tiny: small sizes and few rounds, for slow or emulated devices: no case starts more than a million threads. The
# driver `host` is a rehearsal without a GPU: kernels run under the wave simulator, which needs g++, and sessions on the
# host device.
# The time limit of a section is an hour, or SECTION_SECONDS. A failed section does not stop the others: the table at
# the end shows the result of each, and the exit code is 1 if one failed. ONLY=name,name runs only these sections.
# The collection of public models is in ../shared, if it exists.
set -u
bundle=$1
driver=${2:-nvidia}
tiny=${3:-}
python=${PYTHON:-python3}
limit=${SECTION_SECONDS:-3600}
device=gpu
[ "$driver" = host ] && device=sim:gfx1100
rows=()
failed=0

export AMDGPU_EP_HIP_HOST_LIBRARY=$PWD/$bundle/lib/libhip-host.so
# CUDA libraries of pip packages are not on the loader's path.
wheels=$("$python" - <<'PY' 2>/dev/null
import glob, os, site
folders = [f for s in site.getsitepackages() for f in glob.glob(os.path.join(s, "nvidia", "*", "lib"))]
print(os.pathsep.join(folders))
PY
)
export AMDGPU_EP_CUDA_LIBRARY_PATH=${AMDGPU_EP_CUDA_LIBRARY_PATH:-$wheels}
# Tests without any output for this long are aborted.
[ -n "$tiny" ] && export AMDGPU_EP_TEST_SECONDS=${AMDGPU_EP_TEST_SECONDS:-1800}
library=$PWD/$bundle/lib/libamdgpu-ep.so
export AMDGPU_EP_LIBRARY=$library

wanted() { [ -z "${ONLY:-}" ] || [[ ",$ONLY," == *",$1,"* ]]; }

# section NAME TITLE COMMAND...: runs the command with the time limit, and records the result.
section() {
    local name=$1 title=$2 start=$SECONDS code
    shift 2
    wanted "$name" || return 0
    printf '\n== %s: %s\n' "$name" "$title"
    timeout --kill-after=30 "$limit" "$@"
    code=$?
    case $code in
        0) rows+=("$name|passed|$((SECONDS - start))|") ;;
        124 | 137) failed=1 && rows+=("$name|FAILED|$((SECONDS - start))|took longer than $limit s") ;;
        *) failed=1 && rows+=("$name|FAILED|$((SECONDS - start))|exit code $code") ;;
    esac
    [ "$code" = 0 ] || echo "FAILED: $*"
}

skip() { wanted "$1" && rows+=("$1|skipped|0|$2") && printf '\n== %s\nskipped: %s\n' "$1" "$2"; }

has() { "$python" -c "import $1" 2>/dev/null; }

section doctor "what is installed" bash -c '"$0/bin/amdgpu-ep" doctor || true' "$bundle"
section driver "driver rows, host and $driver" "$bundle/driver"
section bandwidth "copies by the $driver driver, against its own functions" \
    "$bundle/bandwidth" --driver "$driver" ${tiny:+--rounds 3 --max-mib 1}

counts=$(mktemp)
threads=$(mktemp)
# On a slow device, print a line for each case to show progress.
section ops "op cases on the device" env EXEC_TEST_DEVICE="$device" EXEC_TEST_COUNTS="$counts" EXEC_TEST_THREADS="$threads" \
    "$bundle/ops" $([ -z "$tiny" ] && echo --quiet)
if wanted ops; then
    echo "who ran their steps:" && cut -f1,2 "$counts" | sort | uniq -c | sort -rn
    awk -F'\t' '{ all += $1; if ($1 > most) { most = $1; name = $2 } }
        END { printf "threads of our kernels: %d in %d runs, at most %d (%s)\n", all, NR, most, name }' "$threads"
fi
rm -f "$threads"
dnn_library=${AMDGPU_EP_HIPDNN_LIBRARY:-}
[ "$driver" = nvidia ] && dnn_library=${dnn_library:-$PWD/$bundle/lib/libhipdnn_cudnn.so}
[ "$driver" = host ] && dnn_library=${dnn_library:-$PWD/$bundle/lib/libhipdnn_host.so}
if [ -n "$dnn_library" ] || ldconfig -p 2>/dev/null | grep -q libhipdnn_backend; then
    : >"$counts"
    section ops-hipdnn "op cases offered to hipDNN" env EXEC_TEST_DEVICE="$device" EXEC_TEST_HIPDNN=1 \
        EXEC_TEST_COUNTS="$counts" ${dnn_library:+AMDGPU_EP_HIPDNN_LIBRARY="$dnn_library"} "$bundle/ops" --quiet
    wanted ops-hipdnn && echo "who ran their steps:" &&
        awk -F'\t' '{ print $1 "\t" ($2 == "device" && $3 ? "hipDNN: " $3 : $2) }' "$counts" | sort | uniq -c | sort -rn
else
    skip ops-hipdnn "there is no libhipdnn_backend on the loader's path, and AMDGPU_EP_HIPDNN_LIBRARY is not set"
fi
rm -f "$counts"
if [ "$driver" = nvidia ] && [ -z "$tiny" ] && command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck; do
        section "$tool" "op cases under compute-sanitizer" env EXEC_TEST_DEVICE=gpu bash bench/sanitize.sh "$bundle/ops" "$tool"
    done
else
    skip sanitizer "it is for the nvidia driver, large sizes, and needs compute-sanitizer"
fi
section kernels "kernels that only move memory, and their share of the driver's own copy" \
    "$bundle/gpu_kernels" --driver "$driver" ${tiny:+--kib 64 --rounds 2}

if [ "$driver" = nvidia ] && [ -z "$tiny" ]; then
    dnn=(env AMDGPU_EP_DRIVER=nvidia AMDGPU_EP_HIPDNN_LIBRARY="$dnn_library")
    section hipdnn-sample "hipDNN's sample, through cuDNN" "${dnn[@]}" "$bundle/02-convolution"
    section hipdnn-overhead "what hipDNN's frontend costs" "${dnn[@]}" "$bundle/graph_overhead"
    section hipdnn-suite "hipDNN's operations, through cuDNN" \
        "$bundle/hipdnn-suite" "$dnn_library" --driver nvidia --share "${HIPDNN_SHARE:-10}"
fi

on_driver=(env AMDGPU_EP_DRIVER="$driver" AMDGPU_EP_TEST_DRIVER="$driver")
if has onnxruntime; then
    if [ -z "$tiny" ]; then
        section demo "ONNX Runtime on the $driver driver" "${on_driver[@]}" "$python" python/demo.py --library "$library" \
            --command "$bundle/bin/amdgpu-ep"
    else
        skip demo "its conversation of a few hundred tokens takes too long for --tiny"
    fi
    section sessions "session creation, host time of a run, $([ -n "$tiny" ] && echo few || echo 10,000) runs" "${on_driver[@]}" "$python" bench/gpu_sessions.py \
        "$library" ${tiny:+--tiny}
    section networks "networks, beside PyTorch where it is installed" "${on_driver[@]}" "$python" bench/gpu_models.py \
        "$library" ${tiny:+--tiny}
    section attention "attention of a prompt, beside PyTorch's" "${on_driver[@]}" "$python" bench/gpu_attention.py \
        "$library" ${tiny:+--tiny}
    section faults "too little memory, two threads, a lost device" "${on_driver[@]}" "$python" bench/gpu_faults.py \
        "$library" ${tiny:+--tiny}
    section decoders "tokens and prompts of decoders" "${on_driver[@]}" "$python" bench/gpu_llm.py "$library" \
        --make ${tiny:+--tiny}
    section lengths "prompts of new lengths" "${on_driver[@]}" "$python" bench/gpu_prompt_lengths.py "$library" \
        ${tiny:+--tiny}
    section serve "the server with concurrent clients" "${on_driver[@]}" "$python" bench/gpu_serve.py "$library" \
        --make ${tiny:+--tiny}
    section models "public models against recorded answers" "${on_driver[@]}" "$python" tests/models.py \
        --library "$library" --option profile=hip ${tiny:+--only bert_toy,mnist_cnn,logreg_iris} \
        $([ -z "$tiny" ] && echo --least-share 0.95)
    section conformance "ONNX's node tests on the device" "${on_driver[@]}" "$python" python/conformance.py \
        --library "$library" --option profile=hip \
        ${tiny:+--only Add,Conv,Gemm,LayerNormalization,MatMul,MaxPool,ReduceSum,Softmax,Transpose}
    if has pytest; then
        section suite "integration suite" "${on_driver[@]}" "$python" -m pytest --quiet -rs -p no:cacheprovider \
            tests/python/test_{registration,options,exports,sessions,memory}.py
    else
        skip suite "it needs pytest"
    fi
    if has onnxruntime_genai && has pytest; then
        section genai "ONNX Runtime GenAI, the command's text generation, and what decoders are made of" "${on_driver[@]}" \
            "$python" -m pytest --quiet -rs -p no:cacheprovider $(has xdist && echo --numprocesses 8 --dist worksteal) \
            tests/python/test_{genai,genai_concurrency,genai_sessions,textgen,generate,chat,last_logits}.py \
            tests/python/test_{four_bit_weights,packed_weights}.py tests/python/test_demo_model.py::test_generates_the_recorded_text \
            ${tiny:+-k "nano-fp32-hip or nano-fp16-hip or nano-int4-hip or last_tokens_are or shared_or_separate"}
        section genai-times "prompts and tokens through GenAI" "${on_driver[@]}" "$python" bench/gpu_genai.py "$library" \
            --make ${tiny:+--tiny}
    else
        skip genai "it needs onnxruntime_genai and pytest"
        skip genai-times "it needs onnxruntime_genai and pytest"
    fi
else
    skip onnxruntime "$python has no onnxruntime: what needs it was not run"
fi

printf '\n%-16s %-8s %7s  %s\n' section result seconds note
for row in "${rows[@]}"; do
    IFS='|' read -r name result seconds note <<<"$row"
    printf '%-16s %-8s %7s  %s\n' "$name" "$result" "$seconds" "$note"
done
exit $failed
