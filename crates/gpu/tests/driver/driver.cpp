// A library with the functions of the driver of NVIDIA that crates/gpu/src/device/cuda/sys.rs calls, for tests without
// a GPU. Memory of the device is memory of the host; kernels are those of the shim; streams go on whenever a function is
// called, each as far as its waits permit. FAKE_DRIVER says how it fails:
//   version=N        cuDriverGetVersion gives N
//   init=N, create=N cuInit, cuCtxCreate fail with N
//   devices=N        there are N devices
//   memory=N         the device has N bytes
//   launch=N:E       launch N (from 0) and everything after it fails with E
//   hang=N           launch N never ends
//   register=N       cuMemHostRegister fails with N
#include "../../shim/launch.cpp"

#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>

typedef int Result;
typedef unsigned long long Address;
enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NOT_FOUND = 500, NOT_READY = 600 };

static std::string setting(const char *name)
{
    const char *all = std::getenv("FAKE_DRIVER");
    const std::string text = all ? all : "", key = std::string(name) + "=";
    const std::size_t at = text.find(key);
    return at == std::string::npos ? "" : text.substr(at + key.size(), text.find(' ', at) - at - key.size());
}
static long number(const char *name, long otherwise)
{
    const std::string text = setting(name);
    return text.empty() ? otherwise : std::stol(text);
}

struct Event {
    long recorded = 0, reached = 0;
};
struct Stream {
    // True when it is done.
    std::deque<std::function<bool()>> operations;
};
struct Function {
    std::string name;
};
struct Graph;
struct Node {
    std::function<bool()> run;
    Address handle = 0;
    Graph *body = nullptr;
};
struct Graph {
    std::vector<Node *> nodes;
    std::vector<Address> conditions;
};

// All functions may be called from any thread on which the context is current.
static std::recursive_mutex gate;
static thread_local void *current = nullptr;
#define LOCKED const std::lock_guard<std::recursive_mutex> locked(gate)
#define IN_CONTEXT                                                                                                     \
    LOCKED;                                                                                                            \
    if (current == nullptr) {                                                                                          \
        return INVALID_CONTEXT;                                                                                        \
    }

static Result failed = OK;
static long launches = 0;
static std::size_t used_bytes = 0;
static std::map<Address, std::size_t> memories;
static std::vector<Stream *> streams;
static std::map<Address, unsigned> conditions;

static void go_on()
{
    LOCKED;
    for (bool moved = true; moved;) {
        moved = false;
        for (Stream *stream : streams) {
            if (failed == OK && !stream->operations.empty() && stream->operations.front()()) {
                stream->operations.pop_front();
                moved = true;
            }
        }
    }
}
static Result put(Stream *stream, std::function<bool()> operation)
{
    IN_CONTEXT
    stream->operations.push_back(std::move(operation));
    go_on();
    return failed;
}

// Bytes from an address to the end of its memory; 0 if it is in none.
static std::size_t rest(Address address)
{
    auto after = memories.upper_bound(address);
    if (after == memories.begin()) {
        return 0;
    }
    --after;
    return address < after->first + after->second ? after->first + after->second - address : 0;
}
static bool lies(Address address, std::size_t bytes) { return rest(address) >= bytes; }

template <typename T> struct Given {
    static shim::Argument of(void *value)
    {
        shim::Argument argument{nullptr, 0, sizeof(T), 2, 0};
        std::memcpy(&argument.bits, value, sizeof(T));
        return argument;
    }
};
template <typename T> struct Given<shim::Span<T>> {
    static shim::Argument of(void *value)
    {
        Address address;
        std::memcpy(&address, value, sizeof address);
        return {(void *)address, rest(address) / sizeof(T), sizeof(T), std::is_const_v<T> ? 0u : 1u, 0};
    }
};
template <auto kernel> struct Unpack;
template <typename... A, void (*kernel)(A...)> struct Unpack<kernel> {
    static std::vector<shim::Argument> of(void **values)
    {
        std::size_t n = 0;
        std::vector<shim::Argument> arguments;
        (arguments.push_back(Given<A>::of(values[n++])), ...);
        return arguments;
    }
};
#define NAMED(name) {#name, Unpack<name>::of}
#define NAMED_TYPES(name) NAMED(name##_int16), NAMED(name##_uint16), NAMED(name##_int32), NAMED(name##_uint32), NAMED(name##_float32)
static const std::map<std::string, std::vector<shim::Argument> (*)(void **)> ARGUMENTS_OF = {
    NAMED_TYPES(convert), NAMED_TYPES(convert_fixed), NAMED_TYPES(stats), NAMED(bslz4_blocks), NAMED(chunk_places),      NAMED(chunk_gather), NAMED_TYPES(count_above),
    NAMED(keep_images),   NAMED(take_words),NAMED(row_places),   NAMED_TYPES(row_counts), NAMED_TYPES(collect),
};

template <typename T> static T value_of(void **values, int n)
{
    T value;
    std::memcpy(&value, values[n], sizeof value);
    return value;
}

// A launch as an operation: the values are copied now.
static std::function<bool()> launch(Function *function, unsigned x, unsigned y, unsigned threads, void **values)
{
    std::function<void()> body;
    if (function->name == "set_condition") {
        const Address handle = value_of<Address>(values, 0), keep = value_of<Address>(values, 1);
        const unsigned index = value_of<unsigned>(values, 2);
        body = [=] { conditions[handle] = ((unsigned char *)keep)[index] != 0; };
    } else if (function->name == "copy_used") {
        const Address from = value_of<Address>(values, 0), to = value_of<Address>(values, 1), used = value_of<Address>(values, 2);
        const unsigned index = value_of<unsigned>(values, 3), scale = value_of<unsigned>(values, 4);
        const Address most = value_of<Address>(values, 5);
        body = [=] {
            const Address bytes = std::min<Address>((Address)((unsigned *)used)[index] * scale, most);
            if (!lies(from, bytes) || !lies(to, bytes)) {
                failed = 700;
                return;
            }
            std::memcpy((void *)to, (void *)from, bytes);
        };
    } else if (ARGUMENTS_OF.count(function->name)) {
        const auto arguments = ARGUMENTS_OF.at(function->name)(values);
        body = [=] {
            char error[256];
            if (konkordia_gpu_shim_launch(function->name.c_str(), x, y, threads, 0, arguments.data(), arguments.size(), error,
                                          sizeof error) != 0) {
                std::fprintf(stderr, "%s: %s\n", function->name.c_str(), error);
                failed = 700;
            }
        };
    }
    return [=] {
        const long n = launches;
        if (!body || n == number("hang", -1)) {
            return false; // the persistent kernel, which nobody runs here
        }
        launches++;
        const std::string at = setting("launch");
        if (!at.empty() && n == std::stol(at)) {
            failed = std::stoi(at.substr(at.find(':') + 1));
            return true;
        }
        body();
        return true;
    };
}

static bool run(Graph *graph)
{
    for (Address condition : graph->conditions) {
        conditions[condition] = 0;
    }
    for (Node *node : graph->nodes) {
        if (failed != OK || (node->body ? conditions[node->handle] != 0 && !run(node->body) : !node->run())) {
            return false;
        }
    }
    return true;
}

static std::function<bool()> copy(Address to, Address from, std::size_t bytes)
{
    return [=] {
        if (!lies(to, bytes) || !lies(from, bytes)) {
            failed = 700;
        } else {
            std::memcpy((void *)to, (void *)from, bytes);
        }
        return true;
    };
}
static std::function<bool()> fill(Address at, unsigned char byte, std::size_t bytes)
{
    return [=] {
        if (!lies(at, bytes)) {
            failed = 700;
        } else {
            std::memset((void *)at, byte, bytes);
        }
        return true;
    };
}

extern "C" {
// NVRTC asks the driver for tables of its own, and goes on without them.
Result cuGetExportTable(const void **table, const void *) { return *table = nullptr, NOT_FOUND; }
Result cuDriverGetVersion(int *version) { return *version = (int)number("version", 12090), OK; }
Result cuInit(unsigned) { return (Result)number("init", OK); }
Result cuDeviceGetCount(int *count) { return *count = (int)number("devices", 1), OK; }
Result cuDeviceGet(int *device, int ordinal) { return *device = ordinal, OK; }
Result cuDeviceGetName(char *name, int length, int) { return std::snprintf(name, length, "driver of the tests"), OK; }
Result cuDeviceGetAttribute(int *value, int which, int)
{
    *value = which == 75 ? 9 : which == 16 ? 4 : which == 95 ? 1 : 0; // sm_90, 4 multiprocessors, cooperative launches
    return OK;
}
Result cuCtxCreate_v2(void **context, unsigned, int) { return *context = current = &failed, (Result)number("create", OK); }
Result cuCtxDestroy_v2(void *) { return current = nullptr, OK; }
Result cuCtxSetCurrent(void *context) { return current = context, OK; }
Result cuCtxSynchronize() { return go_on(), failed; }
Result cuGetErrorName(Result, const char **text) { return *text = "ERROR", OK; }
Result cuGetErrorString(Result, const char **text) { return *text = "the driver of the tests was told to fail", OK; }
Result cuMemAlloc_v2(Address *address, std::size_t bytes)
{
    IN_CONTEXT
    if (used_bytes + bytes > (std::size_t)number("memory", 1l << 40)) {
        return OUT_OF_MEMORY;
    }
    used_bytes += bytes;
    *address = (Address)std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset((void *)*address, 0xA5, bytes);
    memories[*address] = bytes;
    return failed;
}
Result cuMemHostAlloc(void **host, std::size_t bytes, unsigned)
{
    IN_CONTEXT
    *host = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    memories[(Address)*host] = bytes;
    return failed;
}
Result cuMemHostGetDevicePointer_v2(Address *address, void *host, unsigned) { return *address = (Address)host, failed; }
Result cuMemFreeHost(void *host)
{
    IN_CONTEXT
    memories.erase((Address)host);
    std::free(host);
    return OK;
}
Result cuMemHostRegister_v2(void *host, std::size_t bytes, unsigned how)
{
    IN_CONTEXT
    if ((Address)host % 4096 != 0 || bytes % 4096 != 0 || how != 3 || memories.count((Address)host)) {
        return INVALID; // portable and mapped, and once
    }
    const Result result = (Result)number("register", OK);
    if (result == OK) {
        memories[(Address)host] = bytes;
    }
    return result;
}
Result cuMemHostUnregister(void *host)
{
    IN_CONTEXT
    return memories.erase((Address)host) == 1 ? OK : INVALID;
}
Result cuStreamCreate(Stream **stream, unsigned)
{
    IN_CONTEXT
    streams.push_back(*stream = new Stream);
    return failed;
}
Result cuStreamQuery(Stream *stream)
{
    IN_CONTEXT
    go_on();
    return failed != OK ? failed : stream->operations.empty() ? OK : NOT_READY;
}
Result cuEventCreate(Event **event, unsigned) { return *event = new Event, failed; }
Result cuEventRecord(Event *event, Stream *stream)
{
    IN_CONTEXT
    const long ticket = ++event->recorded;
    return put(stream, [=] { return event->reached = ticket, true; });
}
Result cuEventQuery(Event *event)
{
    IN_CONTEXT
    go_on();
    return failed != OK ? failed : event->reached == event->recorded ? OK : NOT_READY;
}
Result cuStreamWaitEvent(Stream *stream, Event *event, unsigned)
{
    IN_CONTEXT
    const long ticket = event->recorded;
    return put(stream, [=] { return event->reached >= ticket; });
}
Result cuStreamWaitValue32_v2(Stream *stream, Address flag, unsigned value, unsigned how)
{
    if (how != 0 || !lies(flag, 4)) {
        return INVALID;
    }
    return put(stream, [=] { return *(volatile unsigned *)flag - value < 0x80000000u; });
}
Result cuStreamWriteValue32_v2(Stream *stream, Address flag, unsigned value, unsigned)
{
    return !lies(flag, 4) ? INVALID : put(stream, [=] { return *(volatile unsigned *)flag = value, true; });
}
Result cuMemcpyHtoDAsync_v2(Address to, const void *from, std::size_t bytes, Stream *stream)
{
    return put(stream, copy(to, (Address)from, bytes));
}
Result cuMemcpyDtoHAsync_v2(void *to, Address from, std::size_t bytes, Stream *stream)
{
    return put(stream, copy((Address)to, from, bytes));
}
Result cuMemsetD8Async(Address at, unsigned char byte, std::size_t bytes, Stream *stream) { return put(stream, fill(at, byte, bytes)); }
Result cuModuleLoadData(void **module, const void *image)
{
    // Machine code is an ELF file.
    return *module = &failed, std::memcmp(image, "\177ELF", 4) == 0 ? failed : 200;
}
Result cuModuleGetFunction(Function **function, void *, const char *name)
{
    const std::string wanted = name;
    const bool is_known = ARGUMENTS_OF.count(wanted) || wanted == "set_condition" || wanted == "copy_used" || wanted == "persistent";
    *function = new Function{wanted};
    return is_known ? failed : NOT_FOUND;
}
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Function *, int, std::size_t) { return *blocks = 3, failed; }
Result cuLaunchKernel(Function *function, unsigned x, unsigned y, unsigned, unsigned threads, unsigned, unsigned, unsigned,
                      Stream *stream, void **values, void **)
{
    return put(stream, launch(function, x, y, threads, values));
}
Result cuLaunchCooperativeKernel(Function *function, unsigned x, unsigned y, unsigned, unsigned threads, unsigned, unsigned,
                                 unsigned, Stream *stream, void **values)
{
    return x > 4 * 3 ? 720 : put(stream, launch(function, x, y, threads, values));
}

Result cuGraphCreate(Graph **graph, unsigned) { return *graph = new Graph, failed; }
Result cuGraphConditionalHandleCreate(Address *handle, Graph *graph, void *, unsigned first, unsigned flags)
{
    *handle = 1000 + conditions.size();
    conditions[*handle] = first;
    graph->conditions.push_back(*handle);
    return flags == 1 ? failed : INVALID;
}

struct KernelNode {
    Function *function;
    unsigned x, y, z, threads, threads_y, threads_z, shared_bytes;
    void **values, **extra;
    void *kernel, *context;
};
struct Copy3D {
    std::size_t from_x, from_y, from_z, from_lod;
    unsigned from_kind;
    const void *from_host;
    Address from_device;
    void *from_array, *reserved0;
    std::size_t from_pitch, from_height, to_x, to_y, to_z, to_lod;
    unsigned to_kind;
    void *to_host;
    Address to_device;
    void *to_array, *reserved1;
    std::size_t to_pitch, to_height, width, height, depth;
};
struct NodeParameters {
    int type, reserved0[3];
    union {
        long long reserved1[29];
        KernelNode kernel;
        struct {
            int flags, reserved;
            void *context;
            Copy3D copy;
        } memcpy;
        struct {
            Address at;
            std::size_t pitch;
            unsigned value, element_bytes;
            std::size_t width, height;
            void *context;
        } memset;
        struct {
            Address handle;
            int kind;
            unsigned size;
            Graph **bodies;
            void *context;
        } conditional;
    };
    long long reserved2;
};
Result cuGraphAddNode(Node **node, Graph *graph, Node *const *before, std::size_t count, NodeParameters *parameters)
{
    // A chain: each node follows the one before it.
    const bool is_chain = graph->nodes.empty() ? count == 0 : count == 1 && *before == graph->nodes.back();
    if (!is_chain || parameters->reserved2 != 0) {
        return INVALID;
    }
    graph->nodes.push_back(*node = new Node);
    if (parameters->type == 0) {
        const KernelNode &kernel = parameters->kernel;
        (*node)->run = launch(kernel.function, kernel.x, kernel.y, kernel.threads, kernel.values);
        return kernel.z == 1 && kernel.threads_y == 1 && kernel.threads_z == 1 && kernel.context == nullptr ? failed : INVALID;
    }
    if (parameters->type == 1) {
        const Copy3D &copied = parameters->memcpy.copy;
        const Address from = copied.from_kind == 1 ? (Address)copied.from_host : copied.from_device;
        const Address to = copied.to_kind == 1 ? (Address)copied.to_host : copied.to_device;
        (*node)->run = copy(to, from, copied.width);
        const bool is_plain = copied.height == 1 && copied.depth == 1 && copied.from_kind + copied.to_kind == 3;
        return is_plain && parameters->memcpy.context == &failed ? failed : INVALID;
    }
    if (parameters->type == 2) {
        const auto &filled = parameters->memset;
        (*node)->run = fill(filled.at, (unsigned char)filled.value, filled.width);
        return filled.element_bytes == 1 && filled.height == 1 && filled.context == &failed ? failed : INVALID;
    }
    if (parameters->type == 13) {
        (*node)->handle = parameters->conditional.handle;
        (*node)->body = new Graph;
        parameters->conditional.bodies = new Graph *[1]{(*node)->body};
        return parameters->conditional.kind == 0 && parameters->conditional.size == 1 ? failed : INVALID;
    }
    return INVALID;
}
Result cuGraphInstantiateWithFlags(Graph **executable, Graph *graph, Address) { return *executable = graph, failed; }
Result cuGraphLaunch(Graph *graph, Stream *stream)
{
    return put(stream, [=] { return run(graph); });
}
}
