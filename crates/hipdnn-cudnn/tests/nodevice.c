/* The CUDA driver of a machine without a device, so that cuDNN can build plans for a described one: code is "loaded", but
   nothing can run. */
enum { SUCCESS = 0, NO_DEVICE = 100 };

int cuInit(unsigned flags) { (void)flags; return NO_DEVICE; }
int cuDeviceGetCount(int *count) { *count = 0; return NO_DEVICE; }
int cuGetErrorName(int error, const char **name) { (void)error; *name = "CUDA_ERROR_NO_DEVICE"; return SUCCESS; }
int cuGetErrorString(int error, const char **text) { (void)error; *text = "no device"; return SUCCESS; }

static char code;

int cuLibraryLoadData(void **library, const void *image, void *options, void **values, unsigned count, void *further,
                      void **others, unsigned total) {
    (void)image, (void)options, (void)values, (void)count, (void)further, (void)others, (void)total;
    *library = &code;
    return SUCCESS;
}

int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
    (void)library, (void)name;
    *kernel = &code;
    return SUCCESS;
}

int cuLibraryUnload(void *library) { (void)library; return SUCCESS; }

/* Functions that cuDNN looks up but never calls without a device. */
#define ABSENT(name) int name(void) { return NO_DEVICE; }
ABSENT(cuCtxGetCurrent)
ABSENT(cuCtxGetLimit)
ABSENT(cuCtxPopCurrent)
ABSENT(cuCtxPushCurrent)
ABSENT(cuDeviceGet)
ABSENT(cuDriverGetVersion)
ABSENT(cuKernelGetAttribute)
ABSENT(cuKernelSetAttribute)
ABSENT(cuLaunchCooperativeKernel)
ABSENT(cuLaunchKernel)
ABSENT(cuLaunchKernelEx)
ABSENT(cuLibraryLoadFromFile)
ABSENT(cuLinkAddData)
ABSENT(cuLinkComplete)
ABSENT(cuLinkCreate)
ABSENT(cuLinkDestroy)
ABSENT(cuModuleGetFunction)
ABSENT(cuModuleLoadData)
ABSENT(cuModuleUnload)
ABSENT(cuOccupancyMaxPotentialClusterSize)
ABSENT(cuStreamGetCtx)
ABSENT(cuTensorMapEncodeIm2col)
ABSENT(cuTensorMapEncodeTiled)
ABSENT(cuTensorMapReplaceAddress)
