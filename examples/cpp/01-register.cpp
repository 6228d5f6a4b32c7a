// Registers the provider's library and lists the devices that it found.
//
//     01-register libamdgpu-ep.so

#include "amdgpu.hpp"

namespace {

// Returns an entry of the device's metadata, or "?" if there is none.
std::string fact(const Ort::ConstEpDevice& device, const char* key) {
  const char* value = device.EpMetadata().GetValue(key);
  return value == nullptr ? "?" : value;
}

void list_devices(const char* library) {
  // Everything below uses the environment: declare it first, so that it is destroyed last.
  Ort::Env env(ORT_LOGGING_LEVEL_WARNING, "register");
  const std::vector<Ort::ConstEpDevice> devices = amdgpu::register_library(env, library);

  // Registration succeeds even without a GPU, so one program can ship for all machines.
  if (devices.empty()) {
    std::printf("no AMD GPU: sessions run on the CPU (`amdgpu-ep doctor` says why)\n");
    return;
  }
  for (const Ort::ConstEpDevice& device : devices) {
    std::printf("%s device %s: %s (%s)\n", device.EpName(), fact(device, "hip_device_id").c_str(),
                fact(device, "name").c_str(), fact(device, "arch").c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s LIBRARY\n", argv[0]);
    return 2;
  }
  return amdgpu::guarded([&] { list_devices(argv[1]); });
}
