// Runs a convolution with a bias and a ReLU through hipDNN, and compares the result with the CPU provider's.
//
//     02-convolution libamdgpu-ep.so convolution.onnx

#include "amdgpu.hpp"

#include <unordered_map>

namespace {

std::vector<float> run(Ort::Session& session, std::vector<float>& picture) {
  const Ort::Value input = amdgpu::tensor(picture, {1, 3, 32, 32});
  const char* input_names[] = {"x"};
  const char* output_names[] = {"y"};
  // Input and output are in host memory here; ONNX Runtime copies them to the device and back.
  const std::vector<Ort::Value> outputs =
      session.Run(Ort::RunOptions{}, input_names, &input, 1, output_names, 1);
  return amdgpu::contents(outputs.front());
}

void convolve(const char* library, const std::filesystem::path& model) {
  Ort::Env env(ORT_LOGGING_LEVEL_WARNING, "convolution");
  const Ort::ConstEpDevice device = amdgpu::first_device(env, library);

  Ort::SessionOptions options;
  // Options of the provider itself have short names here: `profile` chooses the backend that runs the session.
  const std::unordered_map<std::string, std::string> provider_options = {{"profile", "hip"}};
  options.AppendExecutionProvider_V2(env, {device}, provider_options);
  // Options of a backend are entries of the session. `on` makes hipDNN run every operation that it has.
  options.AddConfigEntry("ep.hip.hipdnn", "on");
  // Nodes that the provider declines would silently run on the CPU. Make that an error.
  options.AddConfigEntry("session.disable_cpu_ep_fallback", "1");
  Ort::Session session(env, model.c_str(), options);

  // Without a provider in its options, a session runs on the CPU, even if providers are registered.
  Ort::Session reference(env, model.c_str(), Ort::SessionOptions{});

  std::vector<float> picture = amdgpu::numbers(3 * 32 * 32, 0.0f);
  amdgpu::expect_close("convolution", run(reference, picture), run(session, picture));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s LIBRARY MODEL\n", argv[0]);
    return 2;
  }
  return amdgpu::guarded([&] { convolve(argv[1], argv[2]); });
}
