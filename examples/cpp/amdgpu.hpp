// Helpers for the examples: register the provider, find its devices, compare results with the CPU provider's.
#pragma once

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace amdgpu {

// The library's devices have the name that it was registered under.
inline constexpr const char* kProvider = "AMDGPUExecutionProvider";

// Registers the library and returns its devices; none on a machine without an AMD GPU.
inline std::vector<Ort::ConstEpDevice> register_library(Ort::Env& env, const std::filesystem::path& library) {
  // ONNX Runtime looks for a relative path beside its own library, so give it a full one.
  env.RegisterExecutionProviderLibrary(kProvider, std::filesystem::absolute(library).native());

  std::vector<Ort::ConstEpDevice> devices;
  for (const Ort::ConstEpDevice& device : env.GetEpDevices()) {
    if (device.EpName() == std::string_view(kProvider)) devices.push_back(device);
  }
  return devices;
}

// As above, for programs that need a device.
inline Ort::ConstEpDevice first_device(Ort::Env& env, const std::filesystem::path& library) {
  const std::vector<Ort::ConstEpDevice> devices = register_library(env, library);
  if (devices.empty()) {
    throw std::runtime_error(
        "the provider found no AMD GPU\n"
        "  help: `amdgpu-ep doctor` says why; AMDGPU_EP_DRIVER=host uses the CPU instead");
  }
  return devices.front();
}

// Numbers between -1 and 1 that are the same in every run.
inline std::vector<float> numbers(std::size_t count, float phase) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = std::sin(0.37f * static_cast<float>(i) + phase);
  return values;
}

// Creates a tensor that uses the caller's memory, which must outlive it.
inline Ort::Value tensor(std::vector<float>& values, const std::vector<std::int64_t>& shape) {
  const Ort::MemoryInfo memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  return Ort::Value::CreateTensor<float>(memory, values.data(), values.size(), shape.data(), shape.size());
}

// The contents of a tensor in host memory.
inline std::vector<float> contents(const Ort::Value& value) {
  const float* first = value.GetTensorData<float>();
  return {first, first + value.GetTensorTypeAndShapeInfo().GetElementCount()};
}

// Throws unless every element is within 1e-4 of the expected one. The condition also fails for NaN.
inline void expect_close(const char* what, const std::vector<float>& expected, const std::vector<float>& actual) {
  if (expected.size() != actual.size()) throw std::runtime_error(std::string(what) + ": the shapes differ");
  float largest = 0.0f;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const float difference = std::fabs(expected[i] - actual[i]);
    if (!(difference <= 1e-4f * std::max(1.0f, std::fabs(expected[i])))) {
      throw std::runtime_error(std::string(what) + ": element " + std::to_string(i) + " is " +
                               std::to_string(actual[i]) + ", the CPU provider says " + std::to_string(expected[i]));
    }
    largest = std::max(largest, difference);
  }
  std::printf("%s: %zu values agree with the CPU provider (largest difference %.1e)\n", what, expected.size(),
              static_cast<double>(largest));
}

// Runs `body`, and turns an exception into a message and exit code 1. The C++ API reports all errors as exceptions.
template <typename Body>
int guarded(Body body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}

}  // namespace amdgpu
