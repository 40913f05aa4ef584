// The second target of the text: plain pointers and arrays, as a GPU has them, with blocks in parallel on threads of
// the host. Nothing is checked here. crates/gpu/src/emulator.rs runs a kernel in the checked target first, with the same
// arguments, and compares what both wrote.
//
// The threads of a block are fibres of one thread of the host; shared memory is a static array of that thread, and
// holds what the block before left in it.
#include <atomic>
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>
#include <tuple>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __device__
// `extern "C" {} [[maybe_unused]] static void kernel(...)`: the names are those of the checked target, so these stay in this file.
#define __global__ {} [[maybe_unused]] static
#define __shared__ static thread_local

namespace plain {

struct Index {
    unsigned x = 0, y = 0, z = 0;
};

static thread_local Index thread_index, block_index, block_size, grid_size;

// A thread of a block: where it begins, and where it goes on. A jump costs no system call.
struct Fibre {
    ucontext_t context{};
    std::jmp_buf jump;
    std::vector<char> stack;
    bool is_new = true;
};
static thread_local std::jmp_buf scheduler;
static thread_local Fibre *current = nullptr;

static void barrier()
{
    if (_setjmp(current->jump) == 0) {
        _longjmp(scheduler, 1);
    }
}

static void resume(Fibre &fibre)
{
    const bool is_new = fibre.is_new;
    fibre.is_new = false;
    current = &fibre;
    if (_setjmp(scheduler) == 0) {
        if (is_new) {
            setcontext(&fibre.context);
        }
        _longjmp(fibre.jump, 1);
    }
}

} // namespace plain

#define __syncthreads() plain::barrier()
#define threadIdx plain::thread_index
#define blockIdx plain::block_index
#define blockDim plain::block_size
#define gridDim plain::grid_size

static inline float __uint_as_float(unsigned bits)
{
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
static inline double __longlong_as_double(long long bits)
{
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
static inline long long __double_as_longlong(double value)
{
    long long bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline unsigned atomicAdd(unsigned *place, unsigned more)
{
    return __atomic_fetch_add(place, more, __ATOMIC_RELAXED);
}

// Its names are apart from those of the checked target, in which the same structures have other members.
namespace plain_text {
#include "kernels.hpp"

#include "faults.cu"
}
using namespace plain_text;

namespace plain {

// Bytes for the stack of a fibre.
constexpr std::size_t STACK_BYTES = 64 * 1024;

// An argument of a launch, as crates/gpu/src/sys.rs has it.
struct Argument {
    void *data;
    std::uint64_t count;
    std::uint32_t element_bytes;
    std::uint32_t kind;
    std::uint64_t bits;
};

template <typename T> struct Take {
    static T take(const Argument &argument)
    {
        T value;
        std::memcpy(&value, &argument.bits, sizeof value);
        return value;
    }
};
template <typename T> struct Take<T *> {
    static T *take(const Argument &argument) { return static_cast<T *>(argument.data); }
};

template <typename... A> struct Call {
    void (*kernel)(A...);
    std::tuple<A...> arguments;
};

// Runs the kernel of a fibre to its end; both are set before it begins.
static thread_local void (*body)(const void *) = nullptr;
static thread_local const void *call_of_body = nullptr;
static thread_local bool has_ended = false;

static void enter()
{
    body(call_of_body);
    has_ended = true;
    _longjmp(scheduler, 1);
}

// All threads of a block, from barrier to barrier.
static void run_block(std::vector<Fibre> &fibres)
{
    for (Fibre &fibre : fibres) {
        getcontext(&fibre.context);
        fibre.context.uc_stack.ss_sp = fibre.stack.data();
        fibre.context.uc_stack.ss_size = fibre.stack.size();
        fibre.context.uc_link = nullptr;
        makecontext(&fibre.context, enter, 0);
        fibre.is_new = true;
    }
    // All threads end in the same round: the checked target made sure of that.
    for (has_ended = false; !has_ended;) {
        for (std::size_t n = 0; n < fibres.size(); n++) {
            thread_index.x = (unsigned)n;
            resume(fibres[n]);
        }
    }
}

template <typename... A, std::size_t... N>
static void run_kernel(void (*kernel)(A...), std::index_sequence<N...>, const Argument *given, Index grid,
                       unsigned threads, unsigned workers)
{
    const Call<A...> call{kernel, {Take<A>::take(given[N])...}};
    std::atomic<unsigned> next{0};
    const auto work = [&] {
        std::vector<Fibre> fibres(threads);
        for (Fibre &fibre : fibres) {
            fibre.stack.resize(STACK_BYTES);
        }
        block_size = {threads, 1, 1};
        grid_size = grid;
        call_of_body = &call;
        body = [](const void *arguments) {
            const auto *call = static_cast<const Call<A...> *>(arguments);
            std::apply(call->kernel, call->arguments);
        };
        for (unsigned block; (block = next++) < grid.x * grid.y;) {
            block_index = {block % grid.x, block / grid.x, 0};
            run_block(fibres);
        }
    };
    std::vector<std::thread> all;
    for (unsigned n = 1; n < workers; n++) {
        all.emplace_back(work);
    }
    work();
    for (std::thread &one : all) {
        one.join();
    }
}

template <auto kernel> struct Runner;
template <typename... A, void (*kernel)(A...)> struct Runner<kernel> {
    static void run(const Argument *given, Index grid, unsigned threads, unsigned workers)
    {
        run_kernel(kernel, std::index_sequence_for<A...>{}, given, grid, threads, workers);
    }
};

struct Entry {
    const char *name;
    void (*run)(const Argument *, Index, unsigned, unsigned);
};

#define ENTRY(name) {#name, Runner<name>::run}
static const Entry ENTRIES[] = {KERNELS, ENTRY(fault_old_memory), ENTRY(probe_big)};

} // namespace plain

// Launches a kernel on `workers` threads of the host. Returns 0, or 1 if there is no kernel of this name.
extern "C" int konkordia_gpu_threads_launch(const char *name, unsigned grid_x, unsigned grid_y, unsigned threads,
                                            unsigned workers, const plain::Argument *arguments)
{
    for (const plain::Entry &entry : plain::ENTRIES) {
        if (std::strcmp(entry.name, name) == 0) {
            entry.run(arguments, {grid_x, grid_y, 1}, threads, workers);
            return 0;
        }
    }
    return 1;
}
