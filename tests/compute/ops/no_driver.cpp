// Stands in for NVIDIA's driver in a test program: it finds no GPU, loads every kernel and runs
// none. cuDNN calls these functions when it builds a plan for a GPU that is not present.
#include <cstddef>

namespace {

constexpr int kSuccess = 0, kNoDevice = 100, kNotSupported = 801;

/// The target of dummy handles.
int nothing;

}  // namespace

extern "C" {

int cuInit(unsigned) { return kNoDevice; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  *count = 0;
  return kSuccess;
}
int cuGetErrorName(int, const char** text) {
  *text = "none";
  return kSuccess;
}
int cuGetErrorString(int, const char** text) {
  *text = "there is no driver";
  return kSuccess;
}
// Has eight arguments, of which only the first matters; the caller cleans up the stack.
int cuLibraryLoadData(void** library) {
  *library = &nothing;
  return kSuccess;
}
int cuLibraryGetKernel(void** kernel) {
  *kernel = &nothing;
  return kSuccess;
}
int cuLibraryUnload(void*) { return kSuccess; }

// Never called, but cuDNN looks them up.
int cuCtxGetCurrent() { return kNotSupported; }
int cuCtxGetLimit() { return kNotSupported; }
int cuCtxPopCurrent() { return kNotSupported; }
int cuCtxPushCurrent() { return kNotSupported; }
int cuDeviceGet() { return kNotSupported; }
int cuKernelGetAttribute() { return kNotSupported; }
int cuKernelSetAttribute() { return kNotSupported; }
int cuLaunchCooperativeKernel() { return kNotSupported; }
int cuLaunchKernel() { return kNotSupported; }
int cuLaunchKernelEx() { return kNotSupported; }
int cuLibraryLoadFromFile() { return kNotSupported; }
int cuLinkAddData() { return kNotSupported; }
int cuLinkComplete() { return kNotSupported; }
int cuLinkCreate() { return kNotSupported; }
int cuLinkDestroy() { return kNotSupported; }
int cuOccupancyMaxPotentialClusterSize() { return kNotSupported; }
int cuStreamGetCtx() { return kNotSupported; }
}
