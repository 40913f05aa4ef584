// A library with the functions of NVRTC that crates/gpu/src/device/cuda/sys.rs calls. Its machine code is an ELF header
// without anything: the driver of the tests has the kernels already. FAKE_COMPILER=text refuses every text, and says so.
#include <cstdlib>
#include <cstring>

static const char IMAGE[] = "\177ELF";
static const char *refusal() { return std::getenv("FAKE_COMPILER"); }

extern "C" {
int nvrtcCreateProgram(void **program, const char *, const char *, int, const char *const *, const char *const *)
{
    return *program = std::malloc(1), 0;
}
int nvrtcCompileProgram(void *, int, const char *const *) { return refusal() ? 6 : 0; }
int nvrtcGetCUBINSize(void *, std::size_t *bytes) { return *bytes = sizeof IMAGE, 0; }
int nvrtcGetCUBIN(void *, char *image) { return std::memcpy(image, IMAGE, sizeof IMAGE), 0; }
int nvrtcGetProgramLogSize(void *, std::size_t *bytes) { return *bytes = std::strlen(refusal()) + 1, 0; }
int nvrtcGetProgramLog(void *, char *log) { return std::strcpy(log, refusal()), 0; }
int nvrtcDestroyProgram(void **program) { return std::free(*program), *program = nullptr, 0; }
}
