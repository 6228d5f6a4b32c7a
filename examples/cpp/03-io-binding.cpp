// Runs a recurrent model whose state stays in device memory between steps: only the inputs before the first step and
// the result after the last one are copied.
//
//     03-io-binding libamdgpu-ep.so recurrent.onnx

#include "amdgpu.hpp"

#include <unordered_map>
#include <utility>

namespace {

constexpr std::size_t kSteps = 6;
const std::vector<std::int64_t> kInputShape = {2, 8};
const std::vector<std::int64_t> kStateShape = {2, 16};
const std::vector<std::int64_t> kOutputShape = {2, 4};

// The same steps on the CPU, without a binding.
std::vector<float> on_cpu(Ort::Env& env, const std::filesystem::path& model,
                          std::vector<std::vector<float>> inputs, std::vector<float> state) {
  Ort::Session session(env, model.c_str(), Ort::SessionOptions{});
  const char* input_names[] = {"x", "state"};
  const char* output_names[] = {"next_state", "y"};
  std::vector<float> y;
  for (std::vector<float>& input : inputs) {
    const Ort::Value values[] = {amdgpu::tensor(input, kInputShape), amdgpu::tensor(state, kStateShape)};
    const std::vector<Ort::Value> outputs =
        session.Run(Ort::RunOptions{}, input_names, values, 2, output_names, 2);
    y = amdgpu::contents(outputs[1]);
    state = amdgpu::contents(outputs[0]);
  }
  return y;
}

void run(const char* library, const std::filesystem::path& model) {
  Ort::Env env(ORT_LOGGING_LEVEL_WARNING, "io-binding");
  const Ort::ConstEpDevice device = amdgpu::first_device(env, library);
  Ort::SessionOptions options;
  const std::unordered_map<std::string, std::string> provider_options = {{"profile", "hip"}};
  options.AppendExecutionProvider_V2(env, {device}, provider_options);
  options.AddConfigEntry("session.disable_cpu_ep_fallback", "1");
  Ort::Session session(env, model.c_str(), options);

  // The environment's allocator of this device serves every session on it, and tensors may outlive a session.
  const Ort::UnownedAllocator allocator =
      env.GetSharedAllocator(device.GetMemoryInfo(OrtDeviceMemoryType_DEFAULT));
  const auto on_device = [&](const std::vector<std::int64_t>& shape) {
    return Ort::Value::CreateTensor<float>(allocator, shape.data(), shape.size());
  };

  std::vector<std::vector<float>> inputs;
  for (std::size_t step = 0; step < kSteps; ++step) {
    inputs.push_back(amdgpu::numbers(2 * 8, static_cast<float>(step)));
  }
  std::vector<float> state(2 * 16, 0.0f);

  // Upload all inputs and the initial state with one call. Without a stream, it returns when the copies are done.
  std::vector<Ort::Value> host, uploaded;
  for (std::vector<float>& input : inputs) {
    host.push_back(amdgpu::tensor(input, kInputShape));
    uploaded.push_back(on_device(kInputShape));
  }
  host.push_back(amdgpu::tensor(state, kStateShape));
  uploaded.push_back(on_device(kStateShape));
  Ort::ThrowOnError(env.CopyTensors(host, uploaded, nullptr));

  // Each step reads one state and writes the other; swapping the two replaces a copy.
  Ort::Value current = std::move(uploaded.back());
  Ort::Value next = on_device(kStateShape);
  std::vector<Ort::Value> result;
  result.push_back(on_device(kOutputShape));

  Ort::IoBinding binding(session);
  binding.BindOutput("y", result.front());
  for (std::size_t step = 0; step < kSteps; ++step) {
    binding.BindInput("x", uploaded[step]);
    binding.BindInput("state", current);
    binding.BindOutput("next_state", next);
    session.Run(Ort::RunOptions{}, binding);
    std::swap(current, next);
  }
  binding.SynchronizeOutputs();

  if (result.front().GetTensorMemoryInfo().GetDeviceType() != OrtMemoryInfoDeviceType_GPU) {
    throw std::runtime_error("the result is not in device memory");
  }
  std::vector<float> y(2 * 4);
  std::vector<Ort::Value> downloaded;
  downloaded.push_back(amdgpu::tensor(y, kOutputShape));
  Ort::ThrowOnError(env.CopyTensors(result, downloaded, nullptr));
  amdgpu::expect_close("recurrent model", on_cpu(env, model, inputs, state), y);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s LIBRARY MODEL\n", argv[0]);
    return 2;
  }
  return amdgpu::guarded([&] { run(argv[1], argv[2]); });
}
